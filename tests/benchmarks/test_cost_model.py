"""The cost model's counts against the real graph, the real model and loops over single products."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import tensorflow as tf
import tf_keras

from benchmarks.scaling.clusters import (
    Assumptions,
    InputCost,
    all_reduce_seconds,
    clusters,
    project,
)
from benchmarks.scaling.cost_model import (
    FLOAT,
    BatchShape,
    KernelCosts,
    ModelShape,
    activation_bytes,
    calibrated,
    checkpoint_bytes,
    cmlm_work,
    gather_bytes,
    kernel_seconds,
    ring_all_reduce_bytes,
    similarity_flops,
    step_seconds,
)
from benchmarks.scaling.training import RowCounter, model_shape
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.errors import UserError
from official_cmlm.modeling.projection import Projection
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.training.model import MultiObjectiveModel

# Sizes that are all different, so that a product tells by its dimensions what it is.
_CONFIG = EncoderConfig(
    vocab_size=53,
    hidden_size=12,
    num_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=31,
    type_vocab_size=7,
)
_N = 5
_PAIRS, _LENGTH = 2, 11
_MODEL = model_shape(_CONFIG, CmlmConfig(num_projections=_N))
_BASE = ModelShape(layers=12, hidden=768, inner=3072, heads=12, vocab=30522)


def _inputs():
    ids = tf.zeros([_PAIRS, _LENGTH], tf.int32)
    return {
        "input_word_ids": ids,
        "input_mask": tf.ones_like(ids),
        "input_type_ids": ids,
    }


def _operations(function):
    """FLOPs of all products that a concrete function's outputs need, from the graph's shapes."""
    seen, waiting, total = set(), [t.op for t in function.outputs], 0
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
        if op.type not in ("MatMul", "BatchMatMulV2", "Einsum"):
            continue
        shapes = [tensor.shape.as_list() for tensor in op.inputs]
        if _CONFIG.type_vocab_size in sum(shapes, []) + op.outputs[0].shape.as_list():
            continue  # the one-hot lookup of token types, which the model leaves out
        if op.type == "Einsum":
            labels = op.get_attr("equation").decode().split("->")[0].split(",")
            sizes = {k: n for names, shape in zip(labels, shapes) for k, n in zip(names, shape)}
            total += 2 * math.prod(sizes.values())
        else:
            transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
            contracted = shapes[0][-2 if transposed else -1]
            total += 2 * math.prod(op.outputs[0].shape.as_list()) * contracted
    return total


@pytest.fixture(scope="module")
def passes():
    """A call of both encoder passes of CMLM, and their trained weights."""
    encoder = SentenceEncoderModel(_CONFIG)
    projection = Projection(_N, _CONFIG.hidden_size)

    def outputs():
        vector = encoder(_inputs(), training=False)["vector"]
        dense = {**_inputs(), "dense_inputs": projection(vector)}
        return encoder(dense, training=False)["sequence_output"]

    return outputs, [*encoder.trainable_variables, *projection.trainable_variables]


def _encoding(work):
    return work.dense + work.attention + work.projection


def test_forward_operations_are_those_of_the_graph(passes):
    counted = _operations(tf.function(passes[0]).get_concrete_function())
    work = cmlm_work(_MODEL, BatchShape(_PAIRS, _LENGTH, 0))
    assert work.head == 0
    assert counted == _encoding(work)


def test_training_is_three_times_the_forward_pass(passes):
    outputs, variables = passes

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(outputs()))
        found = tape.gradient(loss, variables)
        return [tf.convert_to_tensor(gradient) for gradient in found]

    counted = _operations(step.get_concrete_function())
    work = cmlm_work(_MODEL, BatchShape(_PAIRS, _LENGTH, 0))
    assert counted == 3 * _encoding(work) == work.training_flops


def test_parameters_are_those_of_the_model():
    config = CmlmConfig(num_projections=_N)
    model = MultiObjectiveModel(SentenceEncoderModel(_CONFIG), {"cmlm": config})
    trained = sum(v.shape.num_elements() for v in model.trainable_variables)
    assert trained == _MODEL.parameters
    everything = sum(v.shape.num_elements() for v in model.variables)
    assert everything - trained == _MODEL.untrained_parameters


def test_parameters_of_bert_base():
    # BERT base has 109.48 M weights with 512 positions and the pooler (Devlin et al. 2019: 110 M).
    bert = dataclasses.replace(_BASE, positions=512, projections=1)
    head = 768 * 768 + 3 * 768 + 30522
    assert bert.parameters + bert.untrained_parameters - head == 109_482_240


@pytest.mark.parametrize("last_rows", [None, 6])
def test_work_counted_product_by_product(last_rows):
    predictions, model = 9, _MODEL
    batch = BatchShape(_PAIRS, _LENGTH, predictions, last_rows)
    h, f, d = model.hidden, model.inner, model.hidden // model.heads
    dense = attention = scores = hidden = inner = 0
    for length in (_LENGTH, _LENGTH + _N):
        hidden += _PAIRS * length * h
        for layer in range(model.layers):
            rows = _PAIRS * length
            if length != _LENGTH and layer == model.layers - 1 and last_rows is not None:
                rows = last_rows
            # Keys and values of every position; queries, outputs and feed-forward of some.
            dense += 2 * _PAIRS * length * (h * h + h * h)
            dense += 2 * rows * (h * h + h * h + h * f + f * h)
            for _ in range(model.heads):
                attention += 2 * rows * length * d + 2 * rows * length * d
                scores += rows * length
            hidden += 2 * rows * h
            inner += rows * f
    work = cmlm_work(model, batch)
    assert (work.dense, work.attention) == (dense, attention)
    assert (work.score_elements, work.hidden_elements) == (scores, hidden)
    assert work.inner_elements == inner
    assert work.head == sum(2 * h * h + 2 * h * model.vocab for _ in range(predictions))
    assert work.logit_elements == predictions * model.vocab


def test_ring_all_reduce_by_playing_it():
    replicas, chunks = 4, 4
    sent = [0] * replicas
    # Reduce-scatter, then all-gather: in each of R − 1 rounds everybody passes one chunk on.
    for _ in range(2 * (replicas - 1)):
        for replica in range(replicas):
            sent[replica] += 1
    parameters = 1000 * chunks
    assert ring_all_reduce_bytes(parameters, replicas) == sent[0] * 1000 * FLOAT
    assert ring_all_reduce_bytes(parameters, 1) == 0


def test_gather_and_similarities_by_hand():
    # 3 of 4 replicas' 8 vectors of width 16 for both sides, and as much back.
    assert gather_bytes(32, 16, 4) == 2 * 2 * (3 * 8) * 16 * 4
    # 8 anchors × 32 candidates × 16, both directions, three passes.
    assert similarity_flops(8, 32, 16) == 3 * 2 * (8 * 32 * 16 * 2)


def test_checkpoint_bytes_by_hand():
    weights = _MODEL.parameters + _MODEL.untrained_parameters
    assert checkpoint_bytes(_MODEL) == 4 * (weights + 2 * _MODEL.parameters)
    assert checkpoint_bytes(_MODEL, average=True) == 4 * (weights + 3 * _MODEL.parameters)


def test_activations_follow_the_published_formula():
    batch = BatchShape(pairs=3, length=256, predictions=0)
    published = sum(
        12 * s * 3 * 768 * (34 + 5 * 12 * s / 768) for s in (256, 256 + _BASE.projections)
    )
    assert activation_bytes(_BASE, batch) == pytest.approx(published)


def test_activations_that_are_computed_again():
    """One block's at a time; logits of one block of the vocabulary, with their gradient."""
    batch = BatchShape(pairs=3, length=256, predictions=0)
    block, rows = activation_bytes(_BASE, batch) / 12, (256 + 271) * 3 * 768 * 2
    attention = block - 17 * rows
    assert activation_bytes(_BASE, batch, remat="blocks") == pytest.approx(12 * rows + block)
    assert activation_bytes(_BASE, batch, remat="attention") == pytest.approx(
        12 * 17 * rows + attention
    )
    logits = dataclasses.replace(batch, predictions=10)
    for size, entries in ((0, _BASE.vocab), (1000, 1000), (10**9, _BASE.vocab)):
        more = activation_bytes(_BASE, logits, vocabulary_block=size) - 12 * block
        assert more == pytest.approx(2 * 4 * 10 * entries)


