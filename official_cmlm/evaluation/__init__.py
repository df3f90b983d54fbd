"""Protocols over anything that has `encode(list of str) -> float array [n, dim]`."""
