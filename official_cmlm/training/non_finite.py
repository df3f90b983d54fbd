"""Stops training at a non-finite loss: the step and those after it are not applied.

The code that runs inside the compiled step uses no host callbacks, no strings and only static
shapes.
"""

import dataclasses

import numpy as np
import tensorflow as tf

_NONE = -1


@dataclasses.dataclass(frozen=True)
class Failure:
    """A step with a non-finite loss or gradient norm.

    Attributes:
      step: counted from 1.
      loss, gradient_norm: of the global batch; the norm is measured before clipping.
    """

    step: int
    loss: float
    gradient_norm: float


class FiniteGuard:
    """A store of the first non-finite step, which is not saved in checkpoints.

    Create it in the scope of the model's distribution strategy.

    Attributes:
      variables: all variables that it uses.
    """

    def __init__(self) -> None:
        # Each replica has its own copies, which are equal: a step may assign them in a branch.
        self._step = _own_variable(tf.constant(_NONE, tf.int64))
        self._values = _own_variable(tf.zeros([2]))
        self.variables = [self._step, self._values]

    def allows(
        self, loss: tf.Tensor, norm: tf.Tensor, scaled: bool, iterations: tf.Tensor
    ) -> tf.Tensor:
        """Returns whether this step may be applied: bool scalar, equal on all replicas.

        Args:
          loss: loss of the global batch, float32 scalar.
          norm: norm of the global batch's gradients, float32 scalar.
          scaled: whether the loss is scaled. Non-finite gradients are then normal, and only the
            loss is checked.
          iterations: steps before this one, int64 scalar.
        """
        finite = tf.math.is_finite(loss)
        if not scaled:
            finite = tf.logical_and(finite, tf.math.is_finite(norm))
        before = tf.equal(self._step, _NONE)

        def remember() -> tf.Tensor:
            self._values.assign(tf.stack([loss, norm]))
            self._step.assign(tf.cast(iterations, tf.int64) + 1)
            return tf.constant(False)

        first = tf.logical_and(before, tf.logical_not(finite))
        return tf.cond(first, remember, lambda: tf.logical_and(before, finite))

    def failure(self) -> Failure | None:
        """Returns the stored failure, read by the host; None if all steps were finite."""
        step = int(_read_first(self._step))
        if step == _NONE:
            return None
        loss, norm = _read_first(self._values)
        return Failure(step, float(loss), float(norm))


def _own_variable(value: tf.Tensor) -> tf.Variable:
    return tf.Variable(
        value,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def _read_first(variable: tf.Variable) -> np.ndarray:
    """Returns the value of this host's first replica."""
    strategy = getattr(variable, "distribute_strategy", tf.distribute.get_strategy())
    return strategy.experimental_local_results(variable)[0].numpy()
