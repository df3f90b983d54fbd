"""Training steps of published experiments, compiled by the compilers of a TPU and of a GPU."""
