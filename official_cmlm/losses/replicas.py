"""Makes a loss on R replicas equal to the loss on one device: global means, gathered candidates.

The trainer divides each replica's loss by R and adds the gradients. A replica must therefore return
R times its part of the global mean, as `global_mean` does. Outside of a replica context, and with
one replica, these functions are plain local operations.
"""

import tensorflow as tf


def _context() -> tf.distribute.ReplicaContext | None:
    context = tf.distribute.get_replica_context()
    return context if context is not None and context.num_replicas_in_sync > 1 else None


def global_mean(total: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Returns R · total / (sum of `weight` over the replicas); 0 if all replicas have weight 0.

    Args:
      total: this replica's weighted sum, float scalar.
      weight: this replica's sum of weights, float scalar.
    """
    context = _context()
    if context is None:
        return tf.math.divide_no_nan(total, weight)
    everywhere = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(weight))
    return tf.math.divide_no_nan(total * context.num_replicas_in_sync, everywhere)


def gather(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns all replicas' rows, and the index of this replica's first row among them.

    Gradients flow back to every replica's rows: a row's gradient is the sum of its gradients on all
    replicas.

    Args:
      rows: `[batch, …]`, the same batch on every replica.

    Returns:
      `[replicas · batch, …]` and an int32 scalar offset.
    """
    context = _context()
    if context is None:
        return rows, tf.constant(0)
    offset = tf.cast(context.replica_id_in_sync_group, tf.int32) * tf.shape(rows)[0]
    return context.all_gather(rows, axis=0), offset
