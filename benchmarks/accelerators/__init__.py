"""What published trainings need of a TPU, by the TPU's own compiler."""
