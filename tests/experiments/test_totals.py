"""How long a training waits for its batches, by clocks that the test moves."""

import pytest
import tensorflow as tf

from experiments.totals import Stopwatch, Totals


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