def _costs():
    return KernelCosts(
        dense={12: 1e9},
        projection={12: 2e9},
        logits={12: 3e9},
        hidden=1e-8,
        inner=2e-8,
        attended=3e-8,
        score=4e-8,
        logit=5e-8,
        parameter=6e-8,
    )


def test_calibration_finds_the_overhead_and_the_factor_that_made_the_times():
    truth = dataclasses.replace(_costs(), layer_overhead=2.0, factor=1.25)
    batches = [BatchShape(64, 24, 400), BatchShape(32, 48, 400, 90)]
    tiny = BatchShape(1, 2, 1)
    # The overhead is read from the tiny batch, whose kernels it swallows almost whole.
    found = calibrated(
        _costs(),
        _MODEL,
        (tiny, step_seconds(_MODEL, tiny, truth)),
        [(batch, step_seconds(_MODEL, batch, truth)) for batch in batches],
    )
    assert found.layer_overhead == pytest.approx(2.0, rel=1e-3)
    assert found.factor == pytest.approx(1.25, rel=0.05)


def test_kernel_seconds_add_up_by_hand():
    work = cmlm_work(_MODEL, BatchShape(4, 10, 6))
    seconds = kernel_seconds(_MODEL, BatchShape(4, 10, 6), _costs())
    assert seconds["products"] == 3 * work.dense / 1e9
    assert seconds["logits"] == pytest.approx(3 * work.head / 3e9 + 6 * 53 * 5e-8)
    assert seconds["optimizer"] == _MODEL.parameters * 6e-8


