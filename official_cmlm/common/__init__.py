"""Modules that all others import."""
