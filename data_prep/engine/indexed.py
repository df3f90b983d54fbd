"""Arrays on disk whose rows are found by a number: a slot's rows are one read, without the rest."""

from pathlib import Path

import numpy as np

from data_prep.engine.atomic import write_array, written


def save(path: Path, rows: np.ndarray, slots: np.ndarray, count: int) -> None:
    """Writes rows by their slots, and where each slot begins.

    Args:
      path: of a `.npy` file; a `.starts.npy` file is beside it.
      rows: [rows], of any type; rows of a slot keep their order.
      slots: [rows], from 0.
      count: how many slots there are.
    """
    order = np.argsort(slots, kind="stable")
    starts = np.searchsorted(slots[order], np.arange(count + 1))
    for name, array in ((path, rows[order]), (_starts_path(path), starts)):
        with written(name) as file:
            write_array(file, array)


def load(path: Path, first: int, stop: int) -> np.ndarray:
    """The rows of the slots from `first` on, up to but without `stop`."""
    starts = np.load(_starts_path(path), "r", allow_pickle=False)
    rows = np.load(path, "r", allow_pickle=False)
    # A copy, so that the file does not stay open.
    return np.array(rows[starts[first] : starts[stop]])


def _starts_path(path: Path) -> Path:
    return path.with_suffix(".starts.npy")
