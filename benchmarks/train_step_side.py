"""Our side of `benchmarks.train_step`."""

from collections.abc import Callable

import numpy as np

from benchmarks.train_step_examples import (
    SEQ_LENGTH,
    SEQUENCES,
    THREADS,
    Batch,
    Examples,
    measure,
    prediction_slots,
)
from official_cmlm import cli
from official_cmlm.common.processor import peak_mib


def prepare(examples: Examples, size: str, variant: str, precision: str) -> Callable[[], dict]:
    """Traces and compiles the steps; returns a call that measures them.

    Args:
      examples: the batches to train on.
      size: layers and width, e.g. `4x256`.
      variant: `kernels`, with logits at masked tokens only, or `xla`, compiled for each bucket,
        with logits at all slots of predictions.
      precision: `float32`, or `bfloat16` with weights in float32.
    """
    cli.quiet_tensorflow()
    import tensorflow as tf
    from official.modeling import performance

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    performance.set_mixed_precision_policy(precision)
    batches, objective = examples.batches, examples.objective
    features = [features_of(objective, batch, examples.pad) for batch in batches]
    model = model_of(objective, size, examples.vocab_size, variant)
    step = _step(model, variant == "xla", features[0])
    before = peak_mib()
    # Each shape runs once here; with XLA this compiles it.
    for example in {batch.length: f for batch, f in zip(batches, features)}.values():
        step(example)
    return lambda: measure(step, batches, features, before)


def features_of(objective: str, batch: Batch, pad: int) -> dict:
    """Returns the features that the pipeline gives for these examples."""
    import tensorflow as tf

    sides: dict = {"key": tf.range(len(batch.examples), dtype=tf.int64)}
    for name in SEQUENCES[objective]:
        rows = [example[name] for example in batch.examples]
        ids, mask = _pad([row["ids"] for row in rows], batch.length, pad)
        sides[name] = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": ids * 0}
        if name.endswith("_masked"):
            slots = prediction_slots(objective, batch.length)
            positions, used = _pad([row["positions"] for row in rows], slots, 0)
            sides[name] |= {
                "masked_lm_positions": positions,
                "masked_lm_ids": _pad([row["labels"] for row in rows], slots, 0)[0],
                "masked_lm_weights": used.astype(np.float32),
            }
    return tf.nest.map_structure(tf.constant, {objective: sides})


def _pad(rows: list[list[int]], length: int, value: int) -> tuple[np.ndarray, np.ndarray]:
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


def _step(model, with_xla: bool, example: dict):  # noqa: ANN001, ANN202 - TensorFlow is imported late
    import tensorflow as tf
    from official.modeling.optimization.legacy_adamw import AdamWeightDecay

    from official_cmlm.training.step import train_step

    optimizer = AdamWeightDecay(
        1e-4,
        weight_decay_rate=0.01,
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
    )
    _ = optimizer.iterations

    def step(features):  # noqa: ANN001, ANN202
        return train_step(model, optimizer, features, seed=0)[0]

    if with_xla:
        return tf.function(step, jit_compile=True)

    # One graph serves all shapes, as in the trainer.
    shapes = tf.nest.map_structure(lambda v: tf.TensorSpec([None] * len(v.shape), v.dtype), example)
    return tf.function(step, input_signature=[shapes])
