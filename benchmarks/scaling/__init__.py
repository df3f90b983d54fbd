"""What a step of training costs: formulas, constants measured here, and what follows."""
