"""Packages that not every use of the project needs: the extras of pyproject.toml."""

import importlib.util
import sys

from official_cmlm.common.errors import UserError

# Packages without a wheel for Python 3.14: there the extras leave them out.
BEFORE_PYTHON_3_14 = {"pycld2", "tensorflow", "tensorflow_hub", "tensorflow_text"}


def check_extra(extra: str, *packages: str) -> None:
    """Raises `UserError` unless packages are installed. Call it before importing them.

    It takes less than a microsecond for packages that are imported already. The message says how
    to install the extra of this project, such as `data`, that brings them.
    """
    for package in packages:
        if not is_installed(package):
            if package in BEFORE_PYTHON_3_14 and sys.version_info >= (3, 14):
                raise UserError(f"{package} is not installed; it needs Python 3.13 or earlier")
            raise UserError(
                f"the package {package} is not installed; in the checkout of this project, run "
                f'pip install ".[{extra}]"'
            )


def is_installed(*packages: str) -> bool:
    """Returns whether all packages could be imported, without importing them."""
    # `sys.modules` may hold a module that no finder knows; a None in it blocks the import.
    return all(
        (sys.modules[name] if name in sys.modules else importlib.util.find_spec(name)) is not None
        for name in packages
    )
