"""Computes a batch in chunks: the loss and gradients of the whole batch in the memory of one chunk.

A loss that compares all examples with each other takes two passes (gradient cache, Gao et al. 2021,
"Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"). The first pass computes
all vectors without a gradient tape; the gradient of the loss with respect to the vectors follows.
The second pass computes the vectors again, chunk by chunk, and backpropagates that gradient through
the encoder. Dropout masks are functions of the row, so both passes draw the same masks.

A loss that is a mean over predictions is accumulated: the chunks' losses are summed and divided by
the number of predictions, which is counted beforehand.

All chunks but the last have one size and share a loop; the last one is computed before the loop,
unless it is known to have that size too. So no shape depends on a loop's index, as XLA requires.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from official_cmlm.losses.replicas import global_mean
from official_cmlm.objectives import Objective, ObjectiveOutput
from official_cmlm.objectives.base import Prediction, Vectors, combine, weighted_sum
from official_cmlm.objectives.encode import own_first_row
from official_cmlm.training.model import MultiObjectiveModel

Gradients = list[tf.Tensor | None]
"""A gradient for each trainable variable; None for one that the loss does not depend on."""

Parts = dict[str, Vectors]
"""Objective -> name -> vectors of a batch, or the loss's gradients with respect to them."""


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """`size` rows of a group's batch from `begin`: ints if they are known, else int32 scalars."""

    features: dict[str, dict]
    first_rows: dict[str, tf.Tensor]
    begin: tf.Tensor | int
    size: tf.Tensor | int

    def first_of(self, vectors: tf.Tensor) -> tf.Tensor:
        """Returns how many vectors of the batch precede the chunk's; a row may have several."""
        return self.begin * (tf.shape(vectors)[0] // self.size)

    def places_of(self, vectors: tf.Tensor) -> tf.Tensor:
        """Returns the places of the chunk's vectors among those of the batch: int32 `[vectors]`."""
        return self.first_of(vectors) + tf.range(tf.shape(vectors)[0])


class _Chunks:
    """The chunks of a group's batch, of at most `chunk_size` examples each and nearly equal."""

    def __init__(self, group: str, batch: dict, chunk_size: int) -> None:
        self._group, self._batch = group, batch
        self._start = own_first_row(batch)
        rows = batch["key"].shape[0]
        is_static = rows is not None
        if not is_static:
            rows = tf.shape(batch["key"])[0]
        count = (rows + chunk_size - 1) // chunk_size
        self._size = (rows + count - 1) // count
        self._before = count - 1
        self._rest = rows - self._before * self._size
        self._all_equal = is_static and self._rest == self._size

    def last(self) -> _Chunk:
        """Returns the last chunk, which may be the smallest."""
        return self._chunk(self._before * self._size, self._rest)

    def add(self, body: Callable[..., list], state: list) -> list:
        """Calls `body(chunk, *state) -> state` for each chunk."""
        if self._all_equal:
            return self._loop(body, state, self._before + 1)
        return self.add_to_last(body, body(self.last(), *state))

    def add_to_last(self, body: Callable[..., list], state: list) -> list:
        """Calls as `add` does, but for each chunk except the last."""
        return self._loop(body, state, self._before)

    def _loop(self, body: Callable[..., list], state: list, count: tf.Tensor | int) -> list:
        def step(index: tf.Tensor, *state: tf.Tensor) -> tuple:
            return index + 1, *body(self._chunk(index * self._size, self._size), *state)

        # Chunks that are computed in parallel would be in memory together.
        _, *state = tf.while_loop(
            lambda index, *_: index < count, step, [tf.constant(0), *state], parallel_iterations=1
        )
        return state

    def _chunk(self, begin: tf.Tensor | int, size: tf.Tensor | int) -> _Chunk:
        rows = begin + tf.range(size)
        part = tf.nest.map_structure(lambda value: tf.gather(value, rows), self._batch)
        first_row = self._start + tf.cast(begin, tf.int64)
        return _Chunk({self._group: part}, {self._group: first_row}, begin, size)


def compute_in_chunks(
    model: MultiObjectiveModel,
    features: dict[str, dict],
    step_key: tf.Tensor,
    factor: tf.Tensor,
    chunk_size: int,
) -> tuple[tf.Tensor, Gradients, dict[str, ObjectiveOutput]]:
    """Computes a batch's loss, the gradients of `factor` times the loss, and the outputs.

    Args:
      features: group -> features; the groups may differ in their number of examples, and are
        computed one after another.
      step_key: key of the dropout masks, see `MultiObjectiveModel.call`.
      factor: float32 scalar.
      chunk_size: examples of a group at a time, at least 1.
    """
    gradients: Gradients = [None] * len(model.trainable_variables)
    outputs = {}
    for group, batch in features.items():
        chunks = _Chunks(group, batch, chunk_size)
        vectors = _all_vectors(model, chunks, step_key)
        compared, caches = _compare(model, vectors, factor)
        totals = _num_predictions(model, chunks, list(vectors))
        # R / global weight, with R replicas, turns this replica's sum of losses into its part of
        # the global mean.
        shares = {name: global_mean(tf.constant(1.0), total) for name, total in totals.items()}
        gradients, sums = _accumulate(model, chunks, step_key, factor, caches, shares, gradients)
        outputs |= {
            name: combine(
                model.objectives[name],
                compared[name],
                Prediction(sums[name]["total"], totals[name], sums[name]["metrics"]),
            )
            for name in vectors
        }
    outputs = {name: outputs[name] for name in model.objectives}
    chosen = {name: objective.config for name, objective in model.objectives.items()}
    return weighted_sum(outputs, chosen), gradients, outputs


def _all_vectors(model: MultiObjectiveModel, chunks: _Chunks, step_key: tf.Tensor) -> Parts:
    """Computes the vectors of the whole batch, without a gradient tape."""
    last = chunks.last()
    vectors = model.vectors(last.features, step_key, last.first_rows)
    flat = tf.nest.flatten(vectors)
    if not flat:
        return vectors

    def body(chunk: _Chunk, *state: tf.Tensor) -> list[tf.Tensor]:
        more = tf.nest.flatten(model.vectors(chunk.features, step_key, chunk.first_rows))
        return [
            tf.tensor_scatter_nd_update(every, chunk.places_of(part)[:, tf.newaxis], part)
            for every, part in zip(state, more)
        ]

    # The vectors of the last chunk, which is computed first, come after room for those of the other
    # chunks.
    every = [tf.pad(part, [[last.first_of(part), 0], [0, 0]]) for part in flat]
    every = [tf.ensure_shape(rows, [None, part.shape[1]]) for rows, part in zip(every, flat)]
    return tf.nest.pack_sequence_as(vectors, chunks.add_to_last(body, every))


def _compare(
    model: MultiObjectiveModel, vectors: Parts, factor: tf.Tensor
) -> tuple[dict[str, ObjectiveOutput | None], Parts]:
    """Computes the objectives' comparisons, and the gradients of `factor` times their loss."""
    with tf.GradientTape() as tape:
        tape.watch(tf.nest.flatten(vectors))
        compared = {name: model.objectives[name].compare(vectors[name]) for name in vectors}
        losses = [
            model.objectives[name].config.weight * factor * output.loss
            for name, output in compared.items()
            if output is not None
        ]
        loss = tf.add_n(losses) if losses else tf.constant(0.0)
    caches = tape.gradient(loss, vectors, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return compared, caches


def _num_predictions(
    model: MultiObjectiveModel, chunks: _Chunks, names: list[str]
) -> dict[str, tf.Tensor]:
    """Counts the predictions of all chunks together: objective -> float32 scalar."""

    def body(chunk: _Chunk, *state: tf.Tensor) -> list[tf.Tensor]:
        (part,) = chunk.features.values()
        more = [model.objectives[name].num_predictions(part) for name in names]
        return [total + added for total, added in zip(state, more)]

    return dict(zip(names, chunks.add(body, [tf.constant(0.0) for _ in names])))


def _accumulate(
    model: MultiObjectiveModel,
    chunks: _Chunks,
    step_key: tf.Tensor,
    factor: tf.Tensor,
    caches: Parts,
    shares: dict[str, tf.Tensor],
    earlier: Gradients,
) -> tuple[Gradients, dict[str, dict]]:
    """Adds the chunks' gradients to `earlier` ones; sums their predictions' totals and metrics."""
    variables = model.trainable_variables
    flat_caches = tf.nest.flatten(caches)
    learning = {i for i, gradient in enumerate(earlier) if gradient is not None}

    def body(chunk: _Chunk, gradients: list, sums: list) -> list[list]:
        with tf.GradientTape() as tape:
            vectors, predicted = model.parts(chunk.features, step_key, chunk.first_rows)
            targets = [
                tf.reduce_sum(v * tf.cast(tf.gather(cache, chunk.places_of(v)), v.dtype))
                for v, cache in zip(tf.nest.flatten(vectors), flat_caches)
            ]
            targets += [
                factor * _weight(model.objectives[name]) * shares[name] * prediction.total
                for name, prediction in predicted.items()
                if prediction is not None
            ]
            target = tf.add_n([tf.cast(t, tf.float32) for t in targets])
        more = tape.gradient(target, variables)
        learning.update(i for i, gradient in enumerate(more) if gradient is not None)
        added = tf.nest.flatten({n: _sums(model.objectives[n], p) for n, p in predicted.items()})
        return [
            [_add(total, gradient) for total, gradient in zip(gradients, more)],
            [total + more for total, more in zip(sums, added)],
        ]

    structure = {name: _sums(model.objectives[name], None) for name in caches}
    zeros = [
        tf.zeros(variable.shape, variable.dtype) if gradient is None else gradient
        for variable, gradient in zip(variables, earlier)
    ]
    gradients, sums = chunks.add(body, [zeros, tf.nest.flatten(structure)])
    # A variable without a gradient in any chunk must not be updated, not even by weight decay.
    gradients = [g if i in learning else None for i, g in enumerate(gradients)]
    return gradients, tf.nest.pack_sequence_as(structure, sums)


def _add(total: tf.Tensor, gradient: tf.Tensor | tf.IndexedSlices | None) -> tf.Tensor:
    """Returns the sum; a table's gradient has only the rows that a chunk has read."""
    if gradient is None:
        return total
    if isinstance(gradient, tf.IndexedSlices):
        rows = gradient.indices[:, tf.newaxis]
        return tf.tensor_scatter_nd_add(total, rows, gradient.values)
    return total + gradient


def _weight(objective: Objective) -> float:
    return objective.config.weight * objective.prediction_weight


def _sums(objective: Objective, prediction: Prediction | None) -> dict:
    """Returns total loss and metrics of a prediction; zeros if it is None."""
    metrics = objective.no_metrics()
    total = tf.constant(0.0)
    if prediction is not None:
        metrics, total = metrics | prediction.metrics, prediction.total
    return {"total": total, "metrics": metrics}
