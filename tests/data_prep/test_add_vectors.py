"""`data_prep.add_vectors`: the teacher's vector beside each sentence, and nothing else changed."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from data_prep import add_vectors, create_pairs
from official_cmlm.checkpoints.encoder_directory import EncodingSettings, write_settings
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.records.manifest import load_manifest
from tests.conftest import make_documents, write_encoder, write_records
from tests.data_prep.binaries import run_binary
from tests.pairs_helpers import bitext, pair, triples, write_pairs, write_prompted_encoder


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


@pytest.mark.parametrize("kind", ["documents", "pairs"])
def test_a_teacher_of_the_same_vocabulary_reads_the_ids(tmp_path, vocabulary, kind):
    """The vectors are those of the text without the default prompt, cut to the given length."""
    teacher = write_encoder(tmp_path / "teacher", vocabulary)
    write_settings(teacher, EncodingSettings({"query": "the cat "}, "query"))
    for name, kept in (("plain", False), ("with_text", True)):
        if kind == "pairs":
            write_pairs(tmp_path / name, triples(9), vocabulary, keep_text=kept)
        else:
            write_records(tmp_path / name, make_documents(4), vocabulary, keep_text=kept)
    values = {"records": tmp_path / "plain", "model": teacher, "output_dir": tmp_path / "taught"}
    assert not run_binary(add_vectors, **values, max_seq_length=6)
    manifest, taught = _examples(tmp_path / "taught")
    assert not manifest.keep_text
    encoder = SentenceEncoder.load(teacher, 6)
    for old, new in zip(_examples(tmp_path / "with_text")[1], taught, strict=True):
        texts = [text.decode() for text in old["text"].bytes_list.value]
        stored = [np.frombuffer(row, "<f2") for row in new["teacher_vectors"].bytes_list.value]
        expected = encoder.encode(texts[: len(stored)], prompt="", on_long="ignore")
        assert len(stored) == (2 if kind == "pairs" else len(texts))
        np.testing.assert_allclose(stored, expected, atol=2e-3)
        assert old["token_ids"] == new["token_ids"] and "text" not in new


def _write_pairs_with_roles(folder, encoder, roles, keep_text=True):
    """Writes the records `plain` of nine pairs with an encoder's prompts; returns the pairs."""
    rows = [row[0].texts for row in bitext(9)]
    (folder / "t").write_text("".join("\t".join(row) + "\n" for row in rows))
    values = {"input": folder / "t", "format": "tsv", "languages": "en", "keep_text": keep_text}
    files = {"vocab_file": encoder, "output_dir": folder / "plain", "roles": roles}
    run_binary(create_pairs, **values, **files)
    return rows


@pytest.mark.parametrize("keep_text", [True, False])
def test_a_teacher_has_its_prompts_for_the_roles_of_pairs(tmp_path, vocabulary, keep_text):
    """Once each, whether it reads texts, which do not have them, or ids, which do."""
    teacher = write_prompted_encoder(tmp_path / "teacher", vocabulary, default="query")
    rows = _write_pairs_with_roles(tmp_path, teacher, "query,document", keep_text)
    values = {"records": tmp_path / "plain", "model": teacher, "output_dir": tmp_path / "taught"}
    assert not run_binary(add_vectors, **values)
    encoder, (manifest, taught) = SentenceEncoder.load(teacher), _examples(tmp_path / "taught")
    assert manifest.roles == ["query", "document"]
    for (first, second), record in zip(rows, taught, strict=True):
        stored = [np.frombuffer(row, "<f2") for row in record["teacher_vectors"].bytes_list.value]
        expected = [encoder.encode_query(first), encoder.encode_document(second)]
        np.testing.assert_allclose(stored, expected, atol=2e-3)
        assert np.abs(encoder.encode([first, second]) - expected).max() > 0.01


@pytest.mark.parametrize("roles", ["sts,sts", "query,sts", "query,document"])
def test_only_queries_and_documents_may_lack_a_prompt(tmp_path, vocabulary, roles):
    """They are read as `encode_query` reads them: without the default prompt."""
    student, teacher = (write_encoder(tmp_path / name, vocabulary) for name in ("own", "teacher"))
    own_prompts = {"query": "the old ", "document": "a dog ", "sts": "the cat "}
    write_settings(student, EncodingSettings(own_prompts))
    write_settings(teacher, EncodingSettings({"other": "a bird "}, "other"))
    rows = _write_pairs_with_roles(tmp_path, student, roles)
    values = {"records": tmp_path / "plain", "model": teacher, "output_dir": tmp_path / "taught"}
    if "sts" in roles:
        with pytest.raises(UserError, match=f"plain: made with --roles={roles}: .* it has other$"):
            run_binary(add_vectors, **values)
        return
    assert not run_binary(add_vectors, **values)
    encoder = SentenceEncoder.load(teacher)
    for texts, record in zip(rows, _examples(tmp_path / "taught")[1], strict=True):
        stored = [np.frombuffer(row, "<f2") for row in record["teacher_vectors"].bytes_list.value]
        np.testing.assert_allclose(stored, encoder.encode_query(list(texts)), atol=2e-3)


