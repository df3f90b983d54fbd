"""Imports Python modules that a user names on the command line."""

import importlib
import os
import sys
import types

from official_cmlm.errors import UserError


def import_user_module(name: str, hint: str) -> types.ModuleType:
    """Imports a module of the user's own, looked up from the current folder as `python -m` does.

    Args:
      name: e.g. `my_package.my_objective`.
      hint: what to do if it cannot be imported, for the message.

    Raises:
      UserError: if it cannot be imported; a user's module may raise anything.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UserError(
            f"{name}: cannot be imported ({type(error).__name__}: {error}); {hint}"
        ) from None
