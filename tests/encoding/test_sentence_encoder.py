"""`SentenceEncoder` of folders: its vectors in any batch, and other vectors of its weights.

Others are those of another pooling, of an earlier layer, and the mean of CMLM's projections.
"""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from experiments import evaluate
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, describe
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import POOLINGS, VectorOverride
from official_cmlm.encoding.encoders import open_encoder
from official_cmlm.encoding.fine_tuning import FineTuningConfig, fine_tune
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.cmlm import CmlmConfig
from tests.checkpoints.helpers import REFERENCES
from tests.conftest import make_documents, tiny_encoder_config, write_encoder
from tests.modeling.helpers import build
from tests.oracles import cmlm_numpy as oracle
from tests.unchanged.values import DATA

# A model directory of CMLM with bitext retrieval, optimizer state included; N = 3, mean pooling.
TRAINED = DATA / "trained"
TEXTS = ["The cat sat on the mat.", "a dog ran over the old house!", "Water", ""]


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


def test_vectors_follow_a_trained_model(encoder_dir, sentences):
    """Until somebody asks for the model, its weights are constants of a faster graph."""
    encoder = SentenceEncoder.load(encoder_dir, backend="tensorflow")
    before = encoder.encode(sentences)
    model, inputs = encoder.model, encoder.inputs(sentences)
    np.testing.assert_allclose(before, model(inputs)["default"], atol=1e-5)
    for variable in model.variables:
        variable.assign(1.1 * variable)
    np.testing.assert_allclose(encoder.encode(sentences), model(inputs)["default"], atol=1e-5)
    assert np.abs(encoder.encode(sentences) - before).max() > 0.01


def test_an_encoder_is_shown_in_one_line(encoder_dir, encoder):
    length = encoder.max_seq_length
    facts = f"dimension=16, max_seq_length={length}, backend='tensorflow')"
    assert repr(encoder) == f"SentenceEncoder('{encoder_dir}', {facts}"
    in_memory = SentenceEncoder(encoder.model, encoder.vocabulary, length)
    assert repr(in_memory) == f"SentenceEncoder('in memory', {facts}"


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
        vectors = encoder.encode(texts, batch_size=batch_size)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    random = np.random.default_rng(4)
    for _ in range(20):
        chosen = random.permutation(len(texts))[: random.integers(2, len(texts))]
        vectors = together([texts[i] for i in chosen])
        np.testing.assert_allclose(vectors, expected[chosen], atol=1e-6, rtol=0)


