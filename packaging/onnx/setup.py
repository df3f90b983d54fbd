"""The packages of the wheel: what `SentenceEncoder` needs besides TensorFlow."""

from setuptools import setup

_PACKAGES = ("backends", "checkpoints", "configs", "tokenization")

setup(packages=["official_cmlm", *(f"official_cmlm.{name}" for name in _PACKAGES)])
