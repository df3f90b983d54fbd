"""TensorBoard's projector reads what a training writes for it."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend import application
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.projector import projector_plugin
from werkzeug import test as werkzeug_test

from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.tokenization import SentencePieceVocabulary, load_vocabulary
from official_cmlm.tokenization.byte_pair import BytePairVocabulary
from official_cmlm.training.projector import (
    METADATA_NAME,
    metadata,
    read_sentences,
    sample,
    spelled,
    write_projector,
)
from official_cmlm.training.run import run
from tests.conftest import make_documents, write_records
from tests.docs.work_folder import PUBLIC
from tests.pairs_helpers import bitext, write_pairs
from tests.training.tiny_training import params


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """Returns an encoder directory with the folders of a training's summaries."""
    folder = tmp_path_factory.mktemp("projector") / "model"
    import_checkpoint(PUBLIC, folder)
    for name in ("train", "validation"):
        with tf.summary.create_file_writer(str(folder / name)).as_default():
            tf.summary.scalar("loss", 1.0, step=1)
    return folder


def served(logdir):
    """Returns a client of a TensorBoard that has the projector alone."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(logdir))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(logdir))
    context = base_plugin.TBContext(logdir=str(logdir), data_provider=provider)
    plugin = projector_plugin.ProjectorPlugin(context)
    client = werkzeug_test.Client(application.TensorBoardWSGI([plugin]))

    def get(route, **arguments):
        response = client.get(f"/data/plugin/projector/{route}", query_string=arguments)
        assert response.status_code == 200, response.data
        return response.data

    return get


@pytest.mark.parametrize("above", [pytest.param(False, marks=pytest.mark.long), True])
def test_tensorboard_reads_it(model_dir, tmp_path, above):
    """Its own plugin finds the run, as many rows as sentences, and each text beside its vector.

    Whether --logdir is the model directory or a folder above it.
    """
    vocabulary = load_vocabulary(model_dir)
    write_records(tmp_path / "records", make_documents(30), vocabulary, keep_text=True)
    folder = write_projector(model_dir, [str(tmp_path / "records")], vocabulary, 25)
    get = served(model_dir.parent if above else model_dir)
    runs = json.loads(get("runs"))
    expected = {"model/train", "model/validation"} if above else {".", "train", "validation"}
    assert set(runs) >= expected
    texts = [text for text, _ in sample([str(tmp_path / "records")], vocabulary, 25)]
    vectors = SentenceEncoder.load(model_dir).encode(texts)
    for name in expected:
        embeddings = json.loads(get("info", run=name))["embeddings"]
        # TensorBoard adds the checkpoint's weights, and shows first what has metadata.
        (embedding,) = [one for one in embeddings if one.get("metadataPath")]
        assert embedding["tensorShape"] == [25, 16]
        found = np.frombuffer(get("tensor", run=name, name=embedding["tensorName"]), np.float32)
        np.testing.assert_allclose(found.reshape(25, 16), vectors, atol=1e-5)
        rows = get("metadata", run=name, name=embedding["tensorName"]).decode().splitlines()
        assert [row.split("\t") for row in rows] == [
            ["sentence", "language"],
            *([text, "en"] for text in texts),
        ]
    assert folder == model_dir / "projector"


def test_no_text_shifts_the_rows():
    """Tabs, breaks of every kind, control characters and empty texts stay in one cell."""
    texts = [
        "a\tb",
        "a\nb\r\nc",
        "a\u2028b\u2029c\x85d\x0b\x0c\x1ce",
        "\x00\x07a\x1b[31m\u202eb\ufeff",
        "",
        " \x00\t",
        "\ud800x",
        "y" * 1000,
    ]
    text = metadata([(one, "en\t") for one in texts])
    rows = [row.split("\t") for row in text.split("\n")[1:-1]]
    assert len(rows) == len(text.splitlines()) - 1 == len(texts)
    assert [row[0] for row in rows] == [
        *("a b", "a b c", "a b c d e", "a[31mb", "–", "–", "x", "y" * 300),
    ]
    assert {row[1] for row in rows} == {"en"}
    text.encode()


def test_sentences_of_every_kind_of_records(tmp_path, vocabulary):
    """Documents with and without text, and pairs; without text, of tokens."""
    documents = make_documents(10)
    write_records(tmp_path / "text", documents, vocabulary, keep_text=True)
    write_records(tmp_path / "ids", documents, vocabulary)
    write_pairs(tmp_path / "pairs", bitext(6), vocabulary)
    texts = list(read_sentences(tmp_path / "text", vocabulary))
    assert texts[0][0] in documents[0].paragraphs[0] and texts[0][1] == "en"
    of_tokens = [text for text, _ in read_sentences(tmp_path / "ids", vocabulary)]
    assert [text.replace(" ", "").lower() for text, _ in texts] == [
        text.replace(" ", "") for text in of_tokens
    ]
    pairs = list(read_sentences(tmp_path / "pairs", vocabulary))
    assert len(pairs) == 12 and {language for _, language in pairs} == {"en", "de"}


def test_the_sample(tmp_path, vocabulary):
    """Distinct, of more than the first documents, the same each time, no more than there are."""
    write_records(tmp_path, make_documents(40), vocabulary, keep_text=True)
    folders = [str(tmp_path)]
    everything = list(dict.fromkeys(read_sentences(tmp_path, vocabulary)))
    found = sample(folders, vocabulary, 10)
    assert len(set(found)) == 10 and found == sample(folders, vocabulary, 10)
    assert everything.index(found[-1]) > 20
    assert sample([*folders, *folders], vocabulary, 10_000) == everything


def test_byte_pairs_spell_exactly():
    """Bytes of one character may be in several tokens."""
    tokens = ("<pad>", "<s>", "</s>", "<unk>", "<mask>", "Ġ", "a", "Ã", "©", "Ġa")
    vocabulary = BytePairVocabulary(tokens, ("Ġ a",))
    assert spelled([6, 9, 7, 8], vocabulary) == "a aé"


def test_tokens_of_sentencepiece_are_spelled_as_text():
    tokens = ("<s>", "<pad>", "</s>", "<unk>", "▁A", "▁two", "s", ".", "<mask>")
    vocabulary = SentencePieceVocabulary(tokens, (0.0,) * 9, (0, 1, 2, 8), b"")
    assert spelled([4, 5, 6, 7], vocabulary) == "A twos."


def test_needs_validation_records(tmp_path):
    """The message comes before the training, not after it."""
    with pytest.raises(UserError, match=r"set task\.validation_data\.input_path"):
        run(params(str(tmp_path)), "train", str(tmp_path / "model"), projector_sentences=3)
    assert not (tmp_path / "model").exists() or not any((tmp_path / "model").iterdir())


@pytest.mark.long
def test_a_training_writes_it(tmp_path, vocabulary, capsys):
    """At its end, and again for another number of sentences in `eval`."""
    write_records(tmp_path / "records", make_documents(60), vocabulary, keep_text=True)
    config = params(str(tmp_path / "records"), steps=2)
    values = {"input_path": str(tmp_path / "records"), "max_examples": 8}
    data = config.task.train_data.replace(is_training=False, **values)
    config = config.replace(task=config.task.replace(validation_data=data))
    model = tmp_path / "model"
    run(config, "train_and_eval", str(model), projector_sentences=7)
    assert f"tensorboard --logdir={model}" in capsys.readouterr().err
    rows = (model / "projector" / METADATA_NAME).read_text().splitlines()
    assert len(rows) == 8
    run(config, "eval", str(model), projector_sentences=9)
    assert len((model / "projector" / METADATA_NAME).read_text().splitlines()) == 10
    assert "matplotlib" in sys.modules or not (model / "training_curve.png").exists()
