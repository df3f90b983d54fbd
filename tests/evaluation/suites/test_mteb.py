"""The adapter for mteb, called as both of its major versions do, and a stand-in for the package."""

import enum
import json
import pathlib
import sys
import types

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoder import OpenedEncoder, prompted
from official_cmlm.evaluation.report import driver
from official_cmlm.evaluation.suites import mteb
from official_cmlm.evaluation.suites.mteb import MtebEncoder, Options
from tests.evaluation import toy


def _encode(texts):
    return np.array([[len(t), t.count("a")] for t in texts], np.float32)


def _run(tmp_path, encode=_encode, **options):
    return toy.run(mteb, encode, tmp_path, **options)


KNOWN = ("One", "Plain", "Several", "Splits", "Offline", "Empty")


def _get_tasks(tasks):
    unknown = [name for name in tasks if name not in KNOWN]
    if unknown:
        raise KeyError(f"KeyError: '{unknown[0]}'\nDid you mean One?")
    return [types.SimpleNamespace(name=name) for name in tasks]


def _scores(name):
    if name == "Offline":
        raise ConnectionError("no network")
    row = {"main_score": 0.5, "hf_subset": "de", "other": 3}
    found = {
        "One": {"test": [row]},
        "Plain": {"dev": [{"main_score": 1}], "test": [{"main_score": 0}]},
        "Several": {"test": [row, {"main_score": 0.7, "hf_subset": "fr"}]},
        "Splits": {"dev": [row], "test": [row | {"main_score": 0.9}]},
        "Empty": {},
    }[name]
    content = {"task_name": name, "scores": found, "time": float("nan"), "date": pathlib.Path("x")}
    return types.SimpleNamespace(scores=found, to_dict=lambda: content)


@pytest.fixture
def mteb2(monkeypatch):
    """A module that calls encoders as mteb 2 does, and remembers how it was called."""
    module, meta = types.ModuleType("mteb"), types.ModuleType("mteb.models.model_meta")

    class ModelMeta:
        @classmethod
        def create_empty(cls):
            return cls()

        def model_copy(self, update):
            return update

    def run(model, tasks, cache="default"):
        assert set(model.mteb_model_meta) == {"name", "revision", "max_tokens"} and cache is None
        batches = [{"text": ["a", "bb"]}, {"text": ["ccc"]}]
        about = {"task_metadata": types.SimpleNamespace(name=tasks[0].name, type="STS")}
        model.encode(batches, hf_split="test", hf_subset="de", prompt_type=None, **about)
        results = [_scores(task.name) for task in tasks]
        return types.SimpleNamespace(task_results=results)

    meta.ModelMeta = ModelMeta
    module.get_tasks, module.evaluate = _get_tasks, run
    monkeypatch.setitem(sys.modules, "mteb", module)
    monkeypatch.setitem(sys.modules, "mteb.models", types.ModuleType("mteb.models"))
    monkeypatch.setitem(sys.modules, "mteb.models.model_meta", meta)


@pytest.fixture
def mteb1(monkeypatch):
    """A module that calls encoders as mteb 1 does."""
    module = types.ModuleType("mteb")

    class MTEB:
        def __init__(self, tasks):
            self.tasks = tasks

        def run(self, model, output_folder="results"):
            # mteb 1 reads the attribute's fields wherever there is one.
            assert not hasattr(model, "mteb_model_meta") and output_folder is None
            model.encode(["a", "bb"], task_name="x", prompt_type=None, batch_size=2)
            return [_scores(task.name) for task in self.tasks]

    module.get_tasks, module.MTEB = _get_tasks, MTEB
    monkeypatch.setitem(sys.modules, "mteb", module)


def test_texts_and_batches():
    """Strings, batches of a data loader, arrays of strings and a generator give the same rows.

    An empty list keeps the width; images are refused.
    """
    wanted = _encode(["a", "bb", "aca"])
    adapter = MtebEncoder(_encode)
    for inputs in (
        ["a", "bb", "aca"],
        [{"text": ["a", "bb"]}, {"text": ["aca"]}],
        ({"text": np.array([text])} for text in ("a", "bb", "aca")),
        [{"text": "a"}, {"text": "bb"}, {"text": "aca"}],
    ):
        assert np.array_equal(adapter.encode(inputs, batch_size=1), wanted)
    assert adapter.encoded == 12
    assert MtebEncoder(CachedEncoder(_encode)).encode([]).shape == (0, 2)
    with pytest.raises(UserError, match="other than text"):
        adapter.encode([{"image": [1]}])


class _PromptType(enum.StrEnum):
    """As mteb 2 has it."""

    query = "query"
    document = "document"


