"""The progress bar and a loop's metrics."""

import json
import time

import tensorflow as tf

from official_cmlm.training.progress import HISTORY_NAME, TrainingProgress
from tests.conftest import two_replicas


def test_a_constant_learning_rate_on_several_replicas(tmp_path):
    """It arrives as a distributed variable, as mirror_bert/* have it."""
    with two_replicas().scope():
        rate = tf.Variable(0.25, trainable=False)
    metrics = {"training_loss": tf.constant(2.0), "learning_rate": rate, "gradient_norm": 1.0}
    metrics |= {"tokens_per_second": 3.0, "padding_share": 0.5, "waiting_share": 0.0}
    with TrainingProgress(2, str(tmp_path), tf.Variable(1, dtype=tf.int64)) as reports:
        reports.on_train(metrics)
    assert reports.last["learning_rate"] == 0.25
    (line,) = (tmp_path / HISTORY_NAME).read_text().splitlines()
    assert 0.25 in json.loads(line).values()


def test_the_first_step_is_announced_before_it_is_traced(capsys):
    """The bar stands still meanwhile; a training that is done traces nothing."""
    for step, lines in ((1, 1), (2, 0)):
        with TrainingProgress(2, None, tf.Variable(step, dtype=tf.int64)):
            pass
        assert capsys.readouterr().err.count("tracing the first step") == lines


def test_time_to_the_first_step(capsys):
    """From the run's begin, not from that of the reports; one line."""
    reports = TrainingProgress(2, None, tf.Variable(1, dtype=tf.int64), time.monotonic() - 100)
    assert reports.seconds_to_first_step is None
    reports.on_first_step(7.25)
    assert 100 <= reports.seconds_to_first_step < 200
    line = capsys.readouterr().err.strip()
    assert line.startswith("first step after 10") and "7.2 s of it" in line
