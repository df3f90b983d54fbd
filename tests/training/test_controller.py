"""On which steps a training is evaluated, by a trainer that only counts."""

import orbit
import pytest
import tensorflow as tf

from official_cmlm.training.trainer import Controller


class _Counter(orbit.AbstractTrainer, orbit.AbstractEvaluator):
    def __init__(self, start):
        self.step = tf.Variable(start, dtype=tf.int64)
        self.loops, self.evaluations = [], []

    def train(self, num_steps):
        self.step.assign_add(int(num_steps))
        self.loops.append(int(self.step))

    def evaluate(self, num_steps):
        self.evaluations.append(int(self.step))


def _run(start, total, interval, evaluated=(), steps_per_loop=100):
    counter = _Counter(start)
    controller = Controller(
        unevaluated=lambda step: step not in evaluated,
        global_step=counter.step,
        trainer=counter,
        evaluator=counter,
        steps_per_loop=steps_per_loop,
    )
    controller.train_and_evaluate(total, -1, interval)
    return counter


@pytest.mark.parametrize("stop", [1, 499, 500, 537, 1000, 1099, 1200])
def test_a_stopped_training_is_evaluated_on_the_same_steps(stop):
    """As one that was never stopped; a loop of the first run may be cut short, no other."""
    whole = _run(0, 1200, 500)
    assert whole.evaluations == [500, 1000, 1200]
    done = [step for step in whole.evaluations if step <= stop]
    again = _run(stop, 1200, 500, evaluated=done)
    assert again.evaluations == [step for step in whole.evaluations if step > stop]
    assert again.loops == [step for step in whole.loops if step > stop]


@pytest.mark.parametrize(
    ("start", "expected"), [(500, [500, 1000, 1200]), (1200, [1200]), (537, [1000, 1200])]
)
def test_an_evaluation_that_a_stop_cut_off_comes_first(start, expected):
    """Also the one after the last step."""
    assert _run(start, 1200, 500).evaluations == expected


def test_without_an_interval_only_the_end_is_evaluated():
    assert _run(0, 250, 0).evaluations == [250]
    assert _run(250, 250, 0, evaluated=[250]).evaluations == []
