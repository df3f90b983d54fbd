"""Encoder directories, their weights, and the import of public checkpoints."""
