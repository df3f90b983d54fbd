"""Tests of `encode` around the vectors: backends, long texts, prompts, streams, bits.

The toy backend's vector of a text is the mean of sines of the ids, so that expected values can be
computed. The calls are those of sentence-transformers, and of libraries that take its encoders.
"""

import functools
import itertools
import sys
import types
import warnings
from collections import deque

import numpy as np
import pytest

from export.service.embedder import TextEmbedder, TokenEmbedder
from official_cmlm.checkpoints.encoder_directory import (
    NO_SETTINGS,
    EncoderDirectory,
    EncodingSettings,
    describe,
    write_settings,
)
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import is_installed
from official_cmlm.configs.encoder import VectorOverride
from official_cmlm.encoding import backends
from official_cmlm.encoding.backends.tensorflow import TensorFlowBackend
from official_cmlm.encoding.encoders import _roles
from official_cmlm.encoding.sentence_encoder import SentenceEncoder, TextCutWarning
from official_cmlm.evaluation.encoder import OpenedEncoder
from official_cmlm.tokenization import load_vocabulary
from official_cmlm.vectors.embeddings import EmbeddingId, Ranges
from tests.checkpoints.helpers import REFERENCES
from tests.conftest import change_json, tiny_encoder_config, write_encoder

TEXTS = ["the cat ran", "a dog", "", "the bird sat under the tree", "a dog"]
DIMENSION = 10
FREQUENCIES = np.arange(1, DIMENSION + 1) / 7
LONG = "the cat ran to the dog and a bird sat on the mat under the tree slowly"


def vector(ids):
    """Returns the vector of a whole sequence, special tokens included."""
    return np.sin(np.outer(ids, FREQUENCIES) + FREQUENCIES).mean(axis=0)


class Waves:
    """The backend."""

    name, dimension, max_positions, padded_length = "waves", DIMENSION, 64, 0
    embedding_id = EmbeddingId()
    batch_tokens, call_tokens, concurrent = 64, 8, 2

    def embed(self, word_ids, lengths):
        assert word_ids.dtype == lengths.dtype == np.int32
        assert len(word_ids) == 1 or word_ids.size <= self.batch_tokens
        rows = [vector(row[:length]) for row, length in zip(word_ids, lengths)]
        return np.array(rows, np.float32).reshape([-1, DIMENSION])


@pytest.fixture
def encoder(vocabulary):
    return SentenceEncoder(Waves(), vocabulary, 12)


def compute_expected(encoder, ids):
    special = encoder.vocabulary.special_ids
    return vector([special["cls"], *ids, special["sep"]])


def ids_of(encoder, text):
    return encoder.vocabulary.tokenizer().tokenize([text]).to_list()[0]


def mean_of(encoder, ids, width, stride=None, prompt=()):
    """Returns the mean over windows of ids, each with the prompt, weighted by their lengths."""
    windows = [ids[start : start + width] for start in range(0, len(ids), stride or width)]
    # No window holds only what the one before has.
    while len(windows) > 1 and len(windows[-1]) <= width - (stride or width):
        windows.pop()
    vectors = [compute_expected(encoder, [*prompt, *window]) for window in windows]
    return np.average(vectors, axis=0, weights=[len(window) for window in windows])


def test_a_backend_gets_padded_ids(encoder, vocabulary):
    """Rows come back in the order of the texts; batches are as large as the backend wants."""
    texts = ["the cat sat", "", "a dog", LONG, "a"]
    rows = [compute_expected(encoder, ids_of(encoder, text)[:10]) for text in texts]
    np.testing.assert_allclose(encoder.encode(texts, on_long="ignore"), rows, atol=1e-6)
    with pytest.raises(UserError, match="waves has no Keras model"):
        _ = encoder.model
    with pytest.raises(ValueError, match="3 to 64"):
        SentenceEncoder(Waves(), vocabulary, 65)


