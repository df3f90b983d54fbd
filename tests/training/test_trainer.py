"""The trainer's clocks and sums, and on which steps it evaluates, without any training."""

from types import SimpleNamespace

import orbit
import pytest
import tensorflow as tf
from official.core import base_trainer

from official_cmlm.training.step import count_metrics
from official_cmlm.training.trainer import Controller, Stopwatch, Totals, Trainer


class _Clock:
    def __init__(self):
        self.now = 100.0

    def passes(self, seconds):
        self.now += seconds

    def in_graph(self):
        return tf.py_function(lambda: self.now, [], tf.float64)


@pytest.mark.parametrize(("batch", "step", "share"), [(9.0, 1.0, 0.9), (0.0, 5.0, 0.0)])
def test_the_waiting_share(batch, step, share):
    """A pipeline that takes `batch` seconds for each, before a step of `step` seconds."""
    clock = _Clock()
    watch = Stopwatch(lambda: clock.now, clock.in_graph)

    def batches():
        while True:
            clock.passes(batch)
            yield {"key": 1}

    dataset = tf.data.Dataset.from_generator(
        batches, output_signature={"key": tf.TensorSpec([], tf.int32)}
    )
    options = tf.data.Options()
    # Another thread would read ahead, and move the clock at moments of its own.
    options.experimental_optimization.inject_prefetch = False
    iterator = iter(dataset.with_options(options))

    @tf.function
    def loop(count):
        for _ in tf.range(count):
            inputs = watch.next(iterator)
            with tf.control_dependencies([inputs["key"]]):
                tf.py_function(lambda: clock.passes(step), [], [])

    clock.passes(1000.0)
    for count in (2, 4):
        # Each loop begins anew.
        watch.start()
        loop(count)
        seconds, waited = watch.read()
        assert (seconds, waited) == (count * (batch + step), count * batch)
    assert Totals(4, 8, 60, 80, seconds, waited).rates() == {
        "steps_per_second": 4 / seconds,
        "tokens_per_second": 60 / seconds,
        "padding_share": 0.25,
        "waiting_share": pytest.approx(share),
    }


def test_sums_and_differences():
    one, other = Totals(1, 2, 3, 4, 5.0, 6.0), Totals(10, 20, 30, 40, 50.0, 60.0)
    assert one + other == Totals(11, 22, 33, 44, 55.0, 66.0)
    assert one + other - one == other


@pytest.mark.parametrize("steps_per_loop", [1, 4])
def test_the_first_piece_says_nothing_of_the_rates(monkeypatch, steps_per_loop):
    """Tracing takes a minute here, each step a second; the sums have both."""
    clock = _Clock()
    trainer = Trainer.__new__(Trainer)
    trainer.totals, trainer._after_first, trainer._first = Totals(), Totals(), None
    trainer._stop, trainer._several, trainer._piece = (lambda: False), False, 1
    trainer._watch = Stopwatch(lambda: clock.now, lambda: tf.constant(clock.now, tf.float64))
    trainer._global_step, trainer._train_metrics = tf.Variable(0), count_metrics()
    trainer._config = SimpleNamespace(trainer=SimpleNamespace(train_steps=12))
    trainer._model = SimpleNamespace(guard=SimpleNamespace(failure=lambda: None))
    trainer._optimizer = SimpleNamespace(learning_rate=0.5)

    def metrics_of_the_loop(self):
        logs = {metric.name: metric.result() for metric in self.train_metrics}
        for metric in self.train_metrics:
            metric.reset_state()
        return logs

    monkeypatch.setattr(base_trainer.Trainer, "train_loop_begin", lambda self: None)
    monkeypatch.setattr(base_trainer.Trainer, "train_loop_end", metrics_of_the_loop)

    def loop(iterator, count):
        if not int(trainer.global_step):
            clock.passes(60.0)
        for _ in range(int(count)):
            clock.passes(1.0)
            trainer.global_step.assign_add(1)
            for metric, value in zip(trainer.train_metrics, (2.0, 30.0, 40.0)):
                metric.update_state(value)

    rates = []
    for _ in range(8 // steps_per_loop):
        trainer.train_loop_begin()
        trainer._in_pieces(loop, None, tf.constant(steps_per_loop))
        rates.append(trainer.train_loop_end()["steps_per_second"])
    # A loop of nothing but the first piece has no other rate.
    assert rates == [1 / 61 if steps_per_loop == 1 else 1.0] + [1.0] * (len(rates) - 1)
    assert trainer.rates()["steps_per_second"] == 1.0
    assert trainer.rates()["tokens_per_second"] == 30.0
    assert trainer.totals == Totals(8, 16, 240, 320, 68.0, 0.0)


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
