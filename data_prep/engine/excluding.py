"""The sentences that may not be trained on, between the run and its workers."""

import json
from pathlib import Path

import numpy as np

from data_prep.engine.atomic import write_array, written
from data_prep.stages.exclusion import Exclusion

# Not `.json`, as the results of phases are named.
_KEYS, _FAULTS = "exclusion.npy", "exclusion.faults"


def save(exclusion: Exclusion, work: Path) -> None:
    """Writes what `load` and `faults` read."""
    with written(work / _KEYS) as file:
        write_array(file, exclusion.keys)
    with written(work / _FAULTS) as file:
        file.write(json.dumps(exclusion.faults).encode())


def load(work: Path) -> Exclusion:
    """The exclusion, without its faults."""
    return Exclusion(np.load(work / _KEYS, allow_pickle=False))


def faults(work: Path) -> list[str]:
    """Of each evaluation file that could not be read to its end, what was wrong."""
    path = work / _FAULTS
    return json.loads(path.read_bytes()) if path.exists() else []
