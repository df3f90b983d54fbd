"""Memory of a step, and the cost of saving it: `python -m benchmarks.memory`.

Measures first the head alone: cross-entropy and its gradients by hidden states, embedding table and
bias, with whole logits and in blocks. It then measures a CMLM step with dropout: for each
`encoder.remat`, and in chunks (`task.chunk_size`). Every side is a process of its own, in
alternating rounds; its memory is the growth of the process's peak memory during the steps. With
JAX, XLA's account of the compiled step follows.
"""

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from absl import flags

from benchmarks import shared
from official_cmlm import cli
from official_cmlm.common.process_memory import peak_mib

FLAGS = flags.FLAGS
_PROJECTIONS = 15
_HEADS = ("head_whole", "head_blocks")
# Kind of step -> `encoder.remat`, and whether it is in chunks.
_STEPS = {
    "step_none": ("none", False),
    "step_blocks": ("blocks", False),
    "step_attention": ("attention", False),
    "step_chunks": ("none", True),
    "step_chunks_blocks": ("blocks", True),
}


def define_flags() -> None:
    """Defines the sizes of the head and of the step."""
    flags.DEFINE_integer("predictions", 2560, "Predicted tokens of the head.", lower_bound=1)
    flags.DEFINE_integer("vocab_size", 119547, "Entries of the head's vocabulary.", lower_bound=2)
    flags.DEFINE_integer("width", 128, "Width of the head.", lower_bound=1)
    flags.DEFINE_integer("block_size", 8192, "Entries of a block.", lower_bound=1)
    flags.DEFINE_string("size", "6x256", "Encoder of the step: layers x hidden.")
    flags.DEFINE_integer("pairs", 16, "Pairs of the step.", lower_bound=1)
    flags.DEFINE_integer("chunk_size", 4, "Pairs of a chunk.", lower_bound=1)
    flags.DEFINE_integer("length", 128, "Tokens of each sequence of the step.", lower_bound=8)
    flags.DEFINE_integer("rounds", 3, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_integer("steps", 3, "Steps of a side and round.", lower_bound=1)
    flags.DEFINE_bool("xla", True, "Whether XLA's account is printed, where JAX is installed.")
    flags.DEFINE_list("sides", [*_HEADS, *_STEPS], "Sides to measure.")


def main(argv: list[str]) -> None:
    """Runs the comparison."""
    del argv
    for kinds in (_HEADS, _STEPS):
        sides = {
            name: functools.partial(shared.in_new_process, measured, name)
            for name in kinds
            if name in FLAGS.sides
        }
        if sides:
            _report(shared.in_turns(FLAGS.rounds, sides))


def _report(rounds: dict[str, list[dict[str, float]]]) -> None:
    """Prints the figures, and the ratio of every other side's time to that of the first side."""
    first, *others = rounds
    for name, found in rounds.items():
        for key in found[0]:
            print(f"figure {name}_{key} {shared.median(found, key):.0f}")
    for name in others:
        shared.print_ratio(f"{name}_time", "ms", rounds[name], rounds[first])


def measured(side: str) -> dict[str, float]:
    """Measures milliseconds of a step, and MiB that it adds, by TensorFlow's own kernels."""
    # This process has the command line of the process that started it.
    define_flags()
    FLAGS(sys.argv)
    cli.quiet_tensorflow()
    import tensorflow as tf

    step, batch = (_head if side in _HEADS else _step)(side)
    graph, before = tf.function(step, autograph=False), peak_mib()
    graph(batch)
    times = []
    for _ in range(FLAGS.steps):
        began = time.perf_counter()
        graph(batch)
        times.append(1000 * (time.perf_counter() - began))
    found = {"ms": round(min(times), 1), "MiB": round(peak_mib() - before)}
    if FLAGS.xla:
        from official_cmlm.common.errors import UserError
        from official_cmlm.training.jax_loop import compiled_memory

        try:
            found["xla_MiB"] = round(compiled_memory(step, batch) / 2**20)
        except UserError as error:
            cli.warn(str(error))
    return found


def _head(kind: str) -> tuple[Callable[[Any], None], Any]:
    """Returns a step of the head, which adds its gradients to variables as an optimizer does."""
    import tensorflow as tf

    from official_cmlm.losses.masked_language_model import masked_cross_entropy
    from official_cmlm.losses.vocabulary_blocks import cross_entropy_in_blocks

    entries, width, rows = FLAGS.vocab_size, FLAGS.width, FLAGS.predictions
    table = tf.Variable(tf.random.normal([entries, width], stddev=0.02, seed=1))
    bias, total = tf.Variable(tf.zeros([entries])), tf.Variable(0.0)
    hidden = tf.Variable(tf.random.normal([rows, width], seed=2))
    weights = tf.ones([rows])

    def step(ids: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            if kind == "head_blocks":
                factors = [tf.convert_to_tensor(v) for v in (hidden, table, bias)]
                loss, *_ = cross_entropy_in_blocks(*factors, ids, weights, FLAGS.block_size)
            else:
                logits = tf.nn.bias_add(tf.matmul(hidden, table, transpose_b=True), bias)
                loss, *_ = masked_cross_entropy(logits, ids, weights)
        total.assign_add(loss)
        variables = [hidden, table, bias]
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(1e-3 * gradient)

    return step, tf.random.uniform([rows], 0, entries, tf.int32, seed=3)


def _step(kind: str) -> tuple[Callable[[Any], None], Any]:
    """Returns a CMLM step with plain gradient descent, and a batch of random tokens."""
    import tensorflow as tf

    from official_cmlm.configs.encoder import EncoderConfig
    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
    from official_cmlm.objectives.cmlm import CmlmConfig
    from official_cmlm.training.chunks import chunked_gradients
    from official_cmlm.training.model import MultiObjectiveModel
    from official_cmlm.training.step import whole_gradients

    layers, hidden = map(int, FLAGS.size.split("x"))
    length, pairs, entries = FLAGS.length, FLAGS.pairs, 1000
    remat, in_chunks = _STEPS[kind]
    encoder = EncoderConfig(
        vocab_size=entries,
        hidden_size=hidden,
        num_layers=layers,
        num_attention_heads=max(1, hidden // 64),
        intermediate_size=4 * hidden,
        max_position_embeddings=length + _PROJECTIONS,
        remat=remat,
    )
    config = CmlmConfig(num_projections=_PROJECTIONS)
    model = MultiObjectiveModel(SentenceEncoderModel(encoder), {"cmlm": config}, True)
    slots = round(config.masking_rate * length)
    tokens = {
        "input_word_ids": tf.random.uniform([pairs, length], 0, entries, tf.int32, seed=1),
        "input_mask": tf.ones([pairs, length], tf.int32),
        "input_type_ids": tf.zeros([pairs, length], tf.int32),
    }
    masked = {
        **tokens,
        "masked_lm_positions": tf.random.uniform([pairs, slots], 0, length, tf.int32, seed=2),
        "masked_lm_ids": tf.random.uniform([pairs, slots], 0, entries, tf.int32, seed=3),
        "masked_lm_weights": tf.ones([pairs, slots]),
    }
    key = tf.constant(1, tf.int64)

    def step(features: dict[str, dict]) -> None:
        arguments = (model, features, key, tf.constant(1.0))
        if in_chunks:
            _, found, _ = chunked_gradients(*arguments, FLAGS.chunk_size)
        else:
            _, found, _ = whole_gradients(*arguments)
        for variable, gradient in zip(model.trainable_variables, found):
            if gradient is not None:
                variable.assign_sub(1e-3 * tf.convert_to_tensor(gradient))

    pair = {"first": tokens, "second_masked": masked, "key": tf.range(pairs, dtype=tf.int64)}
    return step, {"cmlm": pair}


if __name__ == "__main__":
    define_flags()
    cli.run(main)
