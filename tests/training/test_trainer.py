"""The trainer's clocks and sums, and on which steps it evaluates, without any training."""

import functools
from types import SimpleNamespace

import orbit
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.training import trainer as trainer_module
from official_cmlm.training.config import SentenceEncoderExperimentConfig
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


def test_a_step_begins_after_the_clock_is_read():
    """A process with one thread may otherwise count the step as waiting."""
    clocks, parts = [], []

    def in_graph():
        clocks.append(tf.timestamp())
        return clocks[-1]

    watch = Stopwatch(timestamp=in_graph)
    ragged = tf.ragged.constant([[1], [2, 3]])
    iterator = iter(tf.data.Dataset.from_tensors({"a": 1, "b": ragged}).repeat())

    @tf.function
    def batch():
        inputs = watch.next(iterator)
        # The function's own results depend on all clocks anyway.
        parts.extend(tf.nest.flatten(inputs, expand_composites=True))
        return inputs

    assert batch()["b"].to_list() == ragged.to_list()
    for part in parts:
        needed, waiting = set(), [part.op]
        while waiting:
            op = waiting.pop()
            if op not in needed:
                needed.add(op)
                waiting += [each.op for each in op.inputs] + list(op.control_inputs)
        assert {clock.op for clock in clocks} <= needed


class _Task:
    """Counts 2 examples, 30 tokens and 40 positions a step, each of which takes a second."""

    loss = "loss"

    def __init__(self, clock):
        self._clock, self._traced = clock, False

    def build_inputs(self, params, input_context=None, reached=None):
        return tf.data.Dataset.from_tensors(0).repeat()

    def build_metrics(self, training=True):
        return count_metrics()

    def train_step(self, inputs, model, optimizer, metrics):
        # Tracing takes a minute.
        self._clock.passes(1.0 if self._traced else 61.0)
        self._traced = True
        for metric, value in zip(metrics, (2.0, 30.0, 40.0)):
            metric.update_state(value)
        return {"loss": tf.constant(1.0)}


def _make_trainer(config, clock, model, **settings):
    return Trainer(
        config,
        _Task(clock),
        model=model,
        optimizer=tf_keras.optimizers.SGD(0.5),
        stop=lambda: False,
        evaluate=False,
        **settings,
    )


@pytest.mark.parametrize("steps_per_loop", [1, 4])
def test_the_first_piece_says_nothing_of_the_rates(monkeypatch, steps_per_loop):
    """The first step is traced, which no rate includes if there is another; the sums have both."""
    clock, config = _Clock(), SentenceEncoderExperimentConfig()
    watch = functools.partial(
        Stopwatch, lambda: clock.now, lambda: tf.constant(clock.now, tf.float64)
    )
    monkeypatch.setattr(trainer_module, "Stopwatch", watch)
    config.trainer.train_steps = 12
    model = tf.Module()
    model.guard = SimpleNamespace(failure=lambda: None)
    tf.config.run_functions_eagerly(True)
    try:
        trainer = _make_trainer(config, clock, model)
        rates = [
            trainer.train(tf.constant(steps_per_loop))["steps_per_second"]
            for _ in range(8 // steps_per_loop)
        ]
    finally:
        tf.config.run_functions_eagerly(False)
    # A loop of nothing but the first piece has no other rate.
    assert rates == [1 / 61 if steps_per_loop == 1 else 1.0] + [1.0] * (len(rates) - 1)
    assert trainer.rates()["steps_per_second"] == 1.0
    assert trainer.rates()["tokens_per_second"] == 30.0
    assert trainer.totals == Totals(8, 16, 240, 320, 68.0, 0.0)


class _DeviceLoop:
    """A loop of JAX's, each of whose steps takes 1/128 s; it notes when it gives metrics back."""

    waited = compiling = 0.0

    def __init__(self, clock, accelerated):
        self.accelerated, self._clock, self.pieces = accelerated, clock, []

    def run(self, iterator, num_steps, stop):
        self._clock.passes(num_steps / 128)
        self.pieces.append(num_steps)


@pytest.mark.parametrize(
    ("accelerated", "pieces"),
    [
        (True, [1, 2, 4, 8, 16, 32, 64, 128, 256, 189, *3 * [640, 60]]),
        (False, [1, 2, 4, 8, 16, 32, 64, *8 * [64], 61, *3 * [*10 * [64], 60]]),
    ],
)
def test_an_accelerator_gives_its_metrics_back_every_five_seconds(monkeypatch, accelerated, pieces):
    """A CPU every half second; a short rest of a loop does not make the next pieces short."""
    clock, config = _Clock(), SentenceEncoderExperimentConfig()
    config.runtime.distribution_strategy = "pjrt"
    loop = _DeviceLoop(clock, accelerated)
    monkeypatch.setattr(trainer_module, "JaxLoop", lambda *_: loop)
    model = tf.Module()
    model.guard = SimpleNamespace(failure=lambda: None, variables=[])
    model.data_positions = SimpleNamespace(all=list)
    trainer = _make_trainer(config, clock, model, now=lambda: clock.now)
    for _ in range(4):
        trainer.train(tf.constant(700))
    assert loop.pieces == pieces


class _Counter(orbit.AbstractTrainer, orbit.AbstractEvaluator):
    def __init__(self, start):
        self.step = tf.Variable(start, dtype=tf.int64)
        self.loops, self.evaluations = [], []

    def train(self, num_steps):
        self.step.assign_add(int(num_steps))
        self.loops.append(int(self.step))

    def evaluate(self, num_steps):
        self.evaluations.append(int(self.step))


def _run(start, total, interval, evaluated=()):
    counter = _Counter(start)
    controller = Controller(
        unevaluated=lambda step: step not in evaluated,
        global_step=counter.step,
        trainer=counter,
        evaluator=counter,
        steps_per_loop=100,
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
    ("start", "total", "interval", "evaluated", "expected"),
    [
        # An evaluation that a stop cut off comes first, also the one after the last step.
        (500, 1200, 500, [], [500, 1000, 1200]),
        (1200, 1200, 500, [], [1200]),
        (537, 1200, 500, [], [1000, 1200]),
        # Without an interval only the end is evaluated.
        (0, 250, 0, [], [250]),
        (250, 250, 0, [250], []),
    ],
)
def test_evaluated_steps(start, total, interval, evaluated, expected):
    assert _run(start, total, interval, evaluated).evaluations == expected
