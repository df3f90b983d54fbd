"""Micro-kernels of a training step: what each kind of work takes here, forward and backward.

Every kernel is timed on tensors of the size that a step has, by the layers that the step uses.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras

from benchmarks.scaling.cost_model import KernelCosts
from official_cmlm.losses.masked_language_model import masked_cross_entropy
from official_cmlm.modeling.bert import get_activation
from official_cmlm.modeling.dropout import DropoutMode, DropoutStream, RepeatableDropout
from official_cmlm.modeling.projection import Projection

# Rows of a product: the tokens of a batch of a two-core run.
ROWS = 2048
# Width of a head, that of BERT.
HEAD = 64
_WIDTH = 192
_LENGTHS = (24, 96)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A call to time, and how many units of work (operations or elements) it does."""

    name: str
    units: float
    call: Callable[[], object]


def _with_gradients(
    function: Callable[..., tf.Tensor],
    inputs: Sequence[tf.Tensor],
    variables: Sequence[tf.Variable] = (),
) -> Callable[[], object]:
    """A compiled call that computes `function` of `inputs` and all its gradients."""

    @tf.function(reduce_retracing=True)
    def both(*tensors: tf.Tensor) -> tuple[tf.Tensor, list]:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output = function(*tensors)
        return output, tape.gradient(output, [*tensors, *variables])

    def call() -> object:
        return both(*inputs)

    return call


def _products(width: int) -> Kernel:
    """A block's products: four h → h, h → 4h, 4h → h, each with its bias."""
    shapes = [(width, width)] * 4 + [(width, 4 * width), (4 * width, width)]
    calls = [
        _with_gradients(
            lambda rows, kernel, bias: tf.nn.bias_add(rows @ kernel, bias),
            [tf.random.normal([ROWS, i]), tf.random.normal([i, o]), tf.zeros([o])],
        )
        for i, o in shapes
    ]
    return Kernel(
        f"dense {width}", sum(3 * 2 * ROWS * i * o for i, o in shapes), lambda: [c() for c in calls]
    )


def _projection(width: int) -> Kernel:
    layer, pairs = Projection(15, width), 64
    call = _with_gradients(layer, [tf.random.normal([pairs, width])], layer.trainable_variables)
    return Kernel(f"projection {width}", 3 * 2 * 8 * width**2 * 14 * pairs, call)


def _logits(width: int, vocab: int) -> Kernel:
    rows = 512
    call = _with_gradients(
        lambda outputs, table: tf.matmul(outputs, table, transpose_b=True),
        [tf.random.normal([rows, width]), tf.random.normal([vocab, width])],
    )
    return Kernel(f"logits {width}", 3 * 2 * rows * width * vocab, call)


def _stream() -> DropoutStream:
    return DropoutStream(tf.constant(1, tf.int64), tf.constant(0, tf.int64))


def _hidden() -> Kernel:
    dropout = RepeatableDropout(0.1, 0)
    norm = tf_keras.layers.LayerNormalization(epsilon=1e-12)
    norm.build([None, 32, _WIDTH])

    def sub_layer(rows: tf.Tensor, passed: tf.Tensor) -> tf.Tensor:
        with DropoutMode(stream=_stream()).active():
            return norm(passed + dropout(rows, training=True))

    tensors = [tf.random.normal([ROWS // 32, 32, _WIDTH]) for _ in range(2)]
    call = _with_gradients(sub_layer, tensors, norm.trainable_variables)
    return Kernel("hidden", ROWS * _WIDTH, call)


def _inner() -> Kernel:
    call = _with_gradients(get_activation("gelu"), [tf.random.normal([ROWS, 4 * _WIDTH])])
    return Kernel("inner", ROWS * 4 * _WIDTH, call)


def _attention(length: int) -> Kernel:
    """What attention does between its products with kernels; units are its weights."""
    dropout = RepeatableDropout(0.1, 0)
    pairs, heads = ROWS // length, _WIDTH // HEAD
    added = tf.zeros([pairs, 1, length, length])

    def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        scores = tf.einsum("aecd,abcd->acbe", key, query * HEAD**-0.5)
        with DropoutMode(stream=_stream()).active():
            weights = dropout(tf.nn.softmax(scores + added), training=True)
        return tf.einsum("acbe,aecd->abcd", weights, value)

    call = _with_gradients(
        attend, [tf.random.normal([pairs, length, heads, HEAD]) for _ in range(3)]
    )
    return Kernel(f"attention {length}", heads * pairs * length**2, call)


def _logit(vocab: int) -> Kernel:
    rows = 512
    ids, weights = tf.zeros([1, rows], tf.int32), tf.ones([1, rows])

    def loss(logits: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        total, correct, _ = masked_cross_entropy(tf.nn.bias_add(logits, bias), ids, weights)
        return total + tf.stop_gradient(correct)

    call = _with_gradients(loss, [tf.random.normal([1, rows, vocab]), tf.zeros([vocab])])
    return Kernel("logit", rows * vocab, call)


def kernels(widths: Sequence[int], vocab: int) -> list[Kernel]:
    """All micro-kernels; products at the hidden sizes `widths`, the rest at 192."""
    return [
        *(_products(width) for width in widths),
        *(_projection(width) for width in widths),
        *(_logits(width, vocab) for width in widths),
        _hidden(),
        _inner(),
        *(_attention(length) for length in _LENGTHS),
        _logit(vocab),
    ]


def seconds_a_unit(kernel: Kernel, budget: float) -> float:
    """Seconds of a unit of work, the median call of about `budget` seconds, after one more."""
    _finish(kernel.call())
    times = []
    while not times or sum(times) < budget:
        began = time.perf_counter()
        _finish(kernel.call())
        times.append(time.perf_counter() - began)
    return statistics.median(times) / kernel.units


def _finish(result: object) -> None:
    """Waits for what runs asynchronously."""
    for tensor in tf.nest.flatten(result):
        if isinstance(tensor, tf.Tensor):
            tensor.numpy()
            break


def costs_of(found: dict[str, float], widths: Sequence[int], parameter: float) -> KernelCosts:
    """Constants from seconds a unit by kernel, and seconds a trained weight of the update."""
    short, long = _LENGTHS
    # Seconds an attention weight = score + attended · (width of a head) / length.
    by_short, by_long = found[f"attention {short}"], found[f"attention {long}"]
    attended = max(0.0, (by_short - by_long) / (HEAD / short - HEAD / long))
    score = by_long - attended * HEAD / long
    return KernelCosts(
        dense={w: 1 / found[f"dense {w}"] for w in widths},
        projection={w: 1 / found[f"projection {w}"] for w in widths},
        logits={w: 1 / found[f"logits {w}"] for w in widths},
        hidden=found["hidden"],
        inner=found["inner"],
        attended=attended,
        score=score,
        logit=found["logit"],
        parameter=parameter,
    )
