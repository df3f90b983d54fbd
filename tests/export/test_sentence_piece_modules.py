"""Imported encoders of several kinds on their way through records and exported modules."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401 - registers the ops of the tokenizer

from export.formats import tfhub
from export.formats.preprocessing import Preprocess
from export.formats.serving import Serving
from export.formats.tfhub_options import TfhubOptions
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.records.manifest import load_records_vocabulary
from official_cmlm.tokenization import load_vocabulary
from tests.checkpoints.helpers import REFERENCES, TEXTS
from tests.conftest import make_documents, write_records
from tests.export.serving_ops import CORE_OPS, TEXT_OPS, module_ops, trace_ops

_TEXTS = [*TEXTS, "", "The cat…  sat\ton the mat！", "Ein Satz ohne bekannte Zeichen: ქართული"]
_TEXTS += ["a <mask> b </s> [MASK] [SEP]", "the old house " * 30, "``Ünïcode'' 한국어 ΣΊΣΥΦΟΣ"]
_NAMES = ("mpnet", "distiluse", "xlm_roberta", "multilingual_minilm", "roberta")


@pytest.mark.long
@pytest.mark.parametrize("name", _NAMES)
def test_serving_equals_encode(tmp_path, name):
    """All vocabularies, MPNet's bias, a module Dense, from strings on.

    TensorFlow Serving has the ops. The modules preprocess and encoder give the same, and an import
    makes the encoder of them again.
    """
    import_checkpoint(REFERENCES / name, tmp_path / "encoder")
    tfhub.export(TfhubOptions(tmp_path / "encoder", tmp_path / "hub"))
    first = SentenceEncoder.load(tmp_path / "encoder")
    expected = first.encode(_TEXTS, on_long="ignore")
    hub = {part: str(tmp_path / "hub" / part) for part in tfhub.PARTS}
    serving = tf.saved_model.load(hub["serving/1"]).signatures["serving_default"]
    np.testing.assert_allclose(serving(tf.constant(_TEXTS))["default"], expected, atol=1e-5)
    preprocess, encoder = (tf.saved_model.load(hub[part]) for part in ("preprocess", "encoder"))
    got = encoder(preprocess(tf.constant(_TEXTS)))["default"]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    for folder in hub.values():
        assert module_ops(Path(folder)) <= CORE_OPS | TEXT_OPS
    source = import_checkpoint(tmp_path / "hub", tmp_path / "again")
    assert source.notes == [] and source.for_sentences
    again = SentenceEncoder.load(tmp_path / "again")
    assert (again.vocabulary.hash, again.max_seq_length) == (first.vocabulary.hash, 40)
    configs = [EncoderDirectory.open(tmp_path / name).config for name in ("again", "encoder")]
    assert configs[0].as_dict() == configs[1].as_dict()
    np.testing.assert_array_equal(again.encode(_TEXTS, on_long="ignore"), expected)


def test_modules_before_saving_equal_encode(tmp_path):
    """The same of one encoder before it is saved, which takes seconds."""
    import_checkpoint(REFERENCES / _NAMES[0], tmp_path / "encoder")
    directory = EncoderDirectory.open(tmp_path / "encoder")
    model, vocabulary = load_encoder(directory), directory.vocabulary
    length = directory.max_seq_length
    serving = Serving(Preprocess(vocabulary, length, model.config.max_seq_length, {}), model)
    expected = SentenceEncoder.load(tmp_path / "encoder").encode(_TEXTS, on_long="ignore")
    got = serving.serve(tf.constant(_TEXTS))["default"]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert trace_ops(serving.serve) <= CORE_OPS | TEXT_OPS


@pytest.mark.long
def test_first_components_of_a_dense_layer(tmp_path):
    """`--dim` counts those of the embedding: up to 8 here, of 16 hidden ones."""
    import_checkpoint(REFERENCES / "distiluse", tmp_path / "encoder")
    with pytest.raises(UserError, match="--dim must be 1 to 8, the width of its embeddings"):
        tfhub.export(TfhubOptions(tmp_path / "encoder", tmp_path / "hub", dim=9))
    tfhub.export(TfhubOptions(tmp_path / "encoder", tmp_path / "hub", dim=3))
    serving = tf.saved_model.load(str(tmp_path / "hub" / "serving" / "1"))
    got = serving.signatures["serving_default"](tf.constant(TEXTS))["default"]
    encoder = SentenceEncoder.load(tmp_path / "encoder")
    expected = encoder.encode(TEXTS, truncate_dim=3, normalize_embeddings=True)
    assert encoder.dimension == 8
    np.testing.assert_allclose(got, expected, atol=1e-5)
    (note,) = import_checkpoint(tmp_path / "hub" / "encoder", tmp_path / "again").notes
    assert note == "the module gives the first 3 components, this encoder gives all"
    assert EncoderDirectory.open(tmp_path / "again").config.embedding_size == 8
    with pytest.raises(UserError, match="preprocess: holds no encoder.*; name the `encoder`"):
        import_checkpoint(tmp_path / "hub" / "preprocess", tmp_path / "none")


def test_records_are_made_with_the_vocabulary(tmp_path):
    """So that a training and its encoder directory have the same one."""
    import_checkpoint(REFERENCES / "xlm_roberta", tmp_path / "encoder")
    vocabulary = load_vocabulary(tmp_path / "encoder")
    manifest = write_records(tmp_path / "records", make_documents(5), vocabulary)
    assert manifest.vocabulary["hash"] == vocabulary.hash
    assert manifest.vocabulary["kind"] == "sentencepiece"
    for folder in (str(tmp_path / "records"), f"file://{tmp_path}/records"):
        assert load_records_vocabulary(folder, manifest).hash == vocabulary.hash
