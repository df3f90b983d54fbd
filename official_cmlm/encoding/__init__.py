"""Strings in, vectors out: encoders by name, their backends, classifiers on them."""
