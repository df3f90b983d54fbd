"""The fuzz command: what it finds, and some hundred cases of every target."""

import os
import random

import pytest

from benchmarks import fuzz
from benchmarks.fuzz_files import FILES, Mutation, mutated
from benchmarks.fuzz_targets import STRINGS, Outcome, Target


class Fragile(Target[str]):
    """Dies of some items, without TensorFlow."""

    name = "fragile"

    def make_case(self, rng):
        # One odd item a case, each of them in turn.
        self.drawn = getattr(self, "drawn", 2) + 1
        return [str(rng.randrange(10, 50)), str(self.drawn)]

    def open(self, folder):
        self.folder = folder

    def run(self, case):
        if "7" in case:
            os.abort()
        if "8" in case:
            raise KeyError("8")
        if "9" in case:
            while True:
                pass
        return Outcome({"passed": len(case)}, [("odd", i) for i, x in enumerate(case) if x == "3"])


def test_what_fails_is_found_and_narrowed(tmp_path):
    """A crash, a hang and an exception cost one item each, and the run goes on."""
    report = fuzz.fuzz(Fragile(), 16, 1, tmp_path, 0.5, 0.0, lambda done: None)
    assert report.tried == 16
    found = {(what.partition(":")[0], *items) for what, items in report.examples}
    assert found == {("crash", "7"), ("hang", "9"), ("exception", "8"), ("odd", "3")}
    assert sum(report.faults.values()) == 4


def test_narrow():
    assert fuzz.narrow(list(range(100)), lambda part: 37 in part) == [37]
    assert fuzz.narrow([1, 2], lambda part: len(part) == 2) == [1, 2]


@pytest.mark.parametrize("target", FILES, ids=lambda target: target.name)
def test_mutated_files(target, tmp_path):
    """Forty files of each reader; the unchanged ones are read."""
    target.open(tmp_path)
    outcome = target.run(target.make_case(random.Random(5)))
    assert not outcome.faults and outcome.counts["refused"] > 0
    unchanged = [Mutation(name, (tmp_path / "valid" / name).read_bytes()) for name in target.files]
    outcome = target.run([each.packed() for each in unchanged])
    assert outcome.counts == {"read": len(target.files), "refused": 0}


def test_mutations_are_drawn_by_the_seed():
    content = b'{"a": [1, {"b": "c"}], "d": 2.5}'
    drawn = [mutated(content, random.Random(seed)) for seed in range(200)]
    assert drawn == [mutated(content, random.Random(seed)) for seed in range(200)]
    assert len(set(drawn)) > 150 and sum(each != content for each in drawn) > 180


@pytest.mark.long
@pytest.mark.parametrize("target", STRINGS, ids=lambda target: target.name)
def test_random_strings(target, tmp_path):
    target.open(tmp_path)
    outcome = target.run(target.make_case(random.Random(2)))
    assert not outcome.faults and sum(outcome.counts.values()) > 0
