"""Trains in processes that die at random moments: a script that a test starts.

One process imports TensorFlow and forks before anything runs, so that each life begins at once.
"""

import os
import random
import signal
import sys

import tensorflow as tf

from official_cmlm.training import run as training
from official_cmlm.training.progress import TrainingProgress
from tests.training.tiny_training import params


def _on_two_devices() -> None:
    """Lets every training of this process run on two logical CPUs."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    training.create_strategy = lambda _: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def _life(
    model_dir: str, records: str, second: str | None, seconds: float | None, strategy: str
) -> int:
    """Runs the training in a forked process; returns how it ended, as `os.waitpid` says."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    if seconds is not None:
        on_train = TrainingProgress.on_train

        def first_step(reports: TrainingProgress, output: dict) -> None:
            if not signal.getitimer(signal.ITIMER_REAL)[0]:
                # Nobody handles SIGALRM: the process ends at once, wherever it is.
                signal.setitimer(signal.ITIMER_REAL, seconds)
            on_train(reports, output)

        TrainingProgress.on_train = first_step
    if second:
        _on_two_devices()
    interval = 80 if seconds is None else 2
    training.run(
        params(records, interval, second=second, distribution_strategy=strategy), "train", model_dir
    )
    os._exit(0)


def main() -> None:
    """Args: records, folder of the undisturbed model, folder of the other, kills, seed.

    The strategy to train with; for two groups of batches on two devices, the records of the second.
    """
    records, undisturbed, disturbed, kills, seed, strategy, *second = sys.argv[1:]
    second = second[0] if second else None
    rng = random.Random(int(seed))
    if _life(undisturbed, records, second, None, strategy):
        sys.exit("the undisturbed training failed")
    killed = 0
    for _ in range(int(kills)):
        status = _life(disturbed, records, second, rng.uniform(0, 0.4), strategy)
        killed += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status) and status:
            sys.exit("a training that went on failed")
    if _life(disturbed, records, second, None, strategy):
        sys.exit("the last training failed")
    print(f"killed {killed} times")


if __name__ == "__main__":
    main()
