"""Prints what objectives read: the texts of the records, as the training's pipeline draws them."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from experiments.show_view import show_examples
from official_cmlm.records.pairs import NLI_LABELS
from official_cmlm.training.task import SentenceEncoderTask
from tests.binaries import call
from tests.conftest import make_documents
from tests.pairs_helpers import nli_rows, triples
from tests.training.all_objectives import batch_of, with_own_records
from tests.training.helpers import task_config

_SEQUENCE = re.compile(r"  (\w+) \((\d+) tokens(?:, (\d+) predicted)?\): \[CLS\] (.*) \[SEP\]")


def _normalise(text):
    """Spells a text as the tiny vocabulary does: lower case, marks apart."""
    return re.sub(r"([.,!?])", r" \1", text.lower())


def _sequences(lines):
    """Returns name -> (tokens, predicted tokens or None, text) of the lines of an example."""
    matches = [match for line in lines if (match := _SEQUENCE.fullmatch(line))]
    return {m[1]: (int(m[2]), m[3] and int(m[3]), m[4]) for m in matches}


def _skip_pipelines(monkeypatch):
    """Gives a task the batches of `batch_of`, as a pipeline takes seconds to start."""

    def build_inputs(task, _):
        elements = (
            {name: batch_of(task, name, start=start)[name] for name in task.chosen}
            for start in (8, 16)
        )
        return SimpleNamespace(
            as_numpy_iterator=lambda: (tf.nest.map_structure(np.array, each) for each in elements)
        )

    monkeypatch.setattr(SentenceEncoderTask, "check_inputs", lambda *_, **__: None)
    monkeypatch.setattr(SentenceEncoderTask, "build_inputs", build_inputs)


def test_declutr_shows_spans_of_one_document(folders, capsys, monkeypatch):
    """Anchors and positives are slices of a text; masked anchors tell what was there before."""
    _skip_pipelines(monkeypatch)
    override = (
        "{task: {train_data: {seq_length: 16, global_batch_size: 4},"
        " objectives: {declutr: {min_span_length: 6, max_span_length: 16}}}}"
    )
    arguments = [f"--data={folders}/long_documents", f"--params_override={override}", "--number=5"]
    assert call("experiments.show_view", "--experiment=declutr/base", *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert heads == [f"declutr, example {i}" for i in range(1, 6)]
    documents = [
        _normalise(" ".join(document.paragraphs[0] for document in make_documents(6, i)))
        for i in range(30)
    ]
    drawn = set()
    for head in heads:
        begin = lines.index(head) + 1
        parts = _sequences(lines[begin : begin + 8])
        assert list(parts)[:4] == ["anchor_0", "anchor_1", "positive_0_0", "positive_0_1"]
        (source,) = (
            text
            for text in documents
            if all(span in text for n, (_, _, span) in parts.items() if "masked" not in n)
        )
        drawn.add(source)
        for anchor in ("anchor_0", "anchor_1"):
            count, predicted, text = parts[f"{anchor}_masked"]
            assert len(re.findall(r"\{.*?→.*?\}", text)) == predicted
            before = re.sub(r"\{(.*?)→.*?\}", r"\1", text)
            assert (count, None, before) == parts[anchor]
            assert count == len(before.split()) + 2
        assert "{" in parts["anchor_0_masked"][2] + parts["anchor_1_masked"][2]
    assert len(drawn) == 5


def test_every_group_of_objectives_is_shown(folders, monkeypatch):
    """Pairs with labels, vectors and hard negatives, each from its own records.

    The labels come from the pipeline of a training.
    """
    names = ("nli", "bitext_retrieval", "pair_distillation")
    chosen = {name: with_own_records(folders, name) for name in names}
    lines = list(show_examples(task_config(folders / "documents", {"nli": chosen["nli"]}), 9))
    _skip_pipelines(monkeypatch)
    others = {name: chosen[name] for name in names[1:]}
    lines += show_examples(task_config(folders / "documents", others), 9)
    starts = [i for i, line in enumerate(lines) if not line.startswith(" ")]
    examples = {name: [] for name in chosen}
    for start, end in zip(starts, [*starts[1:], None]):
        name, number = lines[start].split(", example ")
        examples[name].append(lines[start + 1 : end])
        assert int(number) == len(examples[name])
    assert {name: len(parts) for name, parts in examples.items()} == dict.fromkeys(chosen, 9)
    # The two texts of an inference may be in different languages.
    rows = [{_normalise(t) for pair in row for t in pair.texts} for row in nli_rows(20)]
    negatives = {_normalise(row[0].texts[0]): row[0].negative for row in triples(40)}
    shown = set()
    for *texts, label in examples["nli"]:
        pair = {text for _, _, text in _sequences(texts).values()}
        (row,) = (i for i, row in enumerate(rows) if pair <= row)
        shown.add((NLI_LABELS[row % 3], label))
    assert shown <= {(label, f"  label: {i}") for i, label in enumerate(NLI_LABELS)}
    assert len(shown) > 1
    for lines in examples["bitext_retrieval"]:
        parts, flag = _sequences(lines), lines[-1]
        negative = negatives[parts["first"][2]]
        assert flag == f"  has_negative: {int(negative is not None)}"
        assert negative is None or parts["negative"][2] == _normalise(negative)
    for lines in examples["pair_distillation"]:
        assert any(line.startswith("  first_vector (6 components): ") for line in lines)


def test_no_generator_is_needed(folders, capsys, monkeypatch):
    """The experiment names a DistilBERT, which fills in tokens in training only."""
    _skip_pipelines(monkeypatch)
    override = "{task: {train_data: {seq_length: 16, global_batch_size: 4, bucket_boundaries: []}}}"
    arguments = [f"--data={folders}/documents", f"--params_override={override}", "--number=1"]
    assert call("experiments.show_view", "--experiment=diff_cse/bert_base", *arguments) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "diff_cse, example 1"
    assert [name for name in _sequences(lines) if "masked" in name] == [
        "first_masked",
        "second_masked",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--experiment=declutr/bas"], "no experiment is called 'declutr/bas'; did you mean decl"),
        (["--experiment=declutr/base"], "task.train_data.input_path is empty"),
        (["--experiment=declutr/base", "--data={}/documents"], "no record gives a Spans example"),
        (["--experiment=nli/cross_lingual", "--data={}/documents"], "documents"),
        (["--experiment=mlm/tiny", "--number=0"], "--number"),
    ],
)
def test_mistakes_are_one_line(folders, capsys, arguments, message):
    assert call("experiments.show_view", *(a.format(folders) for a in arguments)) != 0
    *_, last = capsys.readouterr().err.splitlines()
    assert message in last
