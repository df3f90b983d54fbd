"""`SentenceEncoder.load` and `.encode`: order, batching, padding, odd input."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm import SentenceEncoder
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, describe
from official_cmlm.common.errors import UserError
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import make_documents, tiny_encoder_config, write_encoder
from tests.unchanged.values import DATA


@pytest.fixture(scope="module")
def encoder_dir(tmp_path_factory, vocabulary):
    tf.random.set_seed(1)
    return write_encoder(tmp_path_factory.mktemp("encoder"), vocabulary, 32, dropout_rate=0.1)


@pytest.fixture(scope="module")
def encoder(encoder_dir):
    return SentenceEncoder.load(encoder_dir, backend="tensorflow")


@pytest.fixture(scope="module")
def sentences():
    return [d.paragraphs[0].split(". ")[0] for d in make_documents(40, seed=5)]


def test_vectors_follow_a_model_that_is_trained_on(encoder_dir, sentences):
    """Until somebody asks for the model, its weights are constants of a faster graph."""
    encoder = SentenceEncoder.load(encoder_dir, backend="tensorflow")
    before = encoder.encode(sentences)
    model, inputs = encoder.model, encoder.inputs(sentences)
    np.testing.assert_allclose(before, model(inputs)["default"], atol=1e-5)
    for variable in model.variables:
        variable.assign(1.1 * variable)
    np.testing.assert_allclose(encoder.encode(sentences), model(inputs)["default"], atol=1e-5)
    assert np.abs(encoder.encode(sentences) - before).max() > 0.01


def test_a_vector_does_not_depend_on_its_batch(encoder, sentences):
    """Alone, and in random batches with any padding: to rounding. Elements are about 1."""
    texts = [*sentences, "", *("the cat " * count for count in range(1, 16))]

    def together(texts):
        inputs = encoder.inputs(texts)
        lengths = tf.reduce_sum(inputs["input_mask"], axis=1).numpy()
        return encoder.backend.embed(inputs["input_word_ids"].numpy(), lengths)

    expected = np.concatenate([together([text]) for text in texts])
    assert expected.shape == (len(texts), 16) and expected.dtype == np.float32
    for batch_size in (7, 1000):
        found = encoder.encode(texts, batch_size=batch_size)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    random = np.random.default_rng(4)
    for _ in range(20):
        chosen = random.permutation(len(texts))[: random.integers(2, len(texts))]
        found = together([texts[i] for i in chosen])
        np.testing.assert_allclose(found, expected[chosen], atol=1e-6, rtol=0)


def test_encode_equals_the_model_on_hand_made_ids(encoder, vocabulary):
    """[CLS], the words' ids, [SEP], no padding, mean over all of them."""
    ids = [vocabulary.tokens.index(t) for t in ("[CLS]", "the", "cat", "sat", ".", "[SEP]")]
    ids = tf.constant([ids])
    outputs = encoder.model(
        {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    )
    expected = outputs["sequence_output"].numpy().mean(axis=1)
    np.testing.assert_allclose(encoder.encode(["The cat sat."]), expected, atol=1e-5)


def test_empty_list_and_empty_strings(encoder):
    """An empty list has inputs too, which the model takes."""
    assert encoder.encode([]).shape == (0, 16)
    inputs = encoder.inputs([])
    assert {(*each.shape, each.dtype) for each in inputs.values()} == {(0, 2, tf.int32)}
    assert encoder.model(inputs)["default"].shape == (0, 16)
    vectors = encoder.encode(["", "a cat", "   "])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    # Lone surrogates count as question marks.
    vectors = encoder.encode(["a \ud800 cat", "a ? cat", "\udfff\ud800", "??"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    np.testing.assert_allclose(vectors[2], vectors[3], atol=1e-6)


def _changed(vocabulary, **values):
    """Makes an encoder in memory, in which variables with such parts of names have a value."""
    model = SentenceEncoderModel(tiny_encoder_config(vocab_size=len(vocabulary)))
    for variable in model.variables:
        for part, value in values.items():
            if part in variable.name:
                variable.assign(tf.fill(variable.shape, value))
    return SentenceEncoder(model, vocabulary, 32)


@pytest.mark.parametrize("value", [1e38, np.nan])
def test_an_embedding_that_is_not_finite_is_an_error(vocabulary, value):
    """Weights that overflow or are NaN, in one of the layers."""
    encoder = _changed(vocabulary, kernel=value, embeddings=value)
    with pytest.raises(UserError, match="embedding of sentence 0 is not finite"):
        encoder.encode(["a cat"], normalize_embeddings=True)


def test_the_sentence_that_is_not_finite_is_named(vocabulary):
    """One word's row is NaN; the number is the position in the list, not in the batch."""
    encoder = _changed(vocabulary)
    table = next(v for v in encoder.model.variables if "word_embeddings" in v.name)
    table.scatter_nd_update([[vocabulary.tokens.index("dog")]], tf.fill([1, 16], np.nan))
    assert np.isfinite(encoder.encode(["a cat", "a bird"])).all()
    with pytest.raises(UserError, match="sentence 3 is not finite"):
        encoder.encode(["a cat", "the cat ran", "a bird", "dog", "a cat"], batch_size=2)


def test_large_embeddings_are_normalised_too(vocabulary):
    """Their squares overflow in float32."""
    encoder = _changed(vocabulary, **{"layer_1/output_layer_norm": 1e25})
    assert np.abs(encoder.encode(["a cat"])).max() > 1e20
    vectors = encoder.encode(["a cat", ""], normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_sentences_are_tokenised_in_parts_that_fit_in_the_memory(encoder, sentences, monkeypatch):
    """Parts are limited in texts and characters; ids beyond the longest length are dropped."""
    from official_cmlm.encoding import token_batches

    texts = [*sentences, "cat " * 500, "", "the dog ran " * 40]
    expected, inputs = encoder.encode(texts), encoder.inputs(texts)
    monkeypatch.setattr(token_batches, "_WINDOW", 7)
    monkeypatch.setattr(token_batches, "_WINDOW_CHARACTERS", 300)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-6)
    found = encoder.inputs(texts)["input_word_ids"]
    np.testing.assert_array_equal(found, inputs["input_word_ids"])
    assert found.shape == (len(texts), 32)


@pytest.mark.long
def test_long_and_many_strings_take_time_and_memory_in_proportion(encoder):
    """10 MB of one text, and a million texts: a vector each, in little more memory than theirs."""
    from official_cmlm.common.processor import peak_mib

    for text in ("cat " * 2_500_000, "a" * 10_000_000, "\0" * 10_000_000, "\ud800" * 3_000_000):
        assert np.isfinite(encoder.encode([text])).all()
    before = peak_mib()
    vectors = encoder.encode(["a cat", "dog", "the bird ran"] * 333_334)
    assert vectors.shape == (1_000_002, 16) and np.isfinite(vectors).all()
    # 16 bytes of ids and 64 of vector each, and some copies of both.
    assert peak_mib() - before < 500


@pytest.mark.parametrize(
    ("sentences", "options", "error", "says"),
    [
        (b"bytes", {}, TypeError, "strings"),
        ([b"bytes"], {}, TypeError, "strings"),
        (["fine", None], {}, TypeError, "strings"),
        (["a"], {"batch_size": 0}, ValueError, "batch_size"),
    ],
)
def test_wrong_arguments_are_named(encoder, sentences, options, error, says):
    with pytest.raises(error, match=says):
        encoder.encode(sentences, **options)


def test_progress_is_drawn_on_request(encoder, sentences, capsys):
    encoder.encode(sentences, show_progress_bar=True)
    assert "encode" in capsys.readouterr().err


def test_loading_without_checkpoint(tmp_path, vocabulary):
    describe(tmp_path, tiny_encoder_config(vocab_size=len(vocabulary)), vocabulary)
    with pytest.raises(UserError, match="no checkpoint"):
        SentenceEncoder.load(tmp_path, max_seq_length=32)


def test_directory_of_another_architecture_is_refused(tmp_path):
    directory = EncoderDirectory.open(shutil.copytree(DATA / "trained", tmp_path / "trained"))
    layers = directory.config.num_layers
    other = directory.config.replace(num_layers=layers + 1)
    says = f"another architecture: num_layers {layers} .here {layers + 1}."
    with pytest.raises(UserError, match=says):
        describe(directory.path, other, directory.vocabulary)


def test_damaged_weights_are_named(encoder_dir, tmp_path):
    folder = shutil.copytree(encoder_dir, tmp_path / "encoder")
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(UserError, match="weights.safetensors: damaged"):
        SentenceEncoder.load(folder)


def test_ranges_belong_to_a_pooling_and_to_weights(encoder_dir, sentences, tmp_path):
    """Neither another vector nor a later checkpoint takes them; calibrating again does."""
    folder = shutil.copytree(encoder_dir, tmp_path / "encoder")
    encoder = SentenceEncoder.load(folder)
    encoder.calibrate(sentences)
    encoder.save_settings(folder)
    path = folder / "embedding_ranges.json"
    stored = path.read_bytes()
    codes = encoder.encode(sentences, precision="int8")
    again = SentenceEncoder.load(folder, backend="tensorflow")
    got = again.encode(sentences, precision="int8").astype(int)
    assert np.abs(got - codes).max() <= 1

    largest = SentenceEncoder.load(folder, pooling="max")
    with pytest.raises(UserError, match="are of pooling mean, this encoder has max; call calibra"):
        largest.encode(sentences, precision="uint8")
    largest.save_settings(folder)
    assert path.read_bytes() == stored
    largest.calibrate(sentences)
    assert largest.encode(sentences, precision="int8").std() > 10

    # Further training in the folder.
    for variable in again.model.variables:
        variable.assign(variable * 1.5)
    manager = tf.train.Checkpoint(encoder=again.model)
    tf.train.CheckpointManager(manager, str(folder), 2, checkpoint_name="ckpt").save(7)
    trained = SentenceEncoder.load(folder)
    with pytest.raises(UserError, match="they are of other weights; call calibrate"):
        trained.encode(sentences, precision="int8")
    trained.calibrate(sentences)
    trained.save_settings(folder)
    assert SentenceEncoder.load(folder).ranges is not None
    trained.ranges = None
    trained.save_settings(folder)
    assert not path.exists()


def test_ranges_that_say_no_origin_are_of_none(encoder_dir, sentences, tmp_path):
    """Earlier versions wrote such ranges."""
    folder = shutil.copytree(encoder_dir, tmp_path / "encoder")
    values = {"normalize": False, "low": [-1.0] * 16, "high": [1.0] * 16}
    (folder / "embedding_ranges.json").write_text(json.dumps(values))
    encoder = SentenceEncoder.load(folder)
    with pytest.raises(UserError, match="they are of pooling unknown, this encoder has mean"):
        encoder.encode(sentences, precision="int8")
