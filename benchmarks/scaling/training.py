"""A CMLM training of one size as the cost model sees it: its step, and the sizes it computes."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from benchmarks.scaling.cost_model import BatchShape, ModelShape
from experiments import registry
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.errors import UserError
from official_cmlm.training.task import SentenceEncoderTask

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
        self.optimizer = task.create_optimizer(params.trainer.optimization())
        _ = self.optimizer.iterations
        # Where the data stand is no example's, and batches are cut by examples here.
        self._dataset = task.build_inputs(params.task.train_data).map(_without_position)
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


def _without_position(groups: dict[str, dict]) -> dict[str, dict]:
    return {
        group: {name: value for name, value in batch.items() if name != "position"}
        for group, batch in groups.items()
    }


class RowCounter:
    """Counts what a forward pass computes: logits of which positions, the last block of which rows.

    One pass of a first batch shows whether both follow the slots for predictions, the masked tokens
    alone, or (the block) all positions; that rule then holds for all batches.
    """

    def __init__(self, model: tf_keras.Model) -> None:
        self._model = model
        self._rules: tuple[Rule, Rule] | None = None

    def batch_shape(self, batch: dict) -> BatchShape:
        """The sizes that a step on `batch` computes.

        Raises:
          UserError: if the head works in a way that this cannot see.
        """
        pairs, length = batch["cmlm"]["first"]["input_word_ids"].shape
        weights = batch["cmlm"]["second_masked"]["masked_lm_weights"]
        slots, used = weights.shape.num_elements(), float(tf.reduce_sum(weights))
        if self._rules is None:
            self._rules = self._find_rules(batch, pairs * length, slots, used)
        logits, rows = (rule and rule(slots, used) for rule in self._rules)
        return BatchShape(pairs, length, logits, rows)

    def _find_rules(
        self, batch: dict, positions: int, slots: int, used: float
    ) -> tuple["Rule", "Rule"]:
        block = self._model.encoder.bert.transformer_layers[-1]
        with _rows_through(self._model.head.layer_norm) as logits:
            with _rows_through(block._output_layer_norm) as rows:
                self._model(batch, training=False)
        if not logits:
            raise UserError("no rows went through the head's layer norm: nothing to count them by")
        last = sum(rows) - positions
        # As much as all of s2's tokens: the last block is computed for everything.
        everything = last >= positions
        return _rule(sum(logits), slots, used), None if everything else _rule(last, slots, used)


Rule = Callable[[int, float], float] | None
"""(slots for predictions, masked tokens) of a batch -> rows; None: all positions."""


def _rule(rows: int, slots: int, used: float) -> Rule:
    """What explains that a batch had so many rows."""
    if rows == slots:
        return lambda slots, used: slots
    share = rows / used
    return lambda slots, used: share * used


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