def test_few_texts_of_many_lengths_are_computed_with_little_padding(vocabulary):
    """Padding costs as much as tokens do, and a further call as much as a few of them."""
    shapes = []

    class Noted(Waves):
        def embed(self, word_ids, lengths):
            shapes.append(word_ids.shape)
            return super().embed(word_ids, lengths)

    encoder = SentenceEncoder(Noted(), vocabulary, 64)
    texts = ["cat " * (1 + 7 * i % 60) for i in range(36)]
    vectors = encoder.encode(texts)
    lengths = encoder.count_tokens(texts)
    assert sum(rows * width for rows, width in shapes) <= sum(lengths) + 8 * len(shapes)
    assert len(shapes) < len(texts)
    np.testing.assert_array_equal(vectors, np.concatenate([encoder.encode([t]) for t in texts]))


def test_cut_texts_are_counted_in_one_warning(encoder):
    counts = encoder.count_tokens([LONG, "cat " * 30, "a cat"])
    with pytest.warns(TextCutWarning) as caught:
        encoder.encode([LONG, "a cat", "cat " * 30])
    assert [str(warning.message).partition(", which")[0] for warning in caught] == [
        f"2 of 3 texts have more than 12 tokens, together {counts[0] + counts[1] - 24} too many"
    ]
    assert caught[0].filename == __file__
    lost = caught[0].message
    assert (lost.texts, lost.tokens) == (2, counts[0] + counts[1] - 24)
    for call in (encoder.encode_query, encoder.encode_document):
        with pytest.warns(TextCutWarning) as caught:
            call([LONG])
        assert caught[0].filename == __file__


def test_any_collection_of_texts(encoder):
    texts = [LONG, "a cat", "the dog"]
    expected, lengths = encoder.encode(texts, on_long="ignore"), encoder.count_tokens(texts)
    # KeyBERT's words of a document come as an array of NumPy strings (`get_feature_names_out`).
    for make in (tuple, deque, iter, dict.fromkeys, np.array):
        with pytest.warns(TextCutWarning, match="1 of 3 texts"):
            np.testing.assert_array_equal(encoder.encode(make(texts)), expected)
        np.testing.assert_array_equal(encoder.count_tokens(make(texts)), lengths)
    with pytest.warns(TextCutWarning, match="1 of 3 texts"):
        assert encoder.encode(set(texts)).shape == expected.shape
    with pytest.raises(TypeError):
        encoder.encode(3)


