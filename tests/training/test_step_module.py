"""The module for another runtime: arguments, results and their variables."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from official_cmlm.training.step_module import lower


def test_arguments_and_results_are_variables():
    """One variable is read, two are updated; a constant of the graph's outside is an array."""
    read, total, count = tf.Variable([2.0, 3.0]), tf.Variable([1.0, 1.0]), tf.Variable(0)
    constant = tf.constant([10.0, 20.0])

    def step(batch):
        total.assign_add(batch["x"] * read + constant)
        count.assign_add(1)

    module = lower(step, {"x": tf.ones([2])})
    held = [v for v in module.captured if isinstance(v, tf.Variable)]
    assert {v.ref() for v in held} == {read.ref(), total.ref(), count.ref()}
    arrays = [v for v in module.captured if isinstance(v, np.ndarray)]
    np.testing.assert_array_equal(arrays, [[10.0, 20.0]] * len(arrays))
    updated = {module.captured[i].ref() for i in module.updated}
    assert updated == {total.ref(), count.ref()} and len(module.updated) == 2


def test_no_copies_are_left():
    """An exchange of two variables needs none: the runtime decides about memory."""
    one, two = tf.Variable([1.0]), tf.Variable([2.0])

    def exchange(batch):
        old = one + batch * 0.0
        one.assign(two + 0.0)
        two.assign(old)

    hlo = hlo_pb2.HloModuleProto.FromString(lower(exchange, tf.zeros([1])).hlo)
    instructions = [i for c in hlo.computations for i in c.instructions]
    assert instructions and all(i.opcode != "copy" for i in instructions)
    known = {i.id for i in instructions}
    assert all(set(i.operand_ids) <= known for i in instructions)
    assert all(c.root_id in known for c in hlo.computations)


def test_a_variable_behind_a_handle_only():
    """Raw ops do not tell the graph whose handle they use; the caller does."""
    slot = tf.Variable([1.0])

    def step(batch):
        tf.raw_ops.AssignAddVariableOp(resource=slot.handle, value=batch)

    module = lower(step, tf.ones([1]), lambda: [slot])
    assert [v.ref() for v in module.captured] == [slot.ref()]


def test_a_step_that_returns_something_is_refused():
    """Results are updated variables and nothing else."""
    with pytest.raises(RuntimeError, match="updated variables only"):
        lower(lambda batch: batch + 1.0, tf.ones([1]))
