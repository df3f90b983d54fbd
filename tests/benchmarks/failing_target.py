"""A target that fails as its items say; it is opened in processes of their own."""

import os
import random
from pathlib import Path

from benchmarks.fuzz_targets import Outcome, Target


class Failing(Target):
    """Cases of eight letters, some of which are faults."""

    name = "failing"

    def __init__(self, letters: str) -> None:
        self._letters = letters

    def make_case(self, rng: random.Random) -> list[str]:
        return rng.choices(self._letters, k=8)

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
        return Outcome({"letters": len(case)}, wrong)
