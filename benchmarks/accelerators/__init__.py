"""Training steps of published experiments, compiled by the TPU's own compiler."""
