"""Computes a batch in chunks: the loss and gradients of the whole batch in the memory of one chunk.

A loss that compares all examples with each other takes two passes (gradient cache, Gao et al. 2021,
"Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"). The first pass computes
all vectors without a gradient tape; the gradient of the loss with respect to the vectors follows.
The second pass computes the vectors again, chunk by chunk, and backpropagates that gradient through
the encoder. Dropout masks are functions of the row, so both passes draw the same masks.

A loss that is a mean over predictions is accumulated: the chunks' losses are summed and divided by
the number of predictions, which is known beforehand.
"""

from collections.abc import Callable

import tensorflow as tf

from official_cmlm.losses.replicas import global_mean
from official_cmlm.objectives import Objective, ObjectiveOutput
from official_cmlm.objectives.base import Prediction
from official_cmlm.training.gradients import Gradients
from official_cmlm.training.model import MultiObjectiveModel, own_first_row

Chunk = Callable[[tf.Tensor], tuple[dict[str, dict], dict[str, tf.Tensor]]]
"""Index of a chunk -> its features, and each group's first row in the global batch."""

Parts = dict[str, dict[str, tf.Tensor]]
"""Objective -> name -> vectors of a batch, or the loss's gradients with respect to them."""


def chunked_gradients(
    model: MultiObjectiveModel,
    features: dict[str, dict],
    step_key: tf.Tensor,
    factor: tf.Tensor,
    chunk_size: int,
) -> tuple[tf.Tensor, Gradients, dict[str, ObjectiveOutput]]:
    """Computes a batch's loss, the gradients of `factor` times the loss, and the outputs.

    Args:
      model: the model.
      features: group -> features; the groups may differ in their number of examples.
      step_key: key of the dropout masks, see `MultiObjectiveModel.call`.
      factor: float32 scalar.
      chunk_size: examples of each group at a time, at least 1.
    """
    sizes = {names: tf.shape(batch["key"])[0] for names, batch in features.items()}
    count = tf.reduce_max([(size + chunk_size - 1) // chunk_size for size in sizes.values()])
    # All groups have the same number of chunks, of nearly equal size.
    steps = {names: (size + count - 1) // count for names, size in sizes.items()}
    starts = {names: own_first_row(batch) for names, batch in features.items()}

    def chunk(index: tf.Tensor) -> tuple[dict[str, dict], dict[str, tf.Tensor]]:
        begin = {names: tf.minimum(index * steps[names], sizes[names]) for names in features}
        end = {names: tf.minimum(begin[names] + steps[names], sizes[names]) for names in features}
        part = {
            names: tf.nest.map_structure(lambda v, n=names: v[begin[n] : end[n]], batch)
            for names, batch in features.items()
        }
        return part, {n: starts[n] + tf.cast(begin[n], tf.int64) for n in features}

    vectors = _all_vectors(model, chunk, count, step_key)
    compared, caches = _compare(model, vectors, factor)
    totals = {
        name: model.objectives[name].num_predictions(batch)
        for names, batch in features.items()
        for name in names.split("+")
    }
    # R / global weight turns this replica's sum of losses into its part of the global mean.
    shares = {name: global_mean(tf.constant(1.0), total) for name, total in totals.items()}
    found, sums = _accumulate(model, chunk, count, step_key, factor, caches, shares)
    outputs = {
        name: _output(model.objectives[name], compared[name], sums[name], shares[name])
        for name in model.objectives
    }
    loss = tf.add_n([model.objectives[n].config.weight * out.loss for n, out in outputs.items()])
    return loss, found, outputs


def _all_vectors(
    model: MultiObjectiveModel, chunk: Chunk, count: tf.Tensor, step_key: tf.Tensor
) -> Parts:
    """Computes every objective's vectors of the whole batch, without a gradient tape."""
    part, first_rows = chunk(tf.constant(0))
    shapes = model.vectors(part, step_key, first_rows)
    flat = tf.nest.flatten(shapes)
    if not flat:
        return shapes
    arrays = [
        tf.TensorArray(v.dtype, size=count, infer_shape=False, element_shape=[None, v.shape[-1]])
        for v in flat
    ]

    def body(index: tf.Tensor, *arrays: tf.TensorArray) -> tuple:
        part, first_rows = chunk(index)
        found = tf.nest.flatten(model.vectors(part, step_key, first_rows))
        return (index + 1, *(array.write(index, v) for array, v in zip(arrays, found)))

    # The first chunk was computed above, for the shapes.
    arrays = [array.write(0, v) for array, v in zip(arrays, flat)]
    # Chunks that are computed in parallel would be in memory together.
    _, *arrays = tf.while_loop(
        lambda index, *_: index < count, body, [tf.constant(1), *arrays], parallel_iterations=1
    )
    return tf.nest.pack_sequence_as(shapes, [array.concat() for array in arrays])


def _compare(
    model: MultiObjectiveModel, vectors: Parts, factor: tf.Tensor
) -> tuple[dict[str, ObjectiveOutput | None], Parts]:
    """The objectives' comparisons, and the vectors' gradients of `factor` times the loss."""
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


def _accumulate(
    model: MultiObjectiveModel,
    chunk: Chunk,
    count: tf.Tensor,
    step_key: tf.Tensor,
    factor: tf.Tensor,
    caches: Parts,
    shares: dict[str, tf.Tensor],
) -> tuple[Gradients, dict[str, dict[str, tf.Tensor]]]:
    """Sums the chunks' gradients, and their predictions' totals and metrics."""
    variables = model.trainable_variables
    flat_caches = tf.nest.flatten(caches)

    def one(index: tf.Tensor, begin: list[tf.Tensor]) -> tuple[list, list, list[tf.Tensor]]:
        part, first_rows = chunk(index)
        with tf.GradientTape() as tape:
            vectors, predicted = model.parts(part, step_key, first_rows)
            flat = tf.nest.flatten(vectors)
            ends = [b + tf.shape(v)[0] for b, v in zip(begin, flat)]
            targets = [
                tf.reduce_sum(v * tf.cast(cache[b:e], v.dtype))
                for v, cache, b, e in zip(flat, flat_caches, begin, ends)
            ]
            targets += [
                factor * _weight(model.objectives[name]) * shares[name] * prediction.total
                for name, prediction in predicted.items()
                if prediction is not None
            ]
            target = tf.add_n([tf.cast(t, tf.float32) for t in targets])
        sums = {n: _sums(model.objectives[n], p) for n, p in predicted.items()}
        return tape.gradient(target, variables), tf.nest.flatten(sums), ends

    names = list(model.objectives)
    begin = [tf.constant(0) for _ in flat_caches]
    gradients, sums, ends = one(tf.constant(0), begin)
    known = [i for i, gradient in enumerate(gradients) if gradient is not None]
    dense = [tf.convert_to_tensor(gradients[i]) for i in known]

    def body(index: tf.Tensor, dense: list, sums: list, begin: list) -> tuple:
        more, added, ends = one(index, begin)
        more = [tf.convert_to_tensor(more[i]) for i in known]
        dense = [a + b for a, b in zip(dense, more)]
        return index + 1, dense, [a + b for a, b in zip(sums, added)], ends

    _, dense, sums, _ = tf.while_loop(
        lambda index, *_: index < count,
        body,
        [tf.constant(1), dense, sums, ends],
        parallel_iterations=1,
    )
    found: Gradients = [None] * len(variables)
    for i, gradient in zip(known, dense):
        found[i] = gradient
    structure = {n: _sums(model.objectives[n], None) for n in names}
    return found, tf.nest.pack_sequence_as(structure, sums)


def _weight(objective: Objective) -> float:
    return objective.config.weight * objective.prediction_weight


def _sums(objective: Objective, prediction: Prediction | None) -> dict:
    """Total loss and metrics of a prediction; zeros if there is no prediction."""
    metrics = objective.no_metrics()
    total = tf.constant(0.0)
    if prediction is not None:
        metrics, total = metrics | prediction.metrics, prediction.total
    return {"total": total, "metrics": metrics}


def _output(
    objective: Objective,
    compared: ObjectiveOutput | None,
    sums: dict,
    share: tf.Tensor,
) -> ObjectiveOutput:
    loss = objective.prediction_weight * share * sums["total"]
    metrics = dict(sums["metrics"])
    if compared is not None:
        loss += compared.loss
        metrics |= compared.metrics
    return ObjectiveOutput(loss, metrics)
