"""Bandwidth of summing gradients between two processes over loopback."""

import json
import os
import socket
import statistics
import subprocess
import sys
import time

from official_cmlm.errors import UserError

# Bytes of float32 gradients: of a small encoder, and of one four times its width.
SIZES = (16_000_000, 64_000_000)
_REPEATS = 7


def loopback_all_reduce(timeout: float = 180.0) -> dict[int, float]:
    """Bytes of gradients -> seconds that two worker processes take to sum them.

    Raises:
      UserError: if a worker fails.
    """
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(2)]
    workers = []
    for index in range(2):
        cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        command = [sys.executable, "-m", "benchmarks.scaling", "--worker"]
        workers.append(
            subprocess.Popen(  # noqa: S603
                command,
                env={**os.environ, "TF_CONFIG": json.dumps(cluster)},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    try:
        outputs = [worker.communicate(timeout=timeout)[0] for worker in workers]
    except subprocess.TimeoutExpired as error:
        raise UserError(f"two workers on loopback did not finish within {timeout:.0f} s") from error
    finally:
        for worker in workers:
            worker.kill()
    if any(worker.returncode for worker in workers):
        raise UserError("a worker on loopback failed; see above")
    found = json.loads(outputs[0].strip().splitlines()[-1])
    return {int(size): seconds for size, seconds in found.items()}


def work() -> dict[int, float]:
    """What a worker does: `TF_CONFIG` names the two of them."""
    import tensorflow as tf

    from official_cmlm.training.step import summed_over_replicas

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def reduce(gradients: tf.Tensor) -> tf.Tensor:
        def replica() -> tf.Tensor:
            # A tensor of this replica's device, as gradients are.
            return summed_over_replicas([tf.identity(gradients)])[0][0]

        return strategy.run(replica)

    found = {}
    for size in SIZES:
        gradients = tf.ones([size // 4])
        reduce(gradients).numpy()
        times = []
        for _ in range(_REPEATS):
            began = time.perf_counter()
            reduce(gradients).numpy()
            times.append(time.perf_counter() - began)
        found[size] = statistics.median(times)
    return found


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
