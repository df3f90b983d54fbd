"""The fuzz command: what fails is seen, counted and narrowed; the project's own targets do not."""

import random

import pytest

from benchmarks import fuzz
from benchmarks.fuzz_targets import TARGETS, Files, Strings, mutated
from tests.benchmarks.failing_target import Failing


def _report(letters, tmp_path, count=40, limit=5.0):
    return fuzz.fuzz(Failing(letters), count, 1, tmp_path, limit, lambda items: None)


def test_counts_and_faults_of_single_items(tmp_path):
    """Sums, and each wrong item; the last case is cut to the number that is asked for."""
    report = _report("abW", tmp_path, count=41)
    assert report.tried == report.counts["letters"] == 41
    assert report.faults["wrong"] == len(report.examples) > 3
    assert set(map(str, report.examples)) == {"('wrong', ['W'])"}
    assert (tmp_path / "opened").read_text() == "1"


@pytest.mark.parametrize(
    ("letter", "what", "limit"),
    [
        pytest.param("C", "crash", 5.0, marks=pytest.mark.long),
        pytest.param("H", "hang", 1.0, marks=pytest.mark.long),
        ("E", "exception", 5.0),
    ],
)
def test_what_fails_as_a_whole_is_narrowed(tmp_path, letter, what, limit):
    """The process is started again, and the other items are tried."""
    report = _report("a" * 12 + letter, tmp_path, limit=limit)
    assert report.tried == 40 and report.counts["letters"] == 40 - 8 * report.faults[what]
    assert list(report.faults) == [what] and report.faults[what] > 0
    assert all(told.startswith(what) and items == [letter] for told, items in report.examples)
    starts = len((tmp_path / "opened").read_text())
    assert starts == 1 if what == "exception" else starts > 1


def test_items_that_fail_together_only_are_all_kept():
    assert fuzz.narrow([1, 2, 3, 4], lambda items: {1, 4} <= set(items)) == [1, 2, 3, 4]
    assert fuzz.narrow([1, 2, 3, 4], lambda items: {1, 2} <= set(items)) == [1, 2]
    assert fuzz.narrow([1, 2, 3, 4, 5], lambda items: 5 in items) == [5]


def test_the_same_seed_draws_the_same_items():
    target = Strings()
    first, again, other = (target.make_case(random.Random(seed)) for seed in ("a", "a", "b"))
    assert first == again != other
    assert {type(item) for item in first} == {str, bytes}
    assert any("\ud800" <= letter <= "\udfff" for item in first for letter in str(item))


def test_the_table_counts_faults_by_kind(tmp_path):
    report = _report("aW", tmp_path)
    row = fuzz.table([report]).splitlines()[-1]
    assert row.startswith(f"| failing | 40 | 0 | 0 | 0 | {report.faults['wrong']} |")
    assert row.endswith("| 40 letters |")


@pytest.mark.long
def test_some_hundred_strings(exported):
    """Through `encode`, the serving model and the preprocess module, in this process."""
    target = Strings()
    target.open(exported[0].parent)
    case = target.make_case(random.Random("x"))
    assert len(case) > 500
    outcome = target.run([*case, "", "a cat", b"a cat", b"\xed\xa0\x80", "\ud800"])
    assert outcome.faults == []
    assert outcome.counts["through serving and preprocess"] == len(case) + 5


@pytest.mark.long
def test_differences_and_vectors_that_are_not_finite_are_seen(exported, monkeypatch):
    """The encoder differs from the exported one."""
    target = Strings()
    target.open(exported[0].parent)
    encode = target._encoder.encode
    changed = {"dog": float("nan"), "cat": 0.001}

    def other(texts):
        vectors = encode(texts)
        for row, text in enumerate(texts):
            vectors[row] += changed.get(text, 0)
        return vectors

    monkeypatch.setattr(target._encoder, "encode", other)
    faults = target.run([b"cat", "cat", "a", "dog"]).faults
    assert faults == [("not finite (encode)", 3), ("encode and serving differ", 1)]


@pytest.mark.parametrize(
    "target", [t for t in TARGETS if isinstance(t, Files)], ids=lambda target: target.name
)
def test_mutated_files(target, tmp_path):
    """Forty files of each reader; the unchanged ones are read."""
    target.open(tmp_path)
    outcome = target.run(target.make_case(random.Random(5)))
    assert not outcome.faults and outcome.counts["refused"] > 0
    unchanged = [(name, (tmp_path / "valid" / name).read_bytes()) for name in target.files]
    assert target.run(unchanged).counts == {"read": len(target.files), "refused": 0}


def test_mutations_are_drawn_by_the_seed():
    content = b'{"a": [1, {"b": "c"}], "d": 2.5}'
    drawn = [mutated(content, random.Random(seed)) for seed in range(200)]
    assert drawn == [mutated(content, random.Random(seed)) for seed in range(200)]
    assert len(set(drawn)) > 150 and sum(each != content for each in drawn) > 180
