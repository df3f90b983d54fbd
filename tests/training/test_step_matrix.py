"""A step computed in another way gives the loss, gradients and metrics of the plain step.

Objectives × variations: chunks, rematerialised blocks, a vocabulary in blocks, replicas, XLA, and
their combinations. The plain step of an objective, on one device, eager, with every kind of
dropout, is computed once. The fast suite has all objectives with the two variations that combine
the most, each with one of them; `make test-long` has the product, of compiled uneven chunks a part.
"""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.objectives.masked_prediction import MaskingConfig
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import randomize
from tests.objectives.helpers import refuses
from tests.training.all_objectives import SETTINGS, task_of, unequal_batch
from tests.training.helpers import DROPOUT
from tests.training.step_values import check_equal, replica_values, step_of_any_size, step_values

MASKING = [name for name, config in SETTINGS.items() if isinstance(config, MaskingConfig)]
# The vocabulary has more entries, and not a multiple of it.
BLOCK = 30
# Name of a case -> objective and its settings.
CASES = {
    **{name: (name, {}) for name in SETTINGS},
    # At 0.15 the masked tokens of both replicas are equally many.
    "declutr": ("declutr", {"masking_rate": 0.4}),
    "quick_thought_runs": (
        "quick_thought",
        {"batches": "runs", "margin": 0.0, "context_size": 2, "matryoshka_dims": [4, 8]},
    ),
    "diff_cse_reference": (
        "diff_cse",
        {"detection": "reference", "bernoulli_masking": True, "conditioning": "vector"},
    ),
    "diff_cse_whole": ("diff_cse", {"detection": "reference", "discriminator": "whole"}),
    "batch_norm": ("contrastive", {"projection_head": "batch_norm_mlp"}),
    "contrastive_both_views": (
        "contrastive",
        {
            "negatives": "both_views",
            "bidirectional": True,
            "controlled_dropout": True,
            "projection_head": "none",
            "matryoshka_dims": [4, 8],
        },
    ),
}


@dataclasses.dataclass(frozen=True)
class Variation:
    """A way of computing a step.

    Attributes:
      chunk_size: examples at a time; 0: all.
      remat: the encoder's `remat`.
      vocabulary: whether the language-model head reads the vocabulary in blocks.
      replicas: whether two replicas have half of the batch each.
      compiled: whether XLA compiles the step, with static shapes.
    """

    chunk_size: int = 0
    remat: str = "none"
    vocabulary: bool = False
    replicas: bool = False
    compiled: bool = False

    @property
    def id(self) -> str:
        return "-".join(
            name if value is True else f"{name}_{value}"
            for name, value in vars(self).items()
            if value not in (0, "none")
        )


PLAIN = Variation()
# In the fast suite each objective has one of them: 8 examples in chunks of 3, 3 and 2, or on two
# replicas.
CHUNKS, REPLICAS = Variation(3, "blocks", vocabulary=True), Variation(replicas=True)
IN_CHUNKS = ("cmlm", "contrastive", "declutr", "distillation", "nli", "quick_thought")
VARIATIONS = (
    CHUNKS,
    REPLICAS,
    Variation(3),
    Variation(50),
    Variation(remat="blocks"),
    Variation(remat="attention"),
    Variation(3, "attention"),
    Variation(vocabulary=True),
    Variation(3, replicas=True),
    Variation(remat="attention", replicas=True),
    Variation(2, "blocks", vocabulary=True, replicas=True),
)
# Each compiles for ten seconds or more. Chunks are of 3, 3 and 2 examples, or of 4 and 4. XLA keeps
# its steps until the process ends, 0.4 GB each in uneven chunks: not all objectives have these.
UNEVEN = Variation(3, compiled=True)
COMPILED = (
    Variation(4, "blocks", vocabulary=True, compiled=True),
    Variation(compiled=True),
    UNEVEN,
    Variation(remat="blocks", compiled=True),
    Variation(remat="attention", compiled=True),
    Variation(vocabulary=True, compiled=True),
)


def _fast(case: str) -> Variation | None:
    if case in IN_CHUNKS:
        return CHUNKS
    return REPLICAS if case in SETTINGS or case == "batch_norm" else None


def _cases(variations: tuple[Variation, ...]) -> list:
    return [
        pytest.param(
            case,
            variation,
            id=f"{case}-{variation.id}",
            marks=() if variation == _fast(case) else pytest.mark.long,
        )
        for case in CASES
        for variation in variations
        # Without a language-model head it would be the same step.
        if CASES[case][0] in MASKING or not variation.vocabulary or variation.chunk_size
        if variation != UNEVEN or case in IN_CHUNKS
        # Its statistics are those of the whole batch.
        if case != "batch_norm" or not variation.chunk_size
    ]


def _task(folders, case: str, variation: Variation):
    name, settings = CASES[case]
    if variation.vocabulary and name in MASKING:
        settings = {**settings, "vocabulary_block_size": BLOCK}
    layers = 2 if name == "mlm" else 1
    encoder = {**DROPOUT, "num_layers": layers, "remat": variation.remat}
    return task_of(folders, name, encoder, variation.compiled, **settings)


def _model(folders, case: str, variation: Variation = PLAIN):
    task = _task(folders, case, variation)
    model = randomize(task.build_model())
    if CASES[case][0] == "diff_cse":
        # The generator's random weights are those of the model, as after a start.
        task.initialize(model)
    return model


