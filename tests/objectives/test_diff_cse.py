"""DiffCSE: what the generator fills in, and the loss of finding it, against plain loops."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from experiments import registry
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, describe
from official_cmlm.checkpoints.encoder_weights import read_weights
from official_cmlm.checkpoints.find_encoder import find_encoder
from official_cmlm.checkpoints.weights import build, save_weights
from official_cmlm.modeling.bert import bert_variables
from official_cmlm.modeling.language_model_head import build_language_model_head
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel, encoder_variables
from official_cmlm.objectives.diff_cse import DiffCseConfig
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import tiny_encoder_config, write_encoder
from tests.modeling.helpers import NUM_HEADS, oracle_block, oracle_encoder, randomize
from tests.objectives.helpers import (
    Spy,
    embed,
    make_batch,
    make_task,
    random_model,
    refuses,
    train,
    value,
)
from tests.oracles import contrastive_numpy as oracle
from tests.training.helpers import data, task_config

# The settings of the paper's code.
REFERENCE = {"detection": "reference", "bernoulli_masking": True}
SMALL = {"lexical_layers": 1, "fusion_layers": 2}
WHOLE = {**REFERENCE, "discriminator": "whole", "generator": "a smaller one"}


def _write_generator(folder, vocabulary, seed=9, **shape):
    """Writes a language model of another shape than the encoder, without token types."""
    shape = {"hidden_size": 8, "num_layers": 1, "type_vocab_size": 0, "dropout_rate": 0.5} | shape
    config = tiny_encoder_config(vocab_size=len(vocabulary), **shape)
    model = randomize(SentenceEncoderModel(config), seed)
    head = randomize(build_language_model_head(model), seed)
    describe(folder, config, vocabulary, 12, for_sentences=False)
    save_weights(folder, model, head)
    return folder


@pytest.fixture(scope="module")
def generator(tmp_path_factory, vocabulary):
    return _write_generator(tmp_path_factory.mktemp("generator"), vocabulary)


def _task(folder, encoder=None, **settings):
    config = DiffCseConfig(**(SMALL | settings))
    return make_task(folder, "diff_cse", config, encoder)


def _model(folder, encoder=None, **settings):
    """Returns a model whose generator holds the starting weights, all of them random."""
    task = _task(folder, encoder, **settings)
    model = random_model(task)
    task.initialize(model)
    return model


def _fill(model, batch, name):
    """Fills one view with the most likely tokens of the model's own head, or the named one's."""
    masked, ids = batch[f"{name}_masked"], batch[name]["input_word_ids"].numpy()
    encoder, head = model.encoder, model.head
    if path := model.objectives["diff_cse"].config.generator:
        encoder, head = build(read_weights(EncoderDirectory.open(path), with_head=True))
    states = encoder(masked)["sequence_output"]
    everywhere = tf.broadcast_to(tf.range(ids.shape[1]), ids.shape)
    likely = head(states, masked_positions=everywhere).numpy().argmax(axis=-1)
    filled = ids.copy()
    for row, mask in enumerate(batch[name]["input_mask"].numpy()):
        places = range(1, int(mask.sum()))
        if model.objectives["diff_cse"].config.detection == "masked":
            slots = zip(*(masked[f"masked_lm_{n}"].numpy()[row] for n in ("positions", "weights")))
            places = [int(place) for place, weight in slots if weight]
        for place in places:
            filled[row, place] = likely[row, place]
    return filled


def _compute_embeddings(bert, config, ids):
    """Computes the first block's input for one sequence: `[seq, hidden]`."""
    weights = oracle_encoder(SimpleNamespace(bert=bert, config=config))
    rows = []
    for place, word in enumerate(ids):
        tables = weights["word_embeddings"][word], weights["position_embeddings"][place]
        row = sum(tables) + weights["type_embeddings"][0]
        row = (row - row.mean()) / math.sqrt(row.var() + 1e-12)
        rows.append(row * weights["embeddings_norm_gamma"] + weights["embeddings_norm_beta"])
    return np.stack(rows)


def _reference(model, batch, vectors):
    """Computes the mean loss a token, the share of right answers, and the number of tokens.

    Args:
      model, batch: the model, and what it reads.
      vectors: h of each view that is judged.
    """
    objective = model.objectives["diff_cse"]
    everywhere = objective.config.detection == "reference"
    whole = getattr(objective.auxiliary, "bert", None)
    layers = objective.auxiliary.fusion if whole is None else whole.transformer_layers
    blocks = [oracle_block(block) for block in layers]
    kernel, bias = (weight.numpy() for weight in objective.is_original.weights)
    if whole is not None:
        # Softmax over two logits is the sigmoid of their difference.
        kernel, bias = kernel[:, 1:] - kernel[:, :1], bias[1:] - bias[:1]
    losses, right = [], []
    for name, view in zip(("first", "second"), vectors):
        filled, originals = _fill(model, batch, name), batch[name]["input_word_ids"].numpy()
        outputs = model.encoder({**batch[name], "input_word_ids": tf.constant(filled)})
        lexical = outputs["encoder_outputs"][objective.config.lexical_layers - 1].numpy()
        if whole is not None:
            lexical = [_compute_embeddings(whole, model.encoder.config, ids) for ids in filled]
        for row, vector in enumerate(view):
            mask = batch[name]["input_mask"].numpy()[row]
            fused = oracle.fuse(vector, lexical[row], mask, blocks, NUM_HEADS, everywhere)
            for place in range(0 if everywhere else 1, len(fused)):
                logit = float(np.asarray(fused)[place] @ kernel[:, 0] + bias[0])
                original = filled[row, place] == originals[row, place]
                losses.append(math.log1p(math.exp(-logit if original else logit)))
                right.append((logit > 0) == original)
    return np.mean(losses), np.mean(right), len(losses)