class _Teacher:
    """A teacher that counts how often it reads each text; equal texts have equal vectors."""

    def __init__(self):
        self.texts = collections.Counter()

    def __call__(self, texts):
        self.texts.update(texts)
        return np.array([[len(text), sum(map(ord, str(text))) / 7] for text in texts], np.float32)


def _teach(folder, **options):
    """Returns the teacher of the records `plain`, and the stored vectors of each pair."""
    output, teacher = folder / "_".join(["taught", *options.values()]), _Teacher()
    output.mkdir()
    add_vectors.write_taught(folder / "plain", output, teacher, "fake", True, **options)
    stored = [list(record["teacher_vectors"].bytes_list.value) for record in _examples(output)[1]]
    return teacher, stored


@pytest.mark.parametrize("targets", ["own", "first"])
def test_equal_texts_are_encoded_once(tmp_path, vocabulary, targets):
    """Over all shards, whichever languages they hold; the bytes are those of each text alone."""
    german, french = bitext(60, "en-de"), bitext(60, "en-fr")
    french = [(pair(a[0].texts[0], b[0].texts[1], "en-fr"),) for a, b in zip(german, french)]
    manifest = write_pairs(tmp_path / "plain", german + french, vocabulary, keep_text=True)
    assert len(manifest.shards) > 2
    teacher, stored = _teach(tmp_path, targets=targets)
    pairs = [each.texts for (each,) in german + french]
    read = [texts if targets == "own" else texts[:1] * 2 for texts in pairs]
    assert teacher.texts == collections.Counter(set(itertools.chain.from_iterable(read)))
    alone = _Teacher()
    expected = [[alone([text]).astype("<f2").tobytes() for text in texts] for texts in read]
    assert sorted(stored) == sorted(expected)


def test_texts_are_forgotten_where_memory_ends(tmp_path, vocabulary, monkeypatch):
    """They are encoded again then, with the same vectors."""
    write_pairs(tmp_path / "plain", bitext(60) + bitext(60), vocabulary, keep_text=True)
    _, stored = _teach(tmp_path)
    monkeypatch.setattr(add_vectors, "_MOST_REMEMBERED", 30)
    teacher, again = _teach(tmp_path, targets="own")
    assert again == stored and max(teacher.texts.values()) == 2


def test_vector_of_the_first_text_is_stored_twice(tmp_path, vocabulary):
    """It is read with the prompt of the first role; documents have no first text."""
    teacher = write_prompted_encoder(tmp_path / "teacher", vocabulary, default="query")
    rows = _write_pairs_with_roles(tmp_path, teacher, "query,document")
    values = {"model": teacher, "output_dir": tmp_path / "taught", "targets": "first"}
    assert not run_binary(add_vectors, records=tmp_path / "plain", **values)
    expected = SentenceEncoder.load(teacher).encode_query([first for first, _ in rows])
    for vector, record in zip(expected, _examples(tmp_path / "taught")[1], strict=True):
        first, second = record["teacher_vectors"].bytes_list.value
        np.testing.assert_allclose(np.frombuffer(first, "<f2"), vector, atol=2e-3)
        assert first == second
    write_records(tmp_path / "documents", make_documents(2), vocabulary, keep_text=True)
    with pytest.raises(UserError, match="they hold documents; --targets=first is for pairs"):
        run_binary(add_vectors, records=tmp_path / "documents", **values, overwrite=True)


def test_records_without_text_are_refused(tmp_path, vocabulary):
    """A teacher of another vocabulary reads text."""
    write_records(tmp_path / "plain", make_documents(2), vocabulary)
    values = {"records": tmp_path / "plain", "model": "mini-en", "output_dir": tmp_path / "out"}
    with pytest.raises(UserError, match="hold no text for the teacher .* with --keep_text"):
        run_binary(add_vectors, **values)
    assert not (tmp_path / "out").exists()