@functools.cache
def plain(folders, case: str, policy: str = "float32") -> tuple[dict, list[np.ndarray]]:
    """Returns a batch and the values of its plain step; `policy` is that of the computation."""
    assert tf_keras.mixed_precision.global_policy().name == policy
    features = unequal_batch(_task(folders, case, PLAIN), CASES[case][0])
    model = _model(folders, case)
    expected = [value.numpy() for value in step_values(model, features)]
    gradients = expected[1 : 1 + len(model.trainable_variables)]
    assert len(expected) > 1 + len(gradients)
    # All but the keys' biases and rows of tables that no batch needs; the head of DiffCSE's
    # generator is a copy of the model's, which then does not learn.
    unused = 4 + (5 if CASES[case][0] == "diff_cse" else 0)
    assert sum(np.abs(g).max() > 1e-4 for g in gradients) >= len(gradients) - unused
    return features, expected


def _forbid_whole_logits(model, monkeypatch) -> None:
    """Lets a call of a head that returns logits fail."""
    heads = [model.head]
    if "diff_cse" in model.objectives:
        heads.append(model.objectives["diff_cse"].generator_head)
    for head in heads:
        before = head.call

        def call(outputs, masked_positions, factors=False, before=before):
            assert factors
            return before(outputs, masked_positions, factors)

        monkeypatch.setattr(head, "call", call)


@pytest.mark.parametrize(("case", "variation"), _cases(VARIATIONS))
def test_eager(folders, case, variation, monkeypatch):
    """Loss, every gradient and every metric, on each replica."""
    features, expected = plain(folders, case)
    if variation.replicas:
        make = functools.partial(_model, folders, case, variation)
        results = replica_values(_model(folders, case), features, make, variation.chunk_size)
    else:
        model = _model(folders, case, variation)
        if variation.vocabulary and CASES[case][0] in MASKING:
            _forbid_whole_logits(model, monkeypatch)
        results = [step_values(model, features, variation.chunk_size)]
    for values in results:
        check_equal(values, expected, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(("case", "variation"), _cases(COMPILED))
def test_compiled(folders, case, variation):
    """XLA draws the same dropout masks in both computations of a block or a chunk."""
    features, expected = plain(folders, case)
    model = _model(folders, case, variation)
    compiled = tf.function(step_values, jit_compile=True)
    check_equal(compiled(model, features, variation.chunk_size), expected, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "compiled"),
    [*((case, None) for case in CASES if case != "batch_norm"), ("contrastive", True)],
)
def test_chunks_of_batches_of_any_size(folders, case, compiled):
    """A graph as a training traces it, which does not know how large its batches will be.

    XLA learns the sizes of batches, and so of chunks, when the graph is there.
    """
    features, expected = plain(folders, case)
    model = _model(folders, case, Variation(compiled=bool(compiled)))
    step = step_of_any_size(model, features, jit_compile=compiled)
    check_equal(step(features), expected, rtol=1e-4)
    if compiled:
        smaller = tf.nest.map_structure(lambda value: value[:7], features)
        check_equal(step(smaller), step_values(model, smaller), rtol=1e-4)


@pytest.mark.parametrize(
    "variation",
    [
        pytest.param(Variation(remat="blocks"), id="remat_blocks", marks=pytest.mark.long),
        pytest.param(Variation(remat="attention"), id="remat_attention", marks=pytest.mark.long),
        pytest.param(Variation(vocabulary=True), id="vocabulary"),
    ],
)
def test_half_precision(folders, bfloat16, variation):
    """Gradients of float32 weights that are read as bfloat16."""
    features, expected = plain(folders, "mlm", "mixed_bfloat16")
    actual = step_values(_model(folders, "mlm", variation), features)
    assert {value.dtype for value in actual} == {tf.float32}
    if not variation.vocabulary:
        check_equal(actual, expected, rtol=1e-2)
        return
    assert float(actual[0]) == pytest.approx(float(expected[0]), rel=1e-4)
    # Some gradients are rounding alone, so all are measured together.
    both = [np.concatenate([np.ravel(value) for value in each[1:]]) for each in (actual, expected)]
    assert np.linalg.norm(both[0] - both[1]) < 0.01 * np.linalg.norm(both[1])


# Declutr predicts and compares.
@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=() if c == "declutr" else pytest.mark.long) for c in CASES],
)
def test_losses_in_bfloat16(folders, case, request):
    """Every objective runs in mixed precision, near its float32 loss, with float32 gradients."""
    features, expected = plain(folders, case)
    request.getfixturevalue("bfloat16")
    actual = step_values(_model(folders, case), features)
    assert {value.dtype for value in actual} == {tf.float32}
    assert all(np.isfinite(value).all() for value in actual)
    assert float(actual[0]) != float(expected[0])
    assert float(actual[0]) == pytest.approx(float(expected[0]), rel=0.03)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "cmlm" else pytest.mark.long) for n in MASKING]
)
def test_validation_with_a_vocabulary_in_blocks(folders, name, monkeypatch):
    """A validation reports the same, and no head returns whole logits."""
    features, _ = plain(folders, name)
    expected = _model(folders, name)(features)[name]
    model = _model(folders, name, Variation(vocabulary=True))
    _forbid_whole_logits(model, monkeypatch)
    output = model(features)[name]
    check_equal(*(tf.nest.flatten([each.loss, each.metrics]) for each in (output, expected)))


def test_objectives_with_a_head_take_a_vocabulary_in_blocks():
    assert set(MASKING) == {name for name in SETTINGS if SETTINGS[name].needs_language_model_head()}


def test_refuses_blocks_below_0():
    config = SETTINGS["mlm"].replace(vocabulary_block_size=-1)
    refuses(lambda: config.check(tiny_encoder_config(), "there"), "vocabulary_block_size", "-1")