@pytest.mark.parametrize(
    "settings",
    [
        {"replaced_token_weight": 1.0},
        {"replaced_token_weight": 0.005, "lexical_layers": 2, "contrastive_weight": 0.5},
        {"replaced_token_weight": 1.0, "conditioning": "vector"},
        {"replaced_token_weight": 1.0, "projection_head": "mlp"},
        {"replaced_token_weight": 1.0, **REFERENCE},
        {"replaced_token_weight": 1.0, **REFERENCE, "projection_head": "mlp"},
        {"replaced_token_weight": 1.0, "encoder": {"dense_size": 4}},
        {"replaced_token_weight": 1.0, **WHOLE},
        {"replaced_token_weight": 1.0, "discriminator": "whole", "encoder": {"dense_size": 4}},
    ],
)
def test_loss_equals_the_reference(records_dir, generator, settings):
    """L = L_contrast + λ · L_rtd: of one view and real tokens, or of both and all positions.

    Both views differ here, and h is the vector before the projection head or after it. A linear map
    brings it to the width of the lexical features, or of the whole BERT's first input.
    """
    settings = {"projection_head": "none", "augmentation": "word_deletion"} | settings
    if settings.get("generator"):
        settings["generator"] = str(generator)
    model = _model(records_dir, **settings)
    widened = model.objectives["diff_cse"].auxiliary.widened
    config = model.objectives["diff_cse"].config
    batch = make_batch(_task(records_dir, **settings), count=4)
    output = model({"diff_cse": batch})["diff_cse"]
    views = [embed(model, batch[name]) for name in ("first", "second")]
    compared = views
    if config.projection_head == "mlp":
        compared = [model.objectives["diff_cse"].projection_head(view).numpy() for view in views]
    contrast = np.mean(oracle.simcse(*compared, config.temperature))
    vectors = views if config.conditioning == "vector" else compared
    judged = vectors if config.detection == "reference" else vectors[:1]
    if widened is not None:
        kernel, bias = (weight.numpy() for weight in widened.weights)
        judged = [vectors @ kernel + bias for vectors in judged]
    replaced, accuracy, count = _reference(model, batch, judged)
    expected = config.contrastive_weight * contrast + config.replaced_token_weight * replaced
    assert float(output.loss) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert value(output, "replaced_token_loss") == pytest.approx(replaced, rel=1e-4)
    assert value(output, "replaced_token_accuracy") == pytest.approx(accuracy)
    assert float(output.metrics["replaced_token_loss"][1]) == count


@pytest.mark.parametrize("settings", [{}, REFERENCE], ids=["masked", "reference"])
def test_masked_words_are_filled_in(records_dir, settings):
    """Masked places only, or every token but the first, as training draws it; never padding."""
    dropout = {"dropout_rate": 0.5, "attention_dropout_rate": 0.5}
    model = _model(records_dir, dropout, **settings)
    batch = make_batch(_task(records_dir, dropout, **settings))
    objective, first = model.objectives["diff_cse"], batch["first"]

    def fill(training):
        encode = Spy(model.encoder, training)
        return objective.fill_in(first, batch["first_masked"], encode).numpy()

    np.testing.assert_array_equal(fill(None), _fill(model, batch, "first"))
    # In the reference's training the generator, too, has dropout.
    assert np.array_equal(fill(True), fill(None)) == (not settings)
    for training in (True, None):
        changed = fill(training) != first["input_word_ids"].numpy()
        masked = batch["first_masked"]["masked_lm_weights"].numpy().sum()
        assert (changed.sum() > masked) if settings else (0 < changed.sum() <= masked)
        assert not changed[:, 0].any() and not changed[first["input_mask"].numpy() == 0].any()


def test_each_view_has_a_masking_of_its_own(records_dir):
    """As published: equal views, of which different tokens are masked, by independent draws."""
    config = registry.load("diff_cse/bert_base").task.objectives.diff_cse
    config = DiffCseConfig(**config.as_dict() | SMALL | {"generator": ""})
    batch = make_batch(make_task(records_dir, "diff_cse", config), count=64)
    first, second = (batch[f"{name}_masked"] for name in ("first", "second"))
    assert np.array_equal(*(batch[name]["input_word_ids"] for name in ("first", "second")))
    chosen = [each["masked_lm_weights"].numpy().sum(axis=1) for each in (first, second)]
    assert not np.array_equal(*chosen)
    # 30 % of all tokens, with a standard deviation of 1.6 %; of a sequence, any number.
    candidates = batch["first"]["input_mask"].numpy().sum(axis=1) - 2
    share = sum(chosen).sum() / (2 * candidates.sum())
    assert abs(share - 0.3) < 0.06
    assert len({*(chosen[0] - np.round(0.3 * (candidates + 2)))}) > 3