def test_empty_list_and_empty_strings(encoder):
    """An empty list has inputs too, which the model takes."""
    assert encoder.encode([]).shape == (0, 16)
    inputs = encoder.inputs([])
    assert {(*tensor.shape, tensor.dtype) for tensor in inputs.values()} == {(0, 2, tf.int32)}
    assert encoder.model(inputs)["default"].shape == (0, 16)
    vectors = encoder.encode(["", "a cat", "   "])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    # Lone surrogates count as question marks.
    vectors = encoder.encode(["a \ud800 cat", "a ? cat", "\udfff\ud800", "??"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    np.testing.assert_allclose(vectors[2], vectors[3], atol=1e-6)


def _change(vocabulary, **values):
    """Makes an encoder in memory, in which variables with such parts of names have a value."""
    model = SentenceEncoderModel(tiny_encoder_config(vocab_size=len(vocabulary)))
    for variable in model.variables:
        for part, value in values.items():
            if part in variable.name:
                variable.assign(tf.fill(variable.shape, value))
    return SentenceEncoder(model, vocabulary, 32)


@pytest.mark.parametrize("value", [1e38, np.nan])
def test_non_finite_embedding_is_an_error(vocabulary, value):
    """Weights that overflow or are NaN, in one of the layers."""
    encoder = _change(vocabulary, kernel=value, embeddings=value)
    with pytest.raises(UserError, match="embedding of sentence 0 is not finite"):
        encoder.encode(["a cat"], normalize_embeddings=True)


def test_non_finite_sentence_is_named(vocabulary):
    """One word's row is NaN; the number is the position in the list, not in the batch."""
    encoder = _change(vocabulary)
    table = next(v for v in encoder.model.variables if "word_embeddings" in v.name)
    table.scatter_nd_update([[vocabulary.tokens.index("dog")]], tf.fill([1, 16], np.nan))
    assert np.isfinite(encoder.encode(["a cat", "a bird"])).all()
    with pytest.raises(UserError, match="sentence 3 is not finite"):
        encoder.encode(["a cat", "the cat ran", "a bird", "dog", "a cat"], batch_size=2)


def test_large_embeddings_are_normalised_too(vocabulary):
    """Their squares overflow in float32."""
    encoder = _change(vocabulary, **{"layer_1/output_layer_norm": 1e25})
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
    ids = encoder.inputs(texts)["input_word_ids"]
    np.testing.assert_array_equal(ids, inputs["input_word_ids"])
    assert ids.shape == (len(texts), 32)


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


def test_ranges_without_origin_are_refused(encoder_dir, sentences, tmp_path):
    """Earlier versions wrote such ranges."""
    folder = shutil.copytree(encoder_dir, tmp_path / "encoder")
    values = {"normalize": False, "low": [-1.0] * 16, "high": [1.0] * 16}
    (folder / "embedding_ranges.json").write_text(json.dumps(values))
    encoder = SentenceEncoder.load(folder)
    with pytest.raises(UserError, match="they are of pooling unknown, this encoder has mean"):
        encoder.encode(sentences, precision="int8")


@pytest.fixture(scope="module")
def own():
    """Encodes with the vector that was trained."""
    return SentenceEncoder.load(TRAINED).encode(TEXTS)


def _project(vectors, checkpoint, depth, between, objective="cmlm"):
    """Computes the mean of the projections from the checkpoint's tensors in NumPy."""
    reader = tf.train.load_checkpoint(str(checkpoint))
    shapes = reader.get_variable_to_shape_map()

    def tensor(name):
        (key,) = [
            key
            for key in shapes
            if f"objectives/{objective}/projection/{name}/" in key and "SLOT" not in key
        ]
        return reader.get_tensor(key)

    kernels = [tensor(f"kernel_{i}") for i in range(depth)]
    biases = [tensor(f"bias_{i}") for i in range(depth)]
    networks = [
        [(kernel[n], bias[n]) for kernel, bias in zip(kernels, biases)]
        for n in range(len(kernels[0]))
    ]
    return [oracle.project(vector, networks, depth, between).mean(axis=0) for vector in vectors]


def test_mean_projection_equals_numpys(own):
    """Table 7's "proj" from a training whose own vector is the mean: no training again."""
    expected = _project(own, TRAINED / "ckpt-3", 3, 32)
    encoder = SentenceEncoder.load(TRAINED, sentence_vector="projected_mean", backend="tensorflow")
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    assert np.abs(np.array(expected) - own).max() > 0.1
    config = encoder.model.config
    assert (config.num_projections, config.projection_depth, config.projection_width) == (3, 3, 2)


@pytest.mark.parametrize(
    ("depth", "width", "between"),
    [
        (2, 0.5, 8),
        pytest.param(1, 2.0, 32, marks=pytest.mark.long),
        pytest.param(4, 1.5, 24, marks=pytest.mark.long),
    ],
)
def test_shape_of_the_projection_comes_from_the_checkpoint(
    vocabulary, tmp_path, depth, width, between
):
    """Depth and width are nowhere but in the weights' shapes."""
    config = CmlmConfig(num_projections=4, projection_depth=depth, projection_width=width)
    model = build({"cmlm": config}, vocab_size=len(vocabulary))
    describe(tmp_path, model.encoder.config, vocabulary, 24)
    saved = tf.train.Checkpoint(model=model, **model.checkpoint_items).save(str(tmp_path / "ckpt"))
    plain = SentenceEncoder.load(tmp_path).encode(TEXTS)
    got = SentenceEncoder.load(tmp_path, sentence_vector="projected_mean").encode(TEXTS)
    np.testing.assert_allclose(got, _project(plain, saved, depth, between), atol=1e-4)


def test_every_pooling(own):
    """Each gives what a model with that pooling in its configuration gives of the same weights."""
    directory = EncoderDirectory.open(TRAINED)
    base, length = load_encoder(directory), directory.max_seq_length
    inputs = SentenceEncoder(base, directory.vocabulary, length).inputs(TEXTS)
    seen = {"mean": own}
    for pooling in [name for name, pooled in POOLINGS.items() if not pooled.weighted][1:]:
        padded = length if pooling == "mean_padded" else 0
        model = SentenceEncoderModel(base.config.replace(pooling=pooling, padded_length=padded))
        model.set_weights(base.get_weights())
        encoder = SentenceEncoder.load(TRAINED, pooling=pooling)
        got = encoder.encode(TEXTS)
        np.testing.assert_allclose(got, model(inputs)["default"], atol=1e-5)
        # With one block, the first and the last are the same.
        if pooling != "first_last":
            assert min(np.abs(got - other).max() for other in seen.values()) > 0.01
        seen[pooling] = got
    outputs = base(inputs)["sequence_output"].numpy()
    np.testing.assert_allclose(seen["cls"], outputs[:, 0], atol=1e-5)
    both = SentenceEncoder.load(TRAINED, pooling="max", sentence_vector="projected_mean")
    expected = _project(seen["max"], TRAINED / "ckpt-3", 3, 32)
    np.testing.assert_allclose(both.encode(TEXTS), expected, atol=1e-5)


def test_weights_of_tokens_are_read(vocabulary, tmp_path):
    """Another pooling leaves them out; an encoder without them cannot be pooled by them."""
    with pytest.raises(UserError, match="has no weights of tokens for pooling weighted_mean; trai"):
        SentenceEncoder.load(TRAINED, pooling="weighted_mean")
    config = tiny_encoder_config(vocab_size=len(vocabulary), pooling="weighted_mean")
    model = SentenceEncoderModel(config)
    weights = model.token_weights.weights[0]
    weights.assign(np.random.default_rng(0).normal(size=weights.shape))
    write_encoder(tmp_path, vocabulary, model=model)
    inputs = SentenceEncoder(model, vocabulary, 24).inputs(TEXTS)
    own = SentenceEncoder.load(tmp_path).encode(TEXTS)
    np.testing.assert_allclose(own, model(inputs)["default"], atol=1e-5)
    plain = SentenceEncoder.load(tmp_path, pooling="mean").encode(TEXTS)
    mask = inputs["input_mask"].numpy()[..., np.newaxis]
    states = model(inputs)["sequence_output"].numpy()
    np.testing.assert_allclose(plain, (states * mask).sum(1) / mask.sum(1), atol=1e-5)


@pytest.mark.long
def test_padding_reaches_the_chosen_length(tmp_path):
    """Mirror-BERT's code pads to 50 where it trains and to 64 where it scores."""

    def get_padded_length(folder, length, **vector):
        directory = EncoderDirectory.open(folder)
        return load_encoder(directory, VectorOverride(**vector), length).config.padded_length

    assert get_padded_length(TRAINED, None, pooling="mean_padded") == 24
    assert get_padded_length(TRAINED, 10, pooling="mean_padded") == 10
    padded = shutil.copytree(TRAINED, tmp_path / "padded")
    described = json.loads((padded / "encoder_config.json").read_text())
    described["encoder"] |= {"pooling": "mean_padded", "padded_length": 12}
    (padded / "encoder_config.json").write_text(json.dumps(described))
    # Without a pooling, a length says only where texts are cut.
    assert get_padded_length(padded, None) == get_padded_length(padded, 20) == 12
    assert get_padded_length(padded, None, pooling="mean_padded") == 12
    assert get_padded_length(padded, 20, pooling="mean_padded") == 20
    expected = SentenceEncoder.load(TRAINED, 20, pooling="mean_padded").encode(TEXTS)
    got = SentenceEncoder.load(padded, 20, pooling="mean_padded").encode(TEXTS)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_vectors_of_an_earlier_layer(vocabulary, tmp_path):
    """The mean of the outputs that the whole encoder has there; the last one is its own vector."""
    config = tiny_encoder_config(vocab_size=len(vocabulary), num_layers=3)
    model = SentenceEncoderModel(config)
    describe(tmp_path, config, vocabulary, 24)
    tf.train.Checkpoint(encoder=model).save(str(tmp_path / "ckpt"))
    inputs = SentenceEncoder.load(tmp_path).inputs(TEXTS)
    outputs = model(inputs)["encoder_outputs"]
    mask = inputs["input_mask"].numpy()[:, :, np.newaxis]
    for layer in (2, 3):
        opened = open_encoder(str(tmp_path), layer=layer)
        assert opened.name == f"{tmp_path.name} (layer {layer})"
        expected = (outputs[layer - 1].numpy() * mask).sum(axis=1) / mask.sum(axis=1)
        np.testing.assert_allclose(opened.encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(opened.encode(TEXTS), model(inputs)["default"], atol=1e-5)
    with pytest.raises(UserError, match="layer 4: the encoder has layers 1 to 3"):
        open_encoder(str(tmp_path), layer=4)
    with pytest.raises(UserError, match="--layer=2 does not apply to numpy:array"):
        open_encoder("numpy:array", layer=2)
    # Ranges of the last layer's vectors do not fit another layer's.
    whole = SentenceEncoder.load(tmp_path)
    whole.calibrate(TEXTS)
    whole.save_settings(tmp_path)
    assert SentenceEncoder.load(tmp_path).ranges is not None
    assert SentenceEncoder.load(tmp_path, layer=2).ranges is None


def test_encoder_with_its_own_projection(vocabulary, tmp_path):
    """Asked for its own vector it gives that; the plain vector can be had too."""
    config = tiny_encoder_config(
        vocab_size=len(vocabulary), sentence_vector="projected_mean", num_projections=3
    )
    model = SentenceEncoderModel(config)
    write_encoder(tmp_path, vocabulary, model=model)
    inputs = SentenceEncoder.load(tmp_path).inputs(TEXTS)
    same = SentenceEncoder.load(tmp_path, sentence_vector="projected_mean").encode(TEXTS)
    np.testing.assert_allclose(same, model(inputs)["default"], atol=1e-5)
    pooled = SentenceEncoder.load(tmp_path, sentence_vector="pooled", backend="tensorflow")
    assert pooled.model.projection is None
    np.testing.assert_allclose(pooled.encode(TEXTS), model(inputs)["vector"], atol=1e-5)


@pytest.mark.long
def test_poolings_of_an_imported_encoder(tmp_path):
    """Every pooling of a public encoder; it has no P, and DistilBERT has no pooler."""
    for name in ("bert", "minilm", "distilbert"):
        import_checkpoint(str(REFERENCES / name), str(tmp_path / name))
    plain = SentenceEncoder.load(tmp_path / "bert", backend="tensorflow")
    outputs = plain.model(plain.inputs(TEXTS))["sequence_output"].numpy()
    got = SentenceEncoder.load(tmp_path / "bert", pooling="cls").encode(TEXTS)
    np.testing.assert_allclose(got, outputs[:, 0], atol=1e-5)
    for name in ("bert", "distilbert"):
        with pytest.raises(UserError, match="has no projection P.*num_projections above 1"):
            SentenceEncoder.load(tmp_path / name, sentence_vector="projected_mean")
    assert SentenceEncoder.load(tmp_path / "minilm", pooling="cls_pooler").encode(TEXTS).any()
    with pytest.raises(UserError, match="distilbert: its encoder has no pooler"):
        SentenceEncoder.load(tmp_path / "distilbert", pooling="cls_pooler")


@pytest.mark.parametrize("field", ["pooling", "sentence_vector"])
def test_unknown_names(field):
    """The message lists those that there are."""
    with pytest.raises(UserError, match=f"encoder.{field} must be one of .* got 'sum'"):
        SentenceEncoder.load(TRAINED, **{field: "sum"})


def test_opened_for_evaluation(own, tmp_path):
    """Name and fingerprint tell the readouts apart; nothing changes where none is asked for."""
    asked = [{}, {"pooling": "max"}, {"sentence_vector": "projected_mean"}]
    opened = [open_encoder(str(TRAINED), **options) for options in asked]
    names = ["trained", "trained (pooling max)", "trained (projected_mean)"]
    assert [encoder.name for encoder in opened] == names
    assert len({encoder.fingerprint for encoder in opened}) == 3
    np.testing.assert_allclose(opened[0].encode(TEXTS), own, atol=1e-5)
    for encoder, options in zip(opened, asked):
        expected = SentenceEncoder.load(TRAINED, **options).encode(TEXTS)
        np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    for path, says in ((str(tmp_path), "not an encoder directory"), ("numpy:array", "not apply")):
        with pytest.raises(UserError, match=says):
            open_encoder(path, pooling="max")


@pytest.mark.long
def test_fine_tuned_with_another_vector():
    """The classifier reads the vector that was asked for, and all that it depends on is trained."""
    config = FineTuningConfig(1, 2, 0.01, override=VectorOverride("cls", "projected_mean"))
    predict = fine_tune(TRAINED, TEXTS, np.array([0, 1, 0, 1]), 2, 1, config).predict
    assert predict(TEXTS).shape == (4,)


def _main(binary, **values):
    arguments = [f"--{name}={value}" for name, value in values.items()]
    # On the way out flags that were defined inside are removed again.
    with flagsaver.flagsaver():
        binary.define_flags()
        flags.FLAGS(["prog", *arguments])
        return binary.main()


def test_flags_of_the_evaluation(tmp_path, monkeypatch):
    """They choose what is scored."""
    from official_cmlm.evaluation.report import driver

    scored = []

    def run(encoder, path, *others):
        scored.append((encoder.name, path, encoder.encode(TEXTS)))
        suite = {"scores": [], "missing": [], "failures": []}
        return {"encoder": {"name": "trained", "fingerprint": "0"}, "suites": {"sts": suite}}

    monkeypatch.setattr(driver, "run", run)
    values = {"encoder": TRAINED, "data_dir": tmp_path, "output_dir": tmp_path / "out"}
    _main(evaluate, **values, pooling="max", sentence_vector="projected_mean")
    ((name, path, vectors),) = scored
    expected = SentenceEncoder.load(TRAINED, pooling="max", sentence_vector="projected_mean")
    np.testing.assert_allclose(vectors, expected.encode(TEXTS), atol=1e-5)
    assert name == "trained (pooling max, projected_mean)"
    # Results tell it also where `--name` gives another name.
    assert path == f"{TRAINED} (pooling max, projected_mean)"


def test_the_flag_lists_every_pooling():
    """A new pooling must be named in the help."""
    with flagsaver.flagsaver():
        evaluate.define_flags()
        text = flags.FLAGS["pooling"].help
    assert all(pooling in text for pooling in POOLINGS)