@pytest.mark.parametrize(
    ("roles", "task", "kind", "used"),
    [
        ("query document", "NQ Retrieval", "query", "query"),
        ("query document", "NQ Retrieval", "document", "document"),
        ("query passage", "NQ Retrieval", "document", "passage"),
        ("query document STS", "STS12 STS", None, "STS"),
        ("query Retrieval", "NQ Retrieval", "query", "Retrieval"),
        ("Retrieval-query Retrieval", "NQ Retrieval", "query", "Retrieval-query"),
        ("NQ Retrieval-query", "NQ Retrieval", "query", "NQ"),
        ("NQ-query NQ", "NQ Retrieval", "query", "NQ-query"),
        ("NQ-query", "NQ Retrieval", "document", None),
        ("query document", "STS12 STS", None, None),
        ("", "NQ Retrieval", "query", None),
    ],
)
def test_prompts_are_chosen_as_mteb_chooses(roles, task, kind, used):
    """The task's before those of its type, both before queries' and documents'."""
    encode = CachedEncoder(_encode, roles={name: prompted(_encode, name) for name in roles.split()})
    name, of = task.split()
    metadata = types.SimpleNamespace(name=name, type=of)
    adapter = MtebEncoder(encode)
    found = adapter.encode(
        [{"text": ["abc"]}],
        task_metadata=metadata,
        hf_split="test",
        hf_subset="default",
        prompt_type=kind and _PromptType(kind),
        batch_size=32,
    )
    assert found[0][0] == 3 + len(used or "") and list(adapter.used) == [used] * bool(used)


def test_prompts_in_version_1():
    """The task's name and a prompt type that may be called `passage`."""
    roles = {"document": prompted(_encode, "1234: "), "NQ": prompted(_encode, "1")}
    adapter = MtebEncoder(CachedEncoder(_encode, roles=roles))
    passage = types.SimpleNamespace(value="passage")
    assert adapter.encode(["a"], task_name="SciFact", prompt_type=passage)[0][0] == 7
    assert adapter.encode(["a"], task_name="NQ", prompt_type=passage)[0][0] == 2


def test_similarities():
    """Cosines by hand, of matrices and of single vectors; a zero vector is like nothing."""
    adapter = MtebEncoder(_encode)
    first, second = np.array([[1.0, 0], [0, 0]]), np.array([[2.0, 0], [1, 1]])
    assert adapter.similarity(first, second) == pytest.approx(np.array([[1, 0.5**0.5], [0, 0]]))
    assert adapter.similarity_pairwise(first, second) == pytest.approx([1, 0])
    assert adapter.similarity(first[0], second[1]).shape == (1, 1)
    assert np.array_equal(second, [[2, 0], [1, 1]])


def test_version_2(tmp_path, mteb2):
    """Main scores times 100, subsets apart, and their mean; no result cache is used.

    A result without a subset has the default one.
    """
    report = _run(tmp_path, tasks=["One", "Several", "Splits", "Plain"])
    assert not report.failures
    assert {score.task: score.value for score in report.scores} == {
        "One": 50.0,
        "Several": pytest.approx(60.0),
        "Several.de": 50.0,
        "Several.fr": 70.0,
        "Splits": pytest.approx(70.0),
        "Splits.dev.de": 50.0,
        "Splits.test.de": 90.0,
        "Plain": 50.0,
        "Plain.dev.default": 100.0,
        "Plain.test.default": 0.0,
    }
    assert {(score.metric, score.count) for score in report.scores} == {("main_score", 3)}


def test_results_are_written_as_mteb_writes_them(tmp_path, mteb2):
    """A file a task, with the description of the encoder, in a folder of its name and version."""
    encoder = OpenedEncoder("org/model", "python", "0" * 16, _encode, max_seq_length=9)
    options = {"mteb": Options(tasks=["One"])}
    driver.run(encoder, "", "toy", tmp_path, tmp_path / "out", options)
    folder = tmp_path / "out/mteb/org__model" / ("0" * 16)
    assert json.loads((folder / "One.json").read_text()) == {
        "task_name": "One",
        "scores": {"test": [{"main_score": 0.5, "hf_subset": "de", "other": 3}]},
        "time": None,
        "date": "x",
    }
    about = {"name": "org/model", "revision": "0" * 16, "max_tokens": 9}
    assert json.loads((folder / "model_meta.json").read_text()) == about


def test_prompts_that_were_used_are_told(tmp_path, mteb2):
    """One line for each task; none for an encoder without prompts."""
    encode = CachedEncoder(_encode, roles={"STS": prompted(_encode, "same: ")})
    (note,) = _run(tmp_path, encode, tasks=["One"]).notes
    assert note.startswith("One: STS texts: ") and "'same: '" in note
    assert _run(tmp_path, tasks=["One"]).notes == []


def test_version_1(tmp_path, mteb1):
    """The same through the class `MTEB`, which writes no folder."""
    report = _run(tmp_path, tasks=["One", "One"])
    assert [(s.task, s.value, s.count) for s in report.scores] == [("One", 50.0, 2)]


def test_failures_do_not_stop_others(tmp_path, mteb2):
    """An unknown task, no network, no score: one line each."""
    report = _run(tmp_path, tasks=["Wrong", "Offline", "Empty", "One"])
    assert [score.task for score in report.scores] == ["One"]
    wrong, offline, empty = report.failures
    assert "no such task" in wrong and "\n" not in wrong
    assert "no network" in offline and "no score" in empty


def test_not_installed(tmp_path, monkeypatch):
    """The error says how to install it."""
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(UserError, match="pip install mteb"):
        _run(tmp_path, tasks=["One"])