def test_without_replaced_tokens(records_dir):
    """Weight 0 is SimCSE: no network is built, nothing is masked."""
    task = _task(records_dir, replaced_token_weight=0.0)
    model = random_model(task)
    assert model.head is None and model.objectives["diff_cse"].auxiliary is None
    assert "first_masked" not in make_batch(task)


def test_a_start_without_a_language_model_head_is_refused(exported, records_dir):
    """The generator would fill in nonsense."""
    task = make_task(
        records_dir,
        "diff_cse",
        DiffCseConfig(lexical_layers=1, fusion_layers=1),
        init_checkpoint=str(exported[0]),
    )
    refuses(lambda: task.initialize(task.build_model()), "no language-model head", "diff_cse")


def test_a_generator_has_its_own_dropout_and_keeps_its_weights(exported, records_dir, generator):
    """It is not the start, whose head is not needed: an encoder without one starts the training."""
    settings = {**SMALL, **WHOLE, "generator": str(generator)}
    task = make_task(
        records_dir, "diff_cse", DiffCseConfig(**settings), init_checkpoint=str(exported[0])
    )
    model, (loss,) = train(task, 1)
    objective, stored = model.objectives["diff_cse"], read_weights(EncoderDirectory.open(generator))
    assert model.head is None and math.isfinite(loss)
    for name, variable in encoder_variables(objective.generator).items():
        np.testing.assert_array_equal(variable, stored.encoder[name])
    # The discriminator starts as the encoder and learns.
    start = read_weights(EncoderDirectory.open(exported[0])).encoder
    for name, variable in bert_variables(objective.auxiliary.bert).items():
        moved = not np.array_equal(variable, start[name])
        assert moved == (not name.startswith("pooler")), name


def test_the_named_generator_takes_the_place_of_the_starts(
    records_dir, vocabulary, generator, tmp_path
):
    """A start that had DiffCSE too gives its other networks, though the shapes are equal."""
    settings = {**WHOLE, "generator": str(generator)}
    before = _model(records_dir, **settings)
    write_encoder(tmp_path / "start", vocabulary, model=before.encoder)
    checkpoint = tf.train.Checkpoint(model=before, **before.checkpoint_items)
    prefix = checkpoint.write(str(tmp_path / "start" / "ckpt-1"))
    other = _write_generator(tmp_path / "other", vocabulary, seed=10)
    config = DiffCseConfig(**{**settings, "generator": str(other)})
    task = make_task(records_dir, "diff_cse", config, init_checkpoint=prefix)
    model = task.build_model()
    task.initialize(model)
    objective, earlier = model.objectives["diff_cse"], before.objectives["diff_cse"]
    stored = read_weights(EncoderDirectory.open(other)).encoder["word_embeddings/embeddings"]
    np.testing.assert_array_equal(objective.generator.bert.get_embedding_table(), stored)
    for weights in zip(objective.is_original.weights, earlier.is_original.weights, strict=True):
        np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        (None, ["no-such-model", "installed package"]),
        ({"head": False}, ["no language-model head"]),
        ({"vocabulary": "mini-en"}, ["is for vocabulary", "the records have"]),
        ({"max_position_embeddings": 12}, ["has 12 positions", "task.train_data.seq_length is 24"]),
    ],
)
def test_unusable_generators_are_refused(records_dir, vocabulary, tmp_path, shape, parts):
    """When the task is built, before any weight is."""
    shape, name = dict(shape or {}), "no-such-model" if shape is None else str(tmp_path / "model")
    if shape.pop("head", True) is False:
        write_encoder(tmp_path / "model", vocabulary)
    elif shape:
        if shape.pop("vocabulary", None):
            vocabulary = EncoderDirectory.open(find_encoder("mini-en")).vocabulary
        _write_generator(tmp_path / "model", vocabulary, **shape)
    refuses(
        lambda: _task(records_dir, generator=name), "task.objectives.diff_cse.generator", *parts
    )


def test_padding_of_several_hosts_is_refused(records_dir):
    """The mean over all positions depends on it; XLA and buckets have one length on all hosts."""
    reference = DiffCseConfig(**SMALL, **REFERENCE)

    def check(config=reference, static_shapes=False, **settings):
        records = data(records_dir, streams=2, **settings)
        task = task_config(records_dir, {"diff_cse": config}, train_data=records)
        SentenceEncoderTask(task, static_shapes=static_shapes).check_padding()

    refuses(check, "task.train_data.streams", "diff_cse")
    check(static_shapes=True)
    check(bucket_boundaries=[12, 24])
    check(DiffCseConfig(**SMALL))
