"""`cmlm adapt`: from an encoder and text or a table to an encoder directory."""

import csv
import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tf_keras

from experiments.adapt import Adaptation, average, choose_roles, count_steps, hold_out, report
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.encoder_weights import read_weights
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.classifier import Classifier
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.records.manifest import load_manifest
from tests.binaries import call
from tests.conftest import WORDS, write_encoder
from tests.pairs_helpers import PROMPTS, write_prompted_encoder

# The batch is that of the recipe, or all pairs where these are fewer.
TINY = "trainer.train_steps=2,trainer.steps_per_loop=1,task.train_data.seq_length=24"


def _sentence(rng, count=8):
    return " ".join(rng.choice(WORDS, count)).capitalize() + "."


def _write_table(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def _run(**values):
    return call("experiments.adapt", *(f"--{name}={value}" for name, value in values.items()))


def test_mean_of_two_encoders_has_the_mean_projection(tmp_path, vocabulary):
    settings = {"sentence_vector": "projected_mean", "num_projections": 3}
    folders = [write_encoder(tmp_path / name, vocabulary, **settings) for name in ("a", "b")]
    average(*folders, 0.25, tmp_path / "mean")
    start, trained, mean = (
        read_weights(EncoderDirectory.open(path)).projection
        for path in (*folders, tmp_path / "mean")
    )
    assert len(mean) == len(start) > 0
    for triple in zip(start, trained, mean, strict=True):
        for old, new, array in zip(*triple, strict=True):
            np.testing.assert_allclose(array, 0.25 * old + 0.75 * new, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["text", "table"])
def test_an_encoder_is_trained_further(kind, tmp_path, vocabulary, capsys):
    """Its vectors change, its length and normalisation do not; a second run does nothing."""
    start = write_encoder(tmp_path / "start", vocabulary, pooling="max", normalize=True)
    rng = np.random.default_rng(0)
    values = {"model": start, "output_dir": tmp_path / "out", "params_override": TINY}
    if kind == "text":
        text = "\n\n".join(f"{_sentence(rng)} {_sentence(rng)}" for _ in range(30))
        (tmp_path / "text.txt").write_text(text)
        values["input"] = tmp_path / "text.txt"
        values["params_override"] += ",task.objectives.pair_distillation=null"
        values["params_override"] += ",task.objectives.bitext_retrieval.hard_negatives=false"
        values["params_override"] += ",trainer.train_epochs=1"
    else:
        rows = [[_sentence(rng), _sentence(rng)] for _ in range(600)]
        table = _write_table(tmp_path / "pairs.csv", ["question", "answer"], rows)
        values |= {"input": table, "columns": "question,answer"}
    assert _run(**values) == 0
    # One pair of twenty is held out where that is enough to compare.
    assert ("held-out ones: " in capsys.readouterr().out) == (kind == "table")
    before, after = (SentenceEncoder.load(path) for path in (start, tmp_path / "out"))
    assert after.max_seq_length == before.max_seq_length
    texts = ["the cat sat", "a bird"]
    vectors = after.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert np.abs(vectors - before.encode(texts)).max() > 1e-6
    # Hard negatives were found, and the texts kept near the vectors before, unless told otherwise.
    taught = tmp_path / "out.work" / "taught"
    assert taught.exists() == (kind == "table")
    manifest = load_manifest(taught if taught.exists() else tmp_path / "out.work" / "records")
    assert manifest.vector_size == (before.dimension if kind == "table" else 0)
    assert bool(manifest.negatives) == (kind == "table")
    # As many pairs were drawn from the table as two steps read.
    assert manifest.records <= 2 * 128
    state = (tmp_path / "out.work" / "training" / "checkpoint").stat().st_mtime_ns
    assert _run(**values) == 0
    assert (tmp_path / "out.work" / "training" / "checkpoint").stat().st_mtime_ns == state
    # The vectors of the mean lie between the two others.
    assert _run(**values, keep=1.0) == 0
    unchanged = SentenceEncoder.load(tmp_path / "out").encode(texts)
    np.testing.assert_allclose(unchanged, before.encode(texts), atol=1e-6)
    assert _run(**values, keep=0.0) == 0
    trained = SentenceEncoder.load(tmp_path / "out.work" / "training").encode(texts)
    alone = SentenceEncoder.load(tmp_path / "out").encode(texts)
    np.testing.assert_allclose(alone, trained, atol=1e-6)
    assert np.abs(vectors - alone).max() > 1e-7


def test_encoders_before_and_after_are_compared_on_held_out_pairs(tmp_path, vocabulary, capsys):
    start = write_encoder(tmp_path / "start", vocabulary, normalize=True)
    rng = np.random.default_rng(0)
    report(start, start, [[_sentence(rng), _sentence(rng)] for _ in range(20)])
    lines = capsys.readouterr().out.splitlines()
    assert re.search(r"^after − before +\+0\.00 \[\+0\.00, \+0\.00\]", "\n".join(lines), re.M)
    assert re.search(r"first among 20 held-out ones: (.*) before, \1 after", lines[-1])


@pytest.mark.long
def test_an_encoder_with_prompts_is_trained_and_compared_with_them(tmp_path, vocabulary, capsys):
    """Records, negatives, vectors before and held-out pairs have them; the result keeps them."""
    start = write_prompted_encoder(tmp_path / "start", vocabulary, normalize=True)
    rng = np.random.default_rng(0)
    rows = [[text := _sentence(rng, 6), f"{text[:-6]} {_sentence(rng, 2)}"] for _ in range(600)]
    table = _write_table(tmp_path / "pairs.csv", ["question", "answer"], rows)
    values = {"model": start, "input": table, "columns": "question,answer"}
    assert _run(**values, output_dir=tmp_path / "out", params_override=TINY) == 0
    work, before = tmp_path / "out.work", SentenceEncoder.load(start)
    manifest = load_manifest(work / "taught")
    assert (manifest.roles, manifest.prompts) == (["query", "document"], [*PROMPTS.values()])
    mined = [json.loads(line) for line in (work / "triples.jsonl").read_text().splitlines()]
    # Negatives are the 6th to 30th nearest texts of the encoder with its prompts.
    answers = list(dict.fromkeys(row["positive"] for row in mined))
    scores = before.encode_query([row["anchor"] for row in mined])
    scores = scores @ before.encode_document(answers).T
    for row, own in zip(mined, scores, strict=True):
        nearness = own[answers.index(row["negative"])]
        own[answers.index(row["positive"])] = -1
        assert (own > nearness - 1e-6).sum() > 5 and (own > nearness + 1e-6).sum() < 30
    for folder in (tmp_path / "out", work / "training"):
        assert dict(EncoderDirectory.open(folder).settings.prompts) == PROMPTS
    first, second = map(list, zip(*hold_out(str(table), ["question", "answer"], tmp_path)[1]))
    shares = []
    for encoder in (before, SentenceEncoder.load(tmp_path / "out")):
        scores = encoder.encode_query(first) @ encoder.encode_document(second).T
        shares.append(f"{100 * np.mean(scores.argmax(axis=1) == np.arange(len(first))):.1f} %")
    printed = capsys.readouterr().out.splitlines()[-2]
    assert printed.endswith("held-out ones: {} before, {} after".format(*shares))


@pytest.mark.parametrize(
    ("options", "default", "roles"),
    [
        ({}, "query", ["query", "document"]),
        ({"roles": ("query", "query")}, None, ["query", "query"]),
        # Scores compare texts of one kind, which have the prompt that `encode` puts before them.
        ({"score_column": "c"}, None, []),
        ({"score_column": "c"}, "passage", ["passage", "passage"]),
        ({"score_column": "c", "roles": ("query", "query")}, None, ["query", "query"]),
    ],
)
def test_roles_are_those_of_retrieval_unless_told_otherwise(
    options, default, roles, tmp_path, vocabulary
):
    start = write_prompted_encoder(tmp_path / "start", vocabulary, default)
    options = Adaptation("t.csv", "out", ("a", "b"), **options)
    encoder = SentenceEncoder.load(start)
    prompts = tuple(map(encoder.find_prompt, roles)) or ("", "")
    assert choose_roles(start, options, 24) == (roles, prompts)


def test_an_encoder_that_no_run_has_made_stays(tmp_path, vocabulary, capsys):
    other = write_encoder(tmp_path / "out", vocabulary)
    (tmp_path / "text.txt").write_text("Some text.")
    values = {"model": "mini-en", "input": tmp_path / "text.txt", "output_dir": other}
    assert _run(**values) == 1
    assert "out: exists; name another --output_dir" in capsys.readouterr().err
    assert not (tmp_path / "out.work").exists()


def test_a_classifier_of_an_earlier_run_stays(tmp_path, vocabulary, capsys):
    """A run on pairs refuses the folder of a run with labels before its stages."""
    other = write_encoder(tmp_path / "out", vocabulary)
    (other / "classifier.npy").write_bytes(b"")
    (tmp_path / "out.work").mkdir()
    (tmp_path / "out.work" / "plan.json").write_text('{"format": "adapt 1"}')
    (tmp_path / "text.txt").write_text("Some text.")
    assert _run(model="mini-en", input=tmp_path / "text.txt", output_dir=other) == 1
    assert "out: holds classifier.npy, which this program has not" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out.work").iterdir()] == ["plan.json"]


def test_a_table_needs_its_columns_named(tmp_path, capsys):
    table = _write_table(tmp_path / "pairs.csv", ["a", "b"], [["x", "y"]])
    assert _run(model="mini-en", input=table, output_dir=tmp_path / "out") == 1
    assert "pairs.csv: a table; name its columns" in capsys.readouterr().err


def test_held_out_rows_are_not_trained_on(tmp_path):
    """Rows with an empty cell make no pair; of few rows none is held out."""
    rows = [[f"text {i}", f"other {i}"] for i in range(1000)]
    table = _write_table(tmp_path / "pairs.csv", ["a", "b"], [*rows, ["text", " "]])
    trained, held_out = _hold_out(table)
    assert 20 <= len(held_out) < 100 and sorted(trained + held_out) == sorted(rows)
    few = _write_table(tmp_path / "few.csv", ["a", "b"], rows[:100])
    assert sorted(_hold_out(few)[0]) == sorted(rows[:100])


def test_labels_may_be_whole_numbers_and_scores_any(tmp_path):
    """A missing label of Parquet is a number too, and no class."""
    table = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": ["x", "y"], "b": [1.5, 4.0], "c": [1, 2]}), table)
    file, _ = hold_out(table, ["a", "b"], tmp_path, score_range=(0, 5))
    assert [json.loads(line)["b"] for line in file.read_text().splitlines()] == ["1.5", "4.0"]
    file, _ = hold_out(table, ["a", "c"], tmp_path)
    assert [json.loads(line)["c"] for line in file.read_text().splitlines()] == ["1", "2"]
    pq.write_table(pa.table({"a": ["x", "y"], "b": [1.0, float("nan")]}), table)
    with pytest.raises(UserError, match='"b" is not of the right type; make it a string'):
        hold_out(table, ["a", "b"], tmp_path)


def test_as_many_rows_are_drawn_as_the_training_reads(tmp_path):
    """Rows from everywhere, in their order; the same ones in a second call."""
    rows = [[f"text {i}", "other"] for i in range(1000)]
    table = _write_table(tmp_path / "pairs.csv", ["a", "b"], rows)
    drawn, held_out = _hold_out(table, 100)
    places = [rows.index(row) for row in drawn]
    assert len(set(places)) == 100 and places == sorted(places)
    assert 300 < np.mean(places) < 700 and len(held_out) >= 20
    assert _hold_out(table, 100) == (drawn, held_out)
    # The rows that would be held out are too few for that, and too many for the training.
    few = _write_table(tmp_path / "few.csv", ["a", "b"], rows[:300])
    assert len(_hold_out(few, 100)[0]) == 100
    # A stage that reads another number has another command, so that it runs again.
    assert len({hold_out(str(table), ["a", "b"], tmp_path, most)[0] for most in (10, 100)}) == 2


def _hold_out(table, most=None):
    """Returns the rows to train on and those held out."""
    path, held_out = hold_out(str(table), ["a", "b"], table.parent, most)
    return [list(json.loads(line).values()) for line in path.read_text().splitlines()], held_out


def test_the_expected_time_is_that_of_ten_steps(monkeypatch, capsys):
    """The first two steps compile."""
    clock = SimpleNamespace(monotonic=itertools.count(step=30).__next__)
    monkeypatch.setattr("experiments.adapt.time", clock)
    count = count_steps(100)
    for done in range(1, 101):
        count(1)
        assert ("100 steps, which take about 5 minutes" in capsys.readouterr().err) == (done == 12)


@pytest.mark.long
def test_labels_train_an_encoder_with_its_classifier(tmp_path, vocabulary, capsys):
    """The folder is a classifier with the labels' names; it is not overwritten."""
    # Some random encoders hardly tell the words apart.
    tf_keras.utils.set_random_seed(0)
    start = write_encoder(tmp_path / "start", vocabulary, normalize=True)
    rng = np.random.default_rng(0)
    rows = [
        [f"the {rng.choice(WORDS)} {word}", word] for word in ["sat", "ran"] for _ in range(400)
    ]
    values = {
        "model": start,
        "input": _write_table(tmp_path / "labels.csv", ["body", "topic"], rows),
        "columns": "body",
        "label_column": "topic",
        "output_dir": tmp_path / "out",
    }
    assert _run(**values) == 0
    printed, said = capsys.readouterr()
    scores = json.loads((tmp_path / "out" / "classifier_scores.json").read_text())
    assert "800 rows with a text and a label: 7" in said and "; 2 labels: " in said
    assert f"{scores['held-out texts']} held out" in said and " steps, which take about" in said
    assert f"{scores['held-out texts']} held-out texts: {scores['before training']}" in printed
    assert f"{scores['right']} after" in printed
    classifier = Classifier.load(tmp_path / "out")
    right = [classifier.predict_names([text])[0] == label for text, label in rows[::20]]
    assert np.mean(right) > 0.8
    assert _run(**values) == 1
    assert "exists; name another --output_dir" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"columns": "title"}, "--columns=title: name two, as in title,body"),
        (
            {"columns": "a,b", "label_column": "c"},
            "--columns=a,b: name two, as in title,body, or one with --label_column",
        ),
        (
            {"columns": "a", "label_column": "a"},
            "--columns=a: name two, as in title,body, or one with --label_column",
        ),
        (
            {"input": "labels.csv", "columns": "a", "label_column": "b"},
            "labels.csv: all texts have the label 'x'; give two or more",
        ),
        (
            {"input": "empty.csv", "columns": "a,b"},
            "error: empty.csv: no row has a text in a and b",
        ),
        (
            {"input": "labels.csv", "columns": "a,c"},
            "labels.csv: no column 'c', it has a, b",
        ),
        ({"roles": "query,answer"}, "--roles=query,answer: name two, as in query,document"),
        (
            {"columns": "a", "label_column": "b", "roles": "query,query"},
            "--roles: is for pairs; leave it out with --label_column",
        ),
        (
            {"params_override": "task.train_data.seq_length=5"},
            "its prompt has 3 tokens, more than half of the 5 that the training reads",
        ),
        ({"model": "nowhere"}, "nowhere: no folder, encoder that ships"),
        ({"input": "none.txt"}, "none.txt: no such file"),
        ({"params_override": "trainer.steps=1"}, "unknown key trainer.steps"),
    ],
)
def test_mistakes_are_one_line(values, message, tmp_path, vocabulary, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_prompted_encoder(tmp_path / "start", vocabulary)
    (tmp_path / "text.txt").write_text("Some text.")
    _write_table(tmp_path / "labels.csv", "ab", [["Some text.", "x"]])
    _write_table(tmp_path / "empty.csv", "ab", [])
    flags = {"model": "start", "input": "text.txt", "output_dir": "out", **values}
    assert _run(**flags) == 1
    assert message in capsys.readouterr().err.splitlines()[-1]


def _draw_graded(rng, count):
    """Draws pairs of texts of eight words; a pair's score is the share of words that stay."""
    rows = []
    for _ in range(count):
        words, keep = rng.choice(WORDS, 8), rng.integers(9)
        other = [*words[:keep], *rng.choice(WORDS, 8 - keep)]
        rows.append([" ".join(words), " ".join(other), f"{keep / 8 * 5:g}"])
    return rows


@pytest.mark.long
def test_scores_train_an_encoder_to_order_pairs(tmp_path, vocabulary, capsys):
    start = write_encoder(tmp_path / "start", vocabulary, normalize=True)
    rows = _draw_graded(np.random.default_rng(0), 600)
    table = _write_table(tmp_path / "graded.csv", ["a", "b", "grade"], rows)
    values = {"model": start, "input": table, "columns": "a,b", "score_column": "grade"}
    values |= {"score_max": 5, "output_dir": tmp_path / "out", "params_override": TINY}
    assert _run(**values) == 0
    assert re.search(
        r"scores of \d+ held-out pairs: -?[\d.]+ before, -?[\d.]+ after", capsys.readouterr().out
    )
    assert load_manifest(tmp_path / "out.work" / "records").scores == 2 * 64
    before, after = (
        SentenceEncoder.load(path).encode(["a bird"]) for path in (start, values["output_dir"])
    )
    assert np.abs(before - after).max() > 1e-7


@pytest.mark.parametrize(
    ("cell", "settings", "message"),
    [
        ("6", {}, 'graded.csv:3: "grade" is 6, not from 0 to 5'),
        ("half", {}, "\"grade\" is 'half', not a number"),
        ("1", {"score_column": "none"}, "none"),
        ("1", {"score_max": -1}, "--score_min=0: it must be below --score_max=-1"),
        ("1", {"score_column": ""}, "--score_max: name the scores with --score_column"),
        ("1", {"label_column": "grade"}, "train in different ways; name one"),
    ],
)
def test_scores_that_are_none_end_before_the_stages(tmp_path, capsys, cell, settings, message):
    rows = [["a cat", "the cat", "5"], ["a", "b", cell]]
    table = _write_table(tmp_path / "graded.csv", ["a", "b", "grade"], rows)
    values = {"model": "mini-en", "input": table, "columns": "a,b", "score_column": "grade"}
    values |= {"score_max": 5, "output_dir": tmp_path / "out"} | settings
    assert _run(**values) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ") and message in error
    assert not (tmp_path / "out.work" / "records").exists()
