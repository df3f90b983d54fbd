"""`data_prep.add_vectors`: the teacher's vector beside each sentence, and nothing else changed."""

import numpy as np
import pytest
import tensorflow as tf

from data_prep import add_vectors
from official_cmlm.errors import UserError
from official_cmlm.records.manifest import load_manifest
from official_cmlm.sentence_encoder import SentenceEncoder
from tests.conftest import make_documents, write_encoder, write_records
from tests.data_prep.binaries import run_binary


def _examples(folder):
    manifest = load_manifest(folder)
    paths = [str(folder / shard.name) for shard in manifest.shards]
    read = [tf.train.Example.FromString(each.numpy()) for each in tf.data.TFRecordDataset(paths)]
    return manifest, [example.features.feature for example in read]


@pytest.mark.parametrize("keep_text", [True, False])
def test_each_sentence_has_its_vector(tmp_path, vocabulary, keep_text):
    teacher = write_encoder(tmp_path / "teacher", vocabulary)
    write_records(tmp_path / "plain", make_documents(4), vocabulary, keep_text=True)
    values = {"records": tmp_path / "plain", "model": teacher, "output_dir": tmp_path / "taught"}
    assert not run_binary(add_vectors, **values, keep_text=keep_text)
    (before, plain), (after, taught) = _examples(tmp_path / "plain"), _examples(tmp_path / "taught")
    encoder = SentenceEncoder.load(teacher)
    assert (after.sentences, after.vector_size) == (before.sentences, encoder.dimension)
    assert after.keep_text is keep_text
    for old, new in zip(plain, taught, strict=True):
        texts = [text.decode() for text in old["text"].bytes_list.value]
        stored = [np.frombuffer(row, "<f2") for row in new["teacher_vectors"].bytes_list.value]
        np.testing.assert_allclose(stored, encoder.encode(texts), atol=2e-3)
        assert old["token_ids"] == new["token_ids"] and ("text" in new) == keep_text


def test_records_without_text_are_refused(tmp_path, vocabulary):
    """The teacher reads text: its vocabulary is another one."""
    write_records(tmp_path / "plain", make_documents(2), vocabulary)
    values = {"records": tmp_path / "plain", "model": "mini-en", "output_dir": tmp_path / "out"}
    with pytest.raises(UserError, match="hold no text for the teacher .* with --keep_text"):
        run_binary(add_vectors, **values)
    assert not (tmp_path / "out").exists()
