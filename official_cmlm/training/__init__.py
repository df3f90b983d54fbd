"""Training: how a step is compiled and where it runs."""
