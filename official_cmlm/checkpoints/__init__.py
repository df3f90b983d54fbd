"""Checkpoint formats: what is read and what is written."""
