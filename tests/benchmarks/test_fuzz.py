"""The fuzz command: what fails is seen, counted and narrowed; the project's own targets do not."""

import json
import random

import pytest
from absl import flags

from benchmarks import fuzz
from benchmarks.fuzz_files import FILES, Mutation, mutated
from benchmarks.fuzz_targets import Strings
from tests.benchmarks.failing_target import Failing


def _report(letters, tmp_path, count=40, limit=5.0):
    return fuzz.fuzz(Failing(letters), count, 1, tmp_path, limit, 0, lambda items: None)


def test_counts_and_faults_of_single_items(tmp_path):
    """Sums, maxima, and each wrong item; the last case is cut to the number that is asked for."""
    report = _report("abW", tmp_path, count=41)
    assert report.tried == report.counts["letters"] == 41
    assert report.largest == {"largest": ord("b")}
    assert report.faults["wrong"] == len(report.examples) > 3
    assert set(map(str, report.examples)) == {"('wrong', ['W'])"}
    assert (tmp_path / "opened").read_text() == "1"


@pytest.mark.parametrize(
    ("letter", "what", "limit"), [("C", "crash", 5.0), ("H", "hang", 1.0), ("E", "exception", 5.0)]
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
    target = Strings("wordpiece")
    first, again, other = (target.make_case(random.Random(seed)) for seed in ("a", "a", "b"))
    assert first == again != other
    assert {type(item) for item in first} == {str, bytes}
    assert any("\ud800" <= letter <= "\udfff" for item in first for letter in str(item))


def test_results_and_faults_are_written(tmp_path, monkeypatch, capsys):
    """The file of results has a row for each target; bytes and surrogates survive in the other."""
    targets = [Failing("aW", fixed=True)]
    monkeypatch.setitem(fuzz.TARGETS, "strings", ("Random strings", targets))
    own = flags.FlagValues()
    monkeypatch.setattr(fuzz, "FLAGS", own)
    monkeypatch.setattr(flags, "FLAGS", own)
    for name, value in {"strings": 10, "files": 0, "seed": 3}.items():
        flags.DEFINE_integer(name, value, "", flag_values=own)
    for name, value in {"seconds": 0.0, "limit": 5.0}.items():
        flags.DEFINE_float(name, value, "", flag_values=own)
    flags.DEFINE_string("output", str(tmp_path / "fuzz.md"), "", flag_values=own)
    own.mark_as_parsed()
    assert fuzz.main(["fuzz"]) == 1
    text = (tmp_path / "fuzz.md").read_text()
    assert "| failing | 10 | 0 | 0 | 0 | 5 |" in text and "--seed=3 --strings=10" in text
    assert "figure failing_faults 5" in capsys.readouterr().out
    faults = json.loads((tmp_path / "fuzz.faults.json").read_text())
    assert faults[0] == {"target": "failing", "what": "wrong", "items": [{"text": "W"}]}
    assert fuzz._written(b"\xff") == {"bytes": "ff"}
    assert json.loads(json.dumps(fuzz._written("\ud800"))) == {"text": "\ud800"}


def test_some_hundred_strings(exported):
    """Through `encode`, the serving model and the preprocess module, in this process."""
    target = Strings("wordpiece")
    target.open(exported[0].parent)
    case = target.make_case(random.Random("x"))
    assert len(case) > 500
    outcome = target.run([*case, "", "a cat", b"a cat", b"\xed\xa0\x80", "\ud800"])
    assert outcome.faults == []
    assert outcome.counts["through serving and preprocess"] == len(case) + 5
    assert outcome.largest["largest difference"] < 1e-4


def test_differences_and_vectors_that_are_not_finite_are_seen(exported, monkeypatch):
    """Of an encoder that differs from what was exported."""
    target = Strings("wordpiece")
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
