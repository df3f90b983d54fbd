"""`cmlm adapt`: from an encoder and text or a table to an encoder directory."""

import csv

import numpy as np
import pytest

from official_cmlm.sentence_encoder import SentenceEncoder
from tests.binaries import call
from tests.conftest import WORDS, write_encoder

TINY = (
    "trainer.train_steps=2,trainer.steps_per_loop=1,"
    "task.train_data.global_batch_size=4,task.train_data.seq_length=24"
)


def _sentence(rng, count=8):
    return " ".join(rng.choice(WORDS, count)).capitalize() + "."


def _run(**values):
    return call("experiments.adapt", *(f"--{name}={value}" for name, value in values.items()))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["text", "table"])
def test_an_encoder_is_trained_on(kind, tmp_path, vocabulary):
    """Its vectors change, its length and normalisation do not; a second run does nothing."""
    start = write_encoder(tmp_path / "start", vocabulary, pooling="max", normalize=True)
    rng = np.random.default_rng(0)
    values = {"model": start, "output_dir": tmp_path / "out", "params_override": TINY}
    if kind == "text":
        text = "\n\n".join(f"{_sentence(rng)} {_sentence(rng)}" for _ in range(30))
        (tmp_path / "text.txt").write_text(text)
        values["input"] = tmp_path / "text.txt"
    else:
        with open(tmp_path / "pairs.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["question", "answer"])
            rows.writerows([_sentence(rng), _sentence(rng)] for _ in range(30))
        values |= {"input": tmp_path / "pairs.csv", "columns": "question,answer"}
    assert _run(**values) == 0
    before, after = (SentenceEncoder.load(path) for path in (start, tmp_path / "out" / "model"))
    assert after.max_seq_length == before.max_seq_length
    texts = ["the cat sat", "a bird"]
    vectors = after.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert np.abs(vectors - before.encode(texts)).max() > 1e-6
    state = (tmp_path / "out" / "model" / "checkpoint").stat().st_mtime_ns
    assert _run(**values) == 0
    assert (tmp_path / "out" / "model" / "checkpoint").stat().st_mtime_ns == state


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"columns": "title"}, "--columns=title: name two, as in title,body"),
        ({"model": "nowhere"}, "nowhere: no folder, encoder that ships"),
        ({"input": "none.txt"}, "none.txt: no such file"),
    ],
)
def test_mistakes_are_one_line(values, message, tmp_path, vocabulary, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "start", vocabulary)
    (tmp_path / "text.txt").write_text("Some text.")
    given = {"model": "start", "input": "text.txt", "output_dir": "out", **values}
    assert _run(**given) == 1
    assert message in capsys.readouterr().err.splitlines()[-1]
