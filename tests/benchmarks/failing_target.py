"""A target that fails as its items say; it is opened in processes of their own."""

import os
import random
from pathlib import Path

from benchmarks.fuzz_targets import Outcome, Target


class Failing(Target[str]):
    """Cases of eight letters, or always the same letters; some of them are faults."""

    name = "failing"

    def __init__(self, letters: str, fixed: bool = False) -> None:
        self._letters, self._fixed = letters, fixed

    def make_case(self, rng: random.Random) -> list[str]:
        return list(self._letters) if self._fixed else rng.choices(self._letters, k=8)

    def open(self, folder: Path) -> None:
        (folder / "opened").open("a").write("1")

    def run(self, case: list[str]) -> Outcome:
        if "C" in case:
            os.abort()
        while "H" in case:
            pass
        if "E" in case:
            raise KeyError("E")
        wrong = [("wrong", index) for index, item in enumerate(case) if item == "W"]
        return Outcome({"letters": len(case)}, wrong, {"largest": float(ord(max(case)))})