def test_all_reduce_of_hosts_takes_rings_within_and_between():
    one, _, many = clusters()
    assumed = Assumptions(link_efficiency=1.0)
    # 8 GB: 14/8 of it over NVLink; then each GPU's 1 GB 254/128 times over its network port.
    within, between = 14e9 / 300e9, (254 / 128) * 1e9 / 25e9
    assert all_reduce_seconds(one, 8e9, assumed) == pytest.approx(within)
    assert all_reduce_seconds(many, 8e9, assumed) == pytest.approx(within + between)


def test_a_step_waits_for_its_inputs_only_if_they_take_longer():
    one = clusters()[0]
    batch = BatchShape(2048, 256, 2048 * 80)
    free = project(one, _BASE, batch, InputCost(0.0, 0.0, 0.0))
    assert free.step == free.compute + free.all_reduce + free.update + free.checkpoint
    # All stages on 128 cores, or those of one thread of each of 16 streams.
    assert project(one, _BASE, batch, InputCost(1.0, 0.001, 0.0)).step == 2048 / 128
    assert project(one, _BASE, batch, InputCost(1.0, 0.5, 0.0)).step == 2048 / 2 / 16


def test_hosts_share_the_inputs():
    """Each makes its share; of more than 16 hosts each has one stream."""
    _, eight, many = clusters()
    batch = BatchShape(2048, 256, 2048 * 80)
    for cluster, streams in ((eight, 2), (many, 1)):
        found = project(cluster, _BASE, batch, InputCost(0.0, 1.0, 8.0))
        assert found.inputs == 2048 / cluster.hosts / streams
        assert found.record_bytes * found.step == 2048 / cluster.hosts * 8


class _Fake:
    """Counts like a model that computes the last block of `rows`, and logits of `logits`."""

    def __init__(self, rows, logits):
        layers = [tf_keras.layers.Layer() for _ in range(2)]
        block = SimpleNamespace(_output_layer_norm=layers[0])
        self.encoder = SimpleNamespace(bert=SimpleNamespace(transformer_layers=[None, block]))
        self.head = SimpleNamespace(layer_norm=layers[1])
        self._sizes = [*((layers[0], count) for count in rows), (layers[1], logits)]

    def __call__(self, batch, training):
        for layer, count in self._sizes:
            layer(tf.zeros([count, 4]))


def _batch(weights):
    weights = tf.constant(weights)
    ids = tf.zeros([weights.shape[0], 8], tf.int32)
    masked = {"masked_lm_weights": weights}
    return {"cmlm": {"first": {"input_word_ids": ids}, "second_masked": masked}}


def test_rows_are_counted_where_everything_is_computed():
    batch = _batch([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    # s1: 2 × 8 positions, s2: 2 × (8 + 5); logits of all six slots.
    found = RowCounter(_Fake([16, 26], 6)).batch_shape(batch)
    assert found == BatchShape(pairs=2, length=8, predictions=6, last_rows=None)


def test_rows_are_counted_where_only_masked_positions_are_computed():
    counter = RowCounter(_Fake([16, 3], 3))
    first = counter.batch_shape(_batch([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
    assert first == BatchShape(pairs=2, length=8, predictions=3, last_rows=3)
    # The rule of the first batch holds for the next.
    other = counter.batch_shape(_batch([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]))
    assert other == BatchShape(pairs=2, length=8, predictions=5, last_rows=5)


def test_rows_are_counted_where_the_last_block_follows_the_slots():
    counter = RowCounter(_Fake([16, 6], 3))
    counter.batch_shape(_batch([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
    other = counter.batch_shape(_batch([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]))
    assert other == BatchShape(pairs=2, length=8, predictions=5, last_rows=6)


def test_a_head_that_cannot_be_counted_is_an_error():
    fake = _Fake([16, 26], 6)
    fake.head.layer_norm = tf_keras.layers.Layer()
    with pytest.raises(UserError, match="head's layer norm"):
        RowCounter(fake).batch_shape(_batch([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
