"""Public formats of checkpoints, one file or a few each."""
