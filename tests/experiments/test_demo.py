"""The demo: the length of its training, its number and its figure."""

from collections import Counter

import pytest

from data_prep.sentences import split_paragraphs
from experiments.demo.__main__ import (
    LEAST_STEPS_SHARE,
    TRAINING_START_SECONDS,
    compute_training_share,
)
from experiments.demo.report import read_sentences, sample_pairs
from official_cmlm.common.errors import UserError
from tests.binaries import call
from tests.conftest import make_documents, write_encoder, write_records


@pytest.mark.parametrize(
    "taken, budget, share",
    [
        ((10, 10), 190.0, 1.0),  # 20 + 50 + 100 + 20: just enough
        ((10, 10), 140.0, 0.5),
        ((20, 20), 280.0, 0.5),  # twice as slow, twice the time
        ((5, 5), 105.0, 1.0),
        ((10, 10), 20.0, LEAST_STEPS_SHARE),
    ],
)
def test_the_training_is_as_long_as_time_is_left(taken, budget, share):
    """Two stages of 10 s, then a training of 50 s and its 100 s of steps, and a stage of 20 s."""
    seconds = (10, 10, TRAINING_START_SECONDS + 100, 20)
    assert compute_training_share(taken, seconds, budget) == pytest.approx(share)


def test_pairs_are_adjacent_and_unambiguous():
    """No sentence is the query or the answer of two pairs."""
    documents = [["a", "b", "c"], ["a", "d"], ["e"], ["f", "g"], ["h", "g"]]
    first, second = sample_pairs(documents, 10)
    adjacent = {pair for d in documents for pair in zip(d, d[1:])}
    assert set(zip(first, second)) <= adjacent
    assert len(set(first)) == len(first) == len(set(second)) == 3
    assert sample_pairs(documents, 2)[0] == first[:2]


def test_sentences_of_documents_are_those_of_their_text(tmp_path, vocabulary):
    """Also of documents that are cut into records of two sentences, each cut repeating one."""
    documents = make_documents(20)
    write_records(tmp_path, documents, vocabulary, keep_text=True, max_sentences=2)
    expected = [split_paragraphs(d.paragraphs[:1], "en", Counter()) for d in documents]
    assert max(map(len, expected)) > 4
    assert read_sentences(tmp_path) == expected
    write_records(tmp_path / "ids", documents, vocabulary)
    with pytest.raises(UserError, match="--keep_text"):
        read_sentences(tmp_path / "ids")


@pytest.mark.long
@pytest.mark.parametrize("start", ["random", "folder"])
def test_the_demo_runs_on_own_text(start, tmp_path, vocabulary, capfd):
    """With the vocabulary of the start, or one of the text."""
    lines = ["".join(d.paragraphs) for d in make_documents(200)]
    (tmp_path / "text.txt").write_text("\n\n".join(lines))
    tiny = "trainer.train_steps=2,trainer.steps_per_loop=1,trainer.validation_interval=2"
    overrides = (
        f"{tiny},task.train_data.global_batch_size=8,task.validation_data.global_batch_size=8"
    )
    if start == "folder":
        start = write_encoder(tmp_path / "own", vocabulary)
    flags = {"text": tmp_path / "text.txt", "start": start, "work_dir": tmp_path / "build"}
    flags["params_override"] = overrides
    assert call("experiments.demo", *(f"--{name}={value}" for name, value in flags.items())) == 0
    printed = capfd.readouterr().out
    assert ("own, its start" in printed) == ("vocabulary" not in printed) == (start != "random")
    assert list((tmp_path / "build").glob("*/report/recall.png"))


def test_the_report_compares_three_encoders(tmp_path, vocabulary, capsys):
    """The trained encoder, the same one with other weights, and TF-IDF; and the figure."""
    write_encoder(tmp_path / "model", vocabulary)
    write_records(tmp_path / "records", make_documents(20), vocabulary, keep_text=True)
    folders = {"model_dir": "model", "held_out_records": "records", "training_records": "records"}
    flags = [f"--{name}={tmp_path / folder}" for name, folder in folders.items()]
    assert (
        call("experiments.demo.report", *flags, f"--output_dir={tmp_path}/out", "--pairs=20") == 0
    )
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("this encoder", "untrained", "TF-IDF"))
    assert (tmp_path / "out" / "recall.png").exists()