def test_text_of_exactly_the_length_is_not_cut(encoder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode(["cat " * 10, ""], on_long="cut")
        encoder.encode([LONG], on_long="ignore")
    encoder.encode(["cat " * 10], on_long="error")
    with pytest.raises(UserError, match="1 of 1 texts have more than 12 tokens, together 1 too"):
        encoder.encode(["cat " * 11], on_long="error")


def test_untokenised_text_is_counted_as_at_least():
    """A byte-level vocabulary tokenises only what can count; the rest has an unknown number."""
    encoder = SentenceEncoder(Waves(), load_vocabulary(REFERENCES / "roberta"), 12)
    most = encoder.vocabulary.most_bytes(12)
    with pytest.raises(UserError, match=r"1 of 2 texts .* at least \d+ too many"):
        encoder.encode(["a" * (most + 1), "a"], on_long="error")


@pytest.mark.parametrize("overlap", [None, 0, 1, 4, 9])
def test_long_texts_are_the_mean_over_windows(encoder, overlap):
    """The mean equals its definition, with and without overlap, over several batches."""
    stride = 10 - (1 if overlap is None else overlap)
    mean = mean_of(encoder, ids_of(encoder, LONG), 10, stride)
    vectors = encoder.encode_long([LONG, "a cat", "", LONG], overlap=overlap, batch_size=2)
    np.testing.assert_allclose(vectors[[0, 3]], [mean, mean], atol=1e-6)
    np.testing.assert_array_equal(vectors[1:3], encoder.encode(["a cat", ""]))
    vector_of_one = encoder.encode_long(LONG, overlap=overlap, normalize_embeddings=True)
    np.testing.assert_allclose(vector_of_one, mean / np.linalg.norm(mean), atol=1e-6)


def test_the_prompt_stands_before_every_window(encoder):
    encoder.prompts["query"] = "a dog . "
    prompt, ids = ids_of(encoder, "a dog ."), ids_of(encoder, LONG)
    mean = mean_of(encoder, ids, 10 - len(prompt), prompt=prompt)
    vectors = encoder.encode_long([LONG, "a cat"], overlap=0, prompt_name="query")
    np.testing.assert_allclose(vectors[0], mean, atol=1e-6)
    np.testing.assert_array_equal(vectors[1], encoder.encode_query(["a cat"])[0])


def test_prompt_may_be_joined_to_the_text():
    """Byte pairs join the prompt's last space to the next word; no token is there twice."""
    vocabulary = load_vocabulary(REFERENCES / "roberta")
    encoder = SentenceEncoder(Waves(), vocabulary, 12)
    prompt = "the: "
    alone = ids_of(encoder, prompt)
    texts = [LONG, "the", ""]
    rows = [ids_of(encoder, prompt + text) for text in texts]
    # The space is a token of its own where no word follows, and only there.
    head = alone[:-1]
    assert rows[0][: len(head)] == head and rows[0][len(head)] != alone[-1]
    mean = mean_of(encoder, rows[0][len(head) :], 10 - len(head), prompt=head)
    vectors = encoder.encode_long(texts, overlap=0, prompt=prompt)
    np.testing.assert_allclose(vectors[0], mean, atol=1e-6)
    np.testing.assert_array_equal(vectors[1:], encoder.encode(texts[1:], prompt=prompt))
    # A text that fits exactly into one window is one.
    exact = next(
        LONG[:end]
        for end in range(len(LONG), 0, -1)
        if len(ids_of(encoder, prompt + LONG[:end])) == 10
    )
    np.testing.assert_array_equal(
        encoder.encode_long([exact], prompt=prompt),
        encoder.encode([exact], prompt=prompt, on_long="error"),
    )


def test_windows_of_an_encoder_of_unit_vectors(vocabulary):
    class Unit(Waves):
        def embed(self, word_ids, lengths):
            vectors = super().embed(word_ids, lengths)
            return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    encoder = SentenceEncoder(Unit(), vocabulary, 12, settings=EncodingSettings(normalize=True))
    vectors = encoder.encode_long([LONG, "a cat"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_overlaps_without_a_stride_are_refused(encoder):
    assert encoder.encode_long([]).shape == (0, DIMENSION)
    for options in ({"overlap": 10}, {"overlap": -1}, {"prompt": "cat " * 10}):
        with pytest.raises(ValueError, match="overlap must be 0 to"):
            encoder.encode_long([LONG], **options)
    with pytest.raises(TypeError, match="strings"):
        encoder.encode_long([LONG, b"x"])


def test_prompts_are_text_before_the_text(encoder):
    """Asked for by name, given, left out; a role's own before the default one."""
    encoder.prompts |= {"query": "the ", "passage": "a ", "other": "to "}
    texts = ["cat", "bird sat"]

    def plain(prompt):
        return encoder.encode([prompt + text for text in texts])

    for vectors, prompt in (
        (encoder.encode(texts, prompt_name="other"), "to "),
        (encoder.encode(texts, prompt="under "), "under "),
        (encoder.encode(texts, prompt_name="other", prompt="under "), "under "),
        (encoder.encode_query(texts), "the "),
        (encoder.encode_query(texts, prompt_name="other"), "to "),
        (encoder.encode_query(texts, prompt=""), ""),
        (encoder.encode_document(texts), "a "),
        (encoder.encode_document(texts, prompt="to "), "to "),
    ):
        np.testing.assert_array_equal(vectors, plain(prompt))
    encoder.prompts["document"] = "on "
    np.testing.assert_array_equal(encoder.encode_document(texts), plain("on "))
    with pytest.raises(UserError, match="no prompt 'question'; the encoder has document, other"):
        encoder.encode(texts, prompt_name="question")


def test_tokens_are_counted_with_the_prompt(encoder):
    encoder.prompts |= {"query": "the old ", "other": "a "}
    texts = ["cat", "bird sat"]
    assert encoder.count_tokens(texts).tolist() == [3, 4]
    encoder.default_prompt_name = "other"
    assert encoder.count_tokens(texts).tolist() == [4, 5]
    assert encoder.count_tokens(texts, prompt_name="query").tolist() == [5, 6]
    assert encoder.count_tokens(texts, prompt="").tolist() == [3, 4]


def test_rows_of_ids_have_the_vectors_of_their_texts(encoder):
    """Prompts are those of `encode` and its siblings, and long rows are cut alike."""
    encoder.prompts |= {"query": "the ", "other": "to "}
    encoder.default_prompt_name = "other"
    texts = ["cat", "", "a bird sat " * 20]
    for chosen, method in (
        ({}, encoder.encode),
        ({"role": "query"}, encoder.encode_query),
        ({"role": "document"}, encoder.encode_document),
        ({"prompt_name": "query"}, encoder.encode_query),
    ):
        rows = encoder.token_rows(texts, **chosen)
        expected_vectors = method(texts, on_long="ignore")
        np.testing.assert_allclose(encoder.encode_rows(rows), expected_vectors, atol=1e-6)
    assert encoder.encode_rows(encoder.token_rows([])).shape == (0, DIMENSION)


def test_the_service_takes_its_own_token_ids_and_no_others(encoder):
    embedder, special = TokenEmbedder(encoder, "toy"), encoder.vocabulary.special_ids
    rows = encoder.token_rows(["cat", "a bird sat"], prompt="").to_list()
    requested = embedder.read_ids([[special["cls"], *row, special["sep"]] for row in rows])
    expected_vectors = encoder.encode(["cat", "a bird sat"], prompt="")
    np.testing.assert_allclose(embedder.embed(requested.items), expected_vectors, atol=1e-6)
    assert requested.tokens.tolist() == encoder.count_tokens(["cat", "a bird sat"]).tolist()
    for wrong in (rows[0], [], [special["cls"], 1 << 40, special["sep"]]):
        with pytest.raises(UserError, match="^input 1 "):
            embedder.read_ids([[special["cls"], special["sep"]], wrong])


def test_the_service_takes_the_default_prompt_or_that_of_the_request(encoder):
    """Through rows of ids, and through an encoder that tokenises its texts itself."""
    encoder.prompts |= {"query": "the ", "other": "to "}
    encoder.default_prompt_name = "other"
    encode = functools.partial(encoder.encode, on_long="ignore")
    opened = OpenedEncoder(
        "toy", "encoder_directory", "", encode, None, _roles(encoder, encode, on_long="ignore"), 12,
        functools.partial(encoder.count_tokens, prompt=""), prompt="to ",
    )  # fmt: skip
    for embedder in (TokenEmbedder(encoder, "toy"), TextEmbedder(opened)):
        for chosen, prompt in (
            ({}, "to "),
            ({"prompt_name": "query"}, "the "),
            ({"prompt_name": "other"}, "to "),
            ({"role": "query"}, "the "),
            ({"role": "document"}, ""),
        ):
            rows = embedder.read(["cat", "bird"], **chosen)
            expected_vectors = encoder.encode([prompt + "cat", prompt + "bird"], prompt="")
            np.testing.assert_allclose(embedder.embed(rows.items), expected_vectors, atol=1e-6)
            counted = encoder.count_tokens([prompt + "cat", prompt + "bird"], prompt="")
            assert rows.tokens.tolist() == counted.tolist()
        with pytest.raises(UserError, match="no prompt 'no'; the encoder has .*query"):
            embedder.read(["cat"], prompt_name="no")


def test_shortened_then_scaled_then_quantised(encoder):
    """In this order, as sentence-transformers does it."""
    texts = ["the cat", "a dog", "bird", ""]
    whole = encoder.encode(texts)
    short = encoder.encode(texts, truncate_dim=4)
    np.testing.assert_array_equal(short, whole[:, :4])
    scaled = encoder.encode(texts, truncate_dim=4, normalize_embeddings=True)
    norms = np.linalg.norm(short, axis=1, keepdims=True)
    np.testing.assert_allclose(scaled, short / norms, atol=1e-6)
    bits = encoder.encode(texts, precision="ubinary", truncate_dim=9)
    np.testing.assert_array_equal(bits, np.packbits(whole[:, :9] > 0, axis=1))
    for empty in (encoder.encode([], truncate_dim=9, precision="ubinary"), bits[:0]):
        assert empty.shape == (0, 2) and empty.dtype == np.uint8
    for bad in (0, DIMENSION + 1):
        with pytest.raises(ValueError, match="truncate_dim must be 1 to 10"):
            encoder.encode(texts, truncate_dim=bad)


def test_eight_bits_do_not_depend_on_the_batch(encoder, tmp_path):
    with pytest.raises(ValueError, match="is one of embeddings: encode"):
        SentenceEncoder.load(tmp_path, precision="ubinary")
    encoder.calibrate(["the cat", "a dog", "bird", "", LONG], on_long="ignore")
    both = encoder.encode(["a cat", "the dog"], precision="int8")
    assert both.dtype == np.int8 and both.shape == (2, DIMENSION)
    np.testing.assert_array_equal(encoder.encode(["the dog"], precision="int8"), both[1:])
    with pytest.raises(UserError, match="calibrate with these settings"):
        encoder.encode(["a cat"], precision="int8", normalize_embeddings=True)


def test_similarity_is_computed_by_the_encoders_function(encoder):
    a, b = encoder.encode(["a cat"]), encoder.encode(["a dog", "bird"])
    cosines = a @ b.T / np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
    np.testing.assert_allclose(encoder.similarity(a, b), cosines, atol=1e-6)
    encoder.similarity_fn_name = "dot"
    np.testing.assert_allclose(encoder.similarity(a, b), a @ b.T, atol=1e-6)
    np.testing.assert_allclose(encoder.similarity_pairwise(a, b[:1]), (a @ b.T)[0, :1], atol=1e-6)


@pytest.fixture
def folder(tmp_path, vocabulary):
    config = tiny_encoder_config(vocab_size=len(vocabulary), normalize=True)
    describe(tmp_path, config, vocabulary, 32)
    return tmp_path


def test_load_asks_the_backend_of_that_name(folder, vocabulary, monkeypatch):
    asked = []

    def open_folder(*arguments):
        asked.append(arguments)
        return backends.OpenedFolder(Waves(), vocabulary, arguments[1].max_seq_length, NO_SETTINGS)

    monkeypatch.setitem(backends.BACKENDS, "waves", "waves")
    monkeypatch.setitem(sys.modules, "waves", types.SimpleNamespace(open_folder=open_folder))
    encoder = SentenceEncoder.load(folder, 9, "int8", "cls", backend="waves")
    assert asked == [(folder, backends.Computation(9, "int8", VectorOverride("cls")))]
    assert encoder.max_seq_length == 9 and encoder.backend.name == "waves"
    with pytest.raises(UserError, match="'abacus': no such backend; take one of tensorflow"):
        SentenceEncoder.load(folder, backend="abacus")


def test_directory_is_read_whole(folder, vocabulary):
    """Only None stands for the folder's own length, so that callers can refuse 0."""
    directory = EncoderDirectory.open(folder)
    assert (directory.length(None), directory.length(0)) == (32, 0)
    assert directory.config == tiny_encoder_config(vocab_size=len(vocabulary), normalize=True)
    assert directory.max_seq_length == 32 and directory.checkpoint is None
    assert directory.vocabulary.hash == vocabulary.hash
    change_json(folder / "encoder_config.json", encoder={"hidden_size": "wide"})
    with pytest.raises(UserError, match="encoder: hidden_size must be int"):
        EncoderDirectory.open(folder)


def test_settings_are_stored_in_the_directory(encoder, folder, vocabulary):
    assert EncoderDirectory.open(folder).settings == EncodingSettings(normalize=True)
    encoder.prompts |= {"query": "the ", "all": ""}
    encoder.default_prompt_name, encoder.similarity_fn_name = "all", "dot"
    encoder.calibrate(["the cat", "a dog"])
    encoder.save_settings(folder)
    # A training that begins in the directory writes its description again.
    describe(folder, tiny_encoder_config(vocab_size=len(vocabulary), normalize=True), vocabulary)
    stored = EncoderDirectory.open(folder).settings
    assert stored.prompts == {"query": "the ", "all": ""} and stored.default_prompt_name == "all"
    assert stored.similarity_fn_name == "dot" and stored.normalize
    np.testing.assert_array_equal(stored.ranges.low, encoder.ranges.low)
    again = SentenceEncoder(Waves(), vocabulary, 12, settings=stored)
    np.testing.assert_array_equal(again.encode_query(["cat"]), encoder.encode(["the cat"]))


@pytest.mark.parametrize(
    "values, says",
    [
        ({"prompts": ["query: "]}, "prompts must be name -> string"),
        ({"prompts": {"query": 3}}, "prompts must be name -> string"),
        ({"default_prompt_name": "q"}, "default_prompt_name 'q' must be one of its prompts"),
        ({"similarity_fn_name": "near"}, "similarity_fn_name must be one of cosine, dot"),
        ({"similarity_fn_name": ["dot"]}, "similarity_fn_name must be one of cosine, dot"),
    ],
)
def test_invalid_settings_are_refused(folder, values, says):
    change_json(folder / "encoder_config.json", **values)
    with pytest.raises(UserError, match=says):
        _ = EncoderDirectory.open(folder).settings
    with pytest.raises(UserError, match=says):
        write_settings(folder, EncodingSettings(**values))


@pytest.mark.parametrize(
    "pooling, weights, is_taken", [("mean", "a", 1), ("max", "a", 0), ("mean", "b", 0)]
)
def test_exports_take_only_ranges_of_their_vector(pooling, weights, is_taken):
    ranges = Ranges.of(np.eye(3), origin=EmbeddingId("mean", "pooled", "a"))
    settings = EncodingSettings({"query": "q"}, ranges=ranges, weights=weights)
    exported = settings.for_export(pooling, "pooled")
    assert exported.prompts == {"query": "q"} and (exported.ranges is not None) == is_taken
    if is_taken:
        assert exported.ranges.origin == EmbeddingId("mean", "pooled")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, vocabulary):
    folder = write_encoder(tmp_path_factory.mktemp("encoder"), vocabulary, 32)
    return SentenceEncoder.load(folder, backend="tensorflow")


def test_a_string_has_a_vector(encoder):
    for encode in (encoder.encode, encoder.encode_query, encoder.encode_document):
        row = encode("a dog")
        assert row.shape == (DIMENSION,)
        np.testing.assert_array_equal(row, encode(["a dog"])[0])


def test_names_of_the_class(encoder, loaded):
    assert encoder.get_sentence_embedding_dimension() == DIMENSION
    assert encoder.device == "cpu" and loaded.device.lower() == "cpu"
    encoder.encode(TEXTS, device="cpu")
    with pytest.raises(UserError, match="device=cuda:1: the encoder is on cpu; .*load"):
        encoder.encode(TEXTS, device="cuda:1")
    for bad in ({"output_value": "logits"}, {"on_long": "raise"}, {"precision": "int4"}):
        with pytest.raises(ValueError, match="must be one of"):
            encoder.encode(TEXTS, **bad)


def test_tokenize(encoder):
    inputs = encoder.tokenize(["the cat ran", "dog"])
    ids = encoder.vocabulary.tokens.index
    row = [ids(token) for token in ("[CLS]", "the", "cat", "ran", "[SEP]")]
    assert inputs["input_ids"].tolist()[0] == row
    assert inputs["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0]]
    assert {array.dtype for array in inputs.values()} == {np.dtype(np.int64)}
    for call in (encoder.tokenize, encoder.count_tokens, encoder.inputs):
        with pytest.raises(TypeError, match="single string"):
            call("dog")


def test_tensors_of_torch(encoder):
    if not is_installed("torch"):
        with pytest.raises(UserError, match="needs the package torch, which is not installed"):
            encoder.encode(TEXTS, convert_to_tensor=True)
    else:
        import torch

        tensor = encoder.encode(TEXTS, convert_to_tensor=True)
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_array_equal(tensor.numpy(), encoder.encode(TEXTS))
    with pytest.raises(UserError, match="convert_to_tensor=True"):
        encoder.encode(TEXTS, convert_to_numpy=False)


def test_embeddings_of_tokens(loaded):
    """Their mean is the vector of an encoder with that pooling; padding is left out."""
    tokens = loaded.encode(TEXTS, output_value="token_embeddings", batch_size=2)
    assert [len(rows) for rows in tokens] == loaded.count_tokens(TEXTS).tolist()
    means = np.stack([rows.mean(axis=0) for rows in tokens])
    np.testing.assert_allclose(means, loaded.encode(TEXTS), atol=1e-5)
    alone = loaded.encode("a dog", output_value="token_embeddings")
    np.testing.assert_allclose(alone, tokens[1], atol=1e-5)
    assert isinstance(loaded.backend, TensorFlowBackend)
    with pytest.raises(ValueError, match="are for sentence_embedding"):
        loaded.encode(TEXTS, output_value="token_embeddings", precision="int8")


def test_a_backend_without_embeddings_of_tokens(encoder):
    with pytest.raises(UserError, match="the backend waves has none"):
        encoder.encode(TEXTS, output_value="token_embeddings")


@pytest.mark.parametrize("window", [1, 4, 1000])
def test_a_stream_gives_the_rows_of_encode(encoder, monkeypatch, window):
    from official_cmlm.encoding import token_batches

    texts = [f"{text} {'cat ' * (i % 5)}" for i, text in enumerate(TEXTS * 9)]
    options = {"normalize_embeddings": True, "truncate_dim": 4, "prompt": "the ", "batch_size": 3}
    expected = encoder.encode(texts, **options)
    monkeypatch.setattr(token_batches, "_WINDOW", window)
    rows = list(encoder.encode_iter(iter(texts), **options))
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    assert list(encoder.encode_iter([])) == []


def test_an_endless_stream_is_read_a_little_ahead(encoder, monkeypatch):
    from official_cmlm.encoding import token_batches

    monkeypatch.setattr(token_batches, "_WINDOW", 8)
    read = []
    texts = (read.append(i) or f"{'cat ' * (i % 3)}dog" for i in itertools.count())
    stream = encoder.encode_iter(texts, batch_size=4)
    first = list(itertools.islice(stream, 20))
    assert len(first) == 20 and len(read) < 60
    stream.close()


def test_a_stream_warns_after_its_end_and_refuses_early(encoder):
    with pytest.warns(TextCutWarning, match="1 of 2 texts have more than 12") as caught:
        list(encoder.encode_iter([LONG, "a dog"]))
    assert caught[0].filename == __file__
    with pytest.raises(UserError, match="1 of 2 texts"):
        list(encoder.encode_iter([LONG, "a dog"], on_long="error"))
    with pytest.raises(TypeError, match="item 1 is int"):
        list(encoder.encode_iter(["a", 1]))
    with pytest.raises(TypeError, match="single string"):
        encoder.encode_iter("a dog")
    with pytest.raises(ValueError, match="truncate_dim"):
        encoder.encode_iter(["a dog"], truncate_dim=99)


def test_processes_need_a_loaded_encoder(encoder):
    with pytest.raises(UserError, match="make it by SentenceEncoder.load"):
        encoder.start_multi_process_pool()


@pytest.mark.long
def test_processes_compute_the_same(loaded):
    loaded.prompts["query"] = "the "
    pool = loaded.start_multi_process_pool(["cpu", "cpu"])
    try:
        texts = TEXTS * 20
        for options in ({}, {"prompt_name": "query"}, {"output_value": "token_embeddings"}):
            expected = loaded.encode(texts, batch_size=8, **options)
            by_pool = loaded.encode(texts, batch_size=8, pool=pool, **options)
            for row, other in zip(by_pool, expected, strict=True):
                np.testing.assert_allclose(row, other, atol=1e-5)
    finally:
        loaded.stop_multi_process_pool(pool)
