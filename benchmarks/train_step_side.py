"""Our side of `benchmarks.train_step`, in a process of its own.

`--variant` says how it computes: by TensorFlow's kernels, with logits at masked tokens only, or
compiled by XLA for each bucket, with logits at all slots of predictions.

Prints `ready` when its steps are traced and compiled, then for each line of standard input trains
on all batches and prints one line of JSON: `per_second` (examples), `tokens_per_second` (without
padding), `per_core_second` (examples a second that a core was busy), `peak_mib` of the process,
and `step_mib`, the part of it that the steps added.
"""

import time

import numpy as np
from absl import flags

from benchmarks.shared import answer
from benchmarks.train_step_examples import (
    SEQ_LENGTH,
    SEQUENCES,
    THREADS,
    Batch,
    prediction_slots,
    read_batches,
    result,
)
from official_cmlm import cli
from official_cmlm.process_memory import peak_mib

FLAGS = flags.FLAGS
VARIANTS = ("kernels", "xla")


def define_flags() -> None:
    """Defines the examples, the model and the variant."""
    flags.DEFINE_string("examples_file", None, "What `train_step` wrote. Required.")
    flags.DEFINE_string("objective", None, "cmlm, mlm or contrastive. Required.")
    flags.DEFINE_string("size", None, "Layers and width, e.g. 4x256. Required.")
    flags.DEFINE_enum("variant", "kernels", VARIANTS, "How it computes, see above.")
    cli.required("examples_file", "objective", "size")


def main(argv: list[str]) -> None:
    """Trains for each line of standard input."""
    del argv
    cli.quiet_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    source, batches = read_batches(FLAGS.examples_file)
    features = [features_of(FLAGS.objective, batch, source["pad"]) for batch in batches]
    step = _step(source["vocab_size"], features[0])
    before = peak_mib()
    # Each shape once: with XLA this compiles it.
    seen = {batch.length: feature for batch, feature in zip(batches, features)}
    for feature in seen.values():
        step(feature)
    done = [batch.examples for batch in batches]

    def measure() -> str:
        began, busy = time.perf_counter(), time.process_time()
        _ = [float(loss) for loss in [step(feature) for feature in features]]
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        return result(done, seconds, busy, before)

    answer(measure)


def features_of(objective: str, batch: Batch, pad: int) -> dict:
    """Returns the features that the pipeline gives for these examples."""
    import tensorflow as tf

    found: dict = {"key": tf.range(len(batch.examples), dtype=tf.int64)}
    for name in SEQUENCES[objective]:
        rows = [example[name] for example in batch.examples]
        ids, mask = _padded([row["ids"] for row in rows], batch.length, pad)
        found[name] = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": ids * 0}
        if name.endswith("_masked"):
            slots = prediction_slots(objective, batch.length)
            positions, used = _padded([row["positions"] for row in rows], slots, 0)
            found[name] |= {
                "masked_lm_positions": positions,
                "masked_lm_ids": _padded([row["labels"] for row in rows], slots, 0)[0],
                "masked_lm_weights": used.astype(np.float32),
            }
    return tf.nest.map_structure(tf.constant, {objective: found})


def _padded(rows: list[list[int]], length: int, value: int) -> tuple[np.ndarray, np.ndarray]:
    padded = np.full([len(rows), length], value, np.int32)
    mask = np.zeros([len(rows), length], np.int32)
    for i, row in enumerate(rows):
        padded[i, : len(row)], mask[i, : len(row)] = row, 1
    return padded, mask


def model_of(  # noqa: ANN201 - TensorFlow is imported late
    objective: str, size: str, vocab_size: int, variant: str, dropout: float = 0.1
):
    """Returns the `MultiObjectiveModel` that is trained."""
    from official_cmlm.configs.encoder import EncoderConfig
    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
    from official_cmlm.objectives import objectives
    from official_cmlm.training.model import MultiObjectiveModel

    layers, width = (int(n) for n in size.split("x"))
    config = EncoderConfig(
        vocab_size=vocab_size,
        num_layers=layers,
        hidden_size=width,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        max_position_embeddings=SEQ_LENGTH + 15,
        hidden_activation="gelu_exact",
        dropout_rate=dropout,
        attention_dropout_rate=dropout,
        pooling="cls" if objective == "contrastive" else "mean",
    )
    encoder = SentenceEncoderModel(config)
    chosen = {objective: objectives()[objective].config_class()}
    return MultiObjectiveModel(encoder, chosen, static_shapes=variant == "xla")


def _step(vocab_size: int, example: dict):  # noqa: ANN202 - a function of a batch
    import tensorflow as tf
    from official.modeling import optimization

    from official_cmlm.training.step import train_step

    model = model_of(FLAGS.objective, FLAGS.size, vocab_size, FLAGS.variant)
    optimizer = optimization.OptimizerFactory(
        optimization.OptimizationConfig(
            {
                "optimizer": {
                    "type": "adamw",
                    "adamw": {
                        "weight_decay_rate": 0.01,
                        "exclude_from_weight_decay": ["LayerNorm", "layer_norm", "bias"],
                    },
                },
                "learning_rate": {"type": "constant", "constant": {"learning_rate": 1e-4}},
            }
        )
    ).build_optimizer(1e-4)
    _ = optimizer.iterations

    def step(features):  # noqa: ANN001, ANN202
        return train_step(model, optimizer, features, seed=0)[0]

    if FLAGS.variant == "xla":
        return tf.function(step, jit_compile=True)

    def spec(value):  # noqa: ANN001, ANN202
        return tf.TensorSpec([None] * len(value.shape), value.dtype)

    # As in the trainer: one graph for all shapes.
    return tf.function(step, input_signature=[tf.nest.map_structure(spec, example)])


if __name__ == "__main__":
    define_flags()
    cli.run(main)
