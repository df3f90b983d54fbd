"""Trains an encoder together with a classifier, as for CMLM's Amazon reviews (§4.5.2)."""

import dataclasses
import math
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tf_keras
from official.modeling.optimization.lr_schedule import LinearWarmup

from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.configs.encoder import OWN_VECTOR, VectorOverride
from official_cmlm.encoding.classifier import Classifier
from official_cmlm.encoding.sentence_encoder import SentenceEncoder


@dataclasses.dataclass(frozen=True)
class FineTuningConfig:
    """Settings of a fine-tuning: BERT's (Devlin et al. 2019), as CMLM's paper gives none.

    Attributes:
      epochs: passes over the examples. Default 3 (BERT's appendix A.3).
      batch_size: examples per step. Default 32 (BERT's appendix A.3).
      learning_rate: peak, reached after a tenth of the steps; then linear decay to 0. Default 2e-5.
      max_seq_length: in tokens; longer texts are truncated. Default: the encoder's own.
      override: the vector that the classifier reads. Default: the encoder's own.
    """

    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 2e-5
    max_seq_length: int | None = None
    override: VectorOverride = OWN_VECTOR


def fine_tune(
    path: str | os.PathLike,
    texts: list[str],
    labels: np.ndarray,
    num_classes: int,
    seed: int,
    config: FineTuningConfig = FineTuningConfig(),
    progress: Callable[[int], Callable[[int], None]] = lambda total: lambda done: None,
    before: Classifier | None = None,
) -> Classifier:
    """Trains a copy of an encoder with a classifier on its sentence vector.

    Args:
      path: the encoder, see `SentenceEncoder.load`; it does not change.
      texts: n training texts, without prompts; they get the encoder's default prompt.
      labels: int `[n]`, 0 to num_classes - 1.
      num_classes: number of classes.
      seed: seed of the classifier's weights, dropout and the order of texts.
      config: how to train.
      progress: takes the number of steps and returns a function that takes the steps done.
      before: a classifier on the encoder's vectors to begin with. Default: random weights.

    Returns:
      The classifier, which `save` keeps.

    Raises:
      UserError: if the folder is not an encoder directory.
      ValueError: if texts and labels differ in number.
    """
    if len(texts) != len(labels) or not len(texts):
        raise ValueError(f"need as many texts as labels, got {len(texts)} and {len(labels)}")
    tf_keras.utils.set_random_seed(seed)
    directory = encoder_directory_of(find_encoder(path))
    model = load_encoder(directory, config.override, config.max_seq_length)
    length = directory.length(config.max_seq_length)
    # Ranges belong to the vectors before.
    settings = dataclasses.replace(directory.settings, ranges=None, weights=None)
    encoder = SentenceEncoder(model, directory.vocabulary, length, settings=settings)
    texts = [settings.default_prompt + text for text in texts]
    classifier = tf_keras.layers.Dense(num_classes)
    classifier.build([None, encoder.dimension])
    if before is not None:
        classifier.set_weights([before.kernel, before.bias])
    weights = [*model.trainable_variables, *classifier.trainable_variables]
    steps = config.epochs * math.ceil(len(texts) / config.batch_size)
    falling = tf_keras.optimizers.schedules.PolynomialDecay(config.learning_rate, steps, 0.0)
    rate = LinearWarmup(falling, warmup_steps=max(1, steps // 10), warmup_learning_rate=0.0)
    optimizer = tf_keras.optimizers.AdamW(rate, weight_decay=0.01)
    optimizer.exclude_from_weight_decay(var_names=["bias", "layer_norm", "LayerNorm"])
    optimizer.build(weights)

    @tf.function(reduce_retracing=True)
    def step(inputs: dict[str, tf.Tensor], targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = classifier(model(inputs, training=True)["default"])
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(targets, tf.cast(logits, tf.float32))
            )
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(
            (gradient, weight)
            for gradient, weight in zip(gradients, weights)
            if gradient is not None
        )
        return loss

    done = progress(steps)
    order = np.random.default_rng(seed)
    for _ in range(config.epochs):
        mixed = order.permutation(len(texts))
        for start in range(0, len(mixed), config.batch_size):
            chosen = mixed[start : start + config.batch_size]
            step(encoder.inputs([texts[i] for i in chosen]), tf.constant(labels[chosen], tf.int32))
            done(1)
    kernel, bias = (weight.numpy() for weight in classifier.weights)
    return Classifier(encoder, kernel, bias, before.label_names if before else ())
