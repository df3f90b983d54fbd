"""The packages of the wheel, which pyproject.toml cannot compute. Everything else is said there."""

from setuptools import find_packages, setup

# Folders of a checkout that are installed below official_cmlm; pyproject.toml maps the names.
_FOLDERS = ("data_prep", "experiments", "export")
_INSTALLED = find_packages(include=[f"{name}{end}" for name in _FOLDERS for end in ("", ".*")])

setup(
    packages=[
        *find_packages(include=["official_cmlm", "official_cmlm.*"]),
        *(f"official_cmlm.{name}" for name in _INSTALLED),
    ]
)
