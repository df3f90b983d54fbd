"""Reads pickles of plain data and NumPy's arrays, and of nothing else.

Some publishers ship arrays as pickles. A pickle is dangerous because it may name any function of
any module; here every name is refused but the few that pickled arrays need.
"""

import codecs
import pickle
import warnings
from typing import Any, BinaryIO

import numpy as np

# The names in pickled arrays, by the modules that Python 2's NumPy, NumPy 1 and NumPy 2 have.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


class Refused(ValueError):
    """A pickle that names something else than an array, is damaged, or has another structure."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise Refused(f"the name {f'{module}.{name}'[:60]!r}, which is not admitted")
        return _ADMITTED[module, name]


def read_pickle(file: BinaryIO) -> Any:
    """Reads the object of a pickle; strings of Python 2 become `str`, read as Latin-1."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return _Unpickler(file, encoding="latin1").load()
    except Refused:
        raise
    except Exception as error:
        # A damaged pickle fails in whatever it builds, so the kinds of exceptions are many.
        what = " ".join(str(error).split())[:80]
        raise Refused(f"damaged or truncated ({type(error).__name__}: {what})") from None
