"""Losses as pure functions on tensors."""
