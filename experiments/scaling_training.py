"""A CMLM training of one size as the cost model sees it: its step, and the sizes it computes."""

import json
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from experiments import registry
from experiments.cost_model import BatchShape, ModelShape
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.tasks.sentence_encoder import SentenceEncoderTask

SEQ_LENGTH = 128
# Pairs of 128 tokens a step: a second of two cores for the larger model.
_BATCH_SIZE = 16


class Training:
    """A CMLM training of one size: its compiled step and its live input pipeline."""

    def __init__(self, size: tuple[int, int], records: str, buckets: Sequence[int]) -> None:
        params = registry.load("cmlm/english_base", params_override=json.dumps(_values(
            size, records, buckets
        )))  # fmt: skip
        task = SentenceEncoderTask(params.task)
        self.model = task.build_model()
        self.shape = model_shape(self.model.encoder.config, params.task.objectives.cmlm)
        self.optimizer = task.create_optimizer(params.trainer.optimizer_config)
        _ = self.optimizer.iterations
        self._dataset = task.build_inputs(params.task.train_data)
        self._batches = iter(self._dataset)
        self.step = tf.function(
            lambda batch: task.train_step(batch, self.model, self.optimizer)["loss"],
            input_signature=[self._dataset.element_spec],
        )
        self._count = RowCounter(self.model)

    def next_batch(self) -> dict:
        return next(self._batches)

    @property
    def dataset(self) -> tf.data.Dataset:
        return self._dataset

    def batch_shape(self, batch: dict) -> BatchShape:
        """The sizes that the step computes for a batch."""
        return self._count.batch_shape(batch)

    def seconds(self, batch: dict) -> float:
        """Of one step on a batch that is there already."""
        began = time.perf_counter()
        self.step(batch).numpy()
        return time.perf_counter() - began


class RowCounter:
    """Counts what a forward pass computes: logits of which positions, the last block of which rows.

    One pass of a first batch shows whether both are computed for every slot and position, or for
    masked positions alone; the rule then holds for all batches.
    """

    def __init__(self, model: tf_keras.Model) -> None:
        self._model = model
        self._rule: tuple[float | None, float | None] | None = None

    def batch_shape(self, batch: dict) -> BatchShape:
        features = batch["cmlm"]
        masked = features["second_masked"]
        pairs, length = features["first"]["input_word_ids"].shape
        weights = masked["masked_lm_weights"]
        slots, used = weights.shape.num_elements(), float(tf.reduce_sum(weights))
        if self._rule is None:
            self._rule = self._find_rule(batch, pairs * length, slots, used)
        a_prediction, a_row = self._rule
        return BatchShape(
            pairs,
            length,
            slots if a_prediction is None else a_prediction * used,
            None if a_row is None else a_row * used,
        )

    def _find_rule(
        self, batch: dict, positions: int, slots: int, used: float
    ) -> tuple[float | None, float | None]:
        """Logits and rows of s2 for each masked token, or None where they follow the slots."""
        block = self._model.encoder.bert.transformer_layers[-1]
        with _rows_through(self._model.head.layer_norm) as logits:
            with _rows_through(block._output_layer_norm) as rows:
                self._model(batch, training=False)
        last = sum(rows) - positions
        return (
            None if sum(logits) == slots else sum(logits) / used,
            # More than all of s2's tokens: the projected vectors are computed too.
            None if last >= positions else last / used,
        )


class _rows_through:
    """Collects how many rows a layer gets within the block, a number for each call."""

    def __init__(self, layer: tf_keras.layers.Layer) -> None:
        self._layer, self._call = layer, layer.call

    def __enter__(self) -> list[int]:
        counts: list[int] = []

        def call(inputs: tf.Tensor, **kwargs: Any) -> tf.Tensor:
            counts.append(int(tf.size(inputs)) // inputs.shape[-1])
            return self._call(inputs, **kwargs)

        self._layer.call = call
        return counts

    def __exit__(self, *error: object) -> None:
        self._layer.call = self._call


def _values(size: tuple[int, int], records: str, buckets: Sequence[int]) -> dict:
    """What differs from the paper's experiment."""
    layers, hidden = size
    data = {
        "input_path": records,
        "seq_length": SEQ_LENGTH,
        "segment": "sentence",
        "global_batch_size": _BATCH_SIZE,
        "bucket_boundaries": list(buckets),
        "max_bucket_batch_size": 0,
    }
    encoder = {
        "vocab_size": 0,
        "hidden_size": hidden,
        "num_layers": layers,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
    }
    validation = {"input_path": "", "seq_length": SEQ_LENGTH, "bucket_boundaries": list(buckets)}
    return {"task": {"encoder": encoder, "train_data": data, "validation_data": validation}}


def model_shape(encoder: EncoderConfig, objective: Any) -> ModelShape:
    """The sizes of a CMLM experiment."""
    return ModelShape(
        layers=encoder.num_layers,
        hidden=encoder.hidden_size,
        inner=encoder.intermediate_size,
        heads=encoder.num_attention_heads,
        vocab=encoder.vocab_size,
        positions=encoder.max_position_embeddings,
        types=encoder.type_vocab_size,
        projections=objective.num_projections,
    )
