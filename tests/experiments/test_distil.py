"""`cmlm distil`: from a teacher to a small encoder directory."""

import numpy as np
import pytest

from official_cmlm.checkpoints.encoder_directory import COMPATIBLE, EncoderDirectory
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.vectors.embeddings import unit
from tests.binaries import call
from tests.conftest import WORDS, write_encoder
from tests.pairs_helpers import write_prompted_encoder

DATA = "task.train_data."
TINY = f"{DATA}seq_length=24,{DATA}global_batch_size=8,{DATA}max_bucket_batch_size=8"


def run(*arguments, **values):
    named = (f"--{name}={value}" for name, value in values.items())
    return call("experiments.distil", *arguments, *named)


@pytest.fixture
def text(tmp_path):
    """Writes 200 sentences, several a paragraph."""
    rng = np.random.default_rng(0)
    sentences = [" ".join(rng.choice(WORDS, 8)).capitalize() + "." for _ in range(200)]
    paragraphs = [" ".join(sentences[i : i + 4]) for i in range(0, 200, 4)]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("\n\n".join(paragraphs))
    return tmp_path / "texts" / "*.txt"


def compare(first, second):
    """Returns the mean cosine of two encoders' vectors of short texts."""
    texts = [f"the {word} sat on a {other}" for word in WORDS for other in WORDS[:5]]
    rows = [unit(SentenceEncoder.load(path).encode(texts, prompt="")) for path in (first, second)]
    return np.mean(np.sum(rows[0] * rows[1], axis=1))


def test_a_table_of_the_teachers_vectors_needs_no_text(tmp_path, vocabulary, capsys):
    """Its vectors are in the teacher's space; it leaves no folder of work, and stays."""
    teacher = write_prompted_encoder(tmp_path / "teacher", vocabulary, "query", hidden_size=300)
    values = {"teacher": teacher, "output_dir": tmp_path / "small"}
    assert run("--static", **values) == 0
    small = EncoderDirectory.open(tmp_path / "small")
    assert (small.config.num_layers, small.config.pooling) == (0, "weighted_mean")
    assert small.config.embedding_size == 300 and not small.settings.prompts
    # An index of the teacher may be searched with it.
    assert (tmp_path / "small" / COMPATIBLE).exists()
    assert "300, without language-model head, " in (printed := capsys.readouterr()).out
    assert "MB (int8)" in printed.out and not (tmp_path / "small.work").exists()
    assert run("--static", **values) == 1
    assert "small: exists; name another --output_dir" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("static", [False, True])
def test_a_student_learns_its_teachers_vectors(static, tmp_path, vocabulary, text, capsys):
    """It comes nearer than its start; a second run goes on from what there is."""
    size = {"hidden_size": 300, "num_attention_heads": 1, "normalize": True}
    teacher = write_encoder(tmp_path / "teacher", vocabulary, num_layers=4, **size)
    values = {"teacher": teacher, "input": text, "output_dir": tmp_path / "small"}
    arguments = ["--static"] if static else ["--vocab_size=90"]
    assert run(*arguments, **values, params_override=TINY) == 0
    small, work = EncoderDirectory.open(tmp_path / "small"), tmp_path / "small.work"
    assert small.config.num_layers == (0 if static else 2)
    assert len(small.vocabulary) == (len(vocabulary) if static else 90)
    held_out = (work / "held_out.jsonl").read_text().splitlines()
    train = (work / "train.jsonl").read_text().splitlines()
    assert 2 < len(held_out) < 25 and 165 < len(train) < 198
    after = compare(tmp_path / "small", teacher)
    assert after > compare(work / "start", teacher)
    printed = capsys.readouterr().out
    assert f"{len(held_out)} held-out sentences: their vectors have a mean cosine of 0." in printed
    state = (work / "training" / "checkpoint").stat().st_mtime_ns
    assert run(*arguments, **values, params_override=TINY, weights="float32") == 0
    assert (work / "training" / "checkpoint").stat().st_mtime_ns == state
    assert compare(tmp_path / "small", work / "training") == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--input: name text to learn from, or give --static, which needs none"),
        (["--static", "--layers=0"], "--layers: --static is without blocks; leave one of them out"),
        (
            ["--static", "--vocab_size=90"],
            "--vocab_size: needs text; give --input, or leave it out",
        ),
        (["--static", "--params_override=a=1"], "--params_override: needs text; give --input"),
        (["--input=a.csv"], "a.csv: a table; give text, or JSON lines with a field text"),
        (["--input={folder}/none*.txt"], "{folder}/none*.txt: no such file, and nothing matches"),
        (
            ["--input={text}", "--layers=2"],
            "--layers=2: give blocks of the encoder, 0 to 1, or none",
        ),
        (["--static", "--teacher=nobody"], "nobody: no folder, encoder that ships"),
        (["--static", "--teacher={projected}"], "{projected}: its vector is a mean of projections"),
    ],
)
def test_mistakes_are_one_line(tmp_path, vocabulary, text, capsys, arguments, message):
    settings = {"sentence_vector": "projected_mean", "num_projections": 3}
    projected = write_encoder(tmp_path / "projected", vocabulary, **settings)
    names = {"folder": tmp_path, "text": text, "projected": projected}
    arguments = [argument.format(**names) for argument in arguments]
    teacher = write_encoder(tmp_path / "teacher", vocabulary, num_layers=2)
    assert run(f"--teacher={teacher}", *arguments, output_dir=tmp_path / "small") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {message.format(**names)}")
    assert not list(tmp_path.glob("small*"))
