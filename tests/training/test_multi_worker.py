"""Two worker processes train as one device does, stop together, and go on together."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import make_documents, write_records
from tests.pairs_helpers import bitext, write_pairs


def _free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


# Seconds until two processes that wait for each other are given up.
_PATIENCE = 540


def _start(module, model_dir, arguments):
    """Starts two workers of a script, each with its own arguments."""
    workers = [f"localhost:{port}" for port in _free_ports(2)]
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        temporary = model_dir.parent / f"temporary{index}"
        temporary.mkdir(exist_ok=True)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments[index])],
                env={
                    **os.environ,
                    "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task}),
                    "TMPDIR": str(temporary),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return processes


def _finish(processes):
    """Waits for all of them; returns what they printed."""
    printed = []
    try:
        printed = [process.communicate(timeout=_PATIENCE)[0] for process in processes]
    finally:
        # One that waits for a partner that has gone would wait for ever.
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], printed
    return printed


@pytest.mark.long
def test_a_signal_to_one_worker_stops_both(records_dir, tmp_path):
    """Soon after it, inside a loop of 5,000 steps, at one step, which the other one has saved."""
    arguments = [[records_dir, tmp_path / "model", 5000, 5000, piece] for piece in (0, 3)]
    first, second = _finish(_start("tests.training.tiny_training", tmp_path / "model", arguments))
    # The second worker saved checkpoints that nobody needs.
    left = [path for index in range(2) for path in tmp_path.glob(f"temporary{index}/*")]
    assert not [path for path in left if path.is_dir() and path.name != "__pycache__"]
    step = int(re.search(r"stopped at step (\d+) of 5000, saved as ", first)[1])
    assert f"stopped at step {step} of 5000, saved by the chief worker; run the same" in second
    # After pieces of 1, 2, 4 … steps at most; the signal may arrive a piece late.
    assert 3 <= step < 100
    assert tf.train.latest_checkpoint(str(tmp_path / "model")).endswith(f"ckpt-{step}")


@pytest.mark.long
def test_a_killed_host_goes_on_as_one_device(tmp_path, vocabulary):
    """200 steps of `bitext/s3`: streams, chunks and rematerialisation on two hosts.

    The second host is killed at step 100, before the checkpoint of that step; both start again. One
    device, compiled by XLA, comes to the same weights, and has read as far.
    """
    documents, pairs = tmp_path / "documents", tmp_path / "pairs"
    write_records(documents, make_documents(60), vocabulary, shard_bytes=400)
    write_pairs(pairs, bitext(120), vocabulary, shard_bytes=400)
    both, single = tmp_path / "both", tmp_path / "single"
    module, common = "tests.training.bitext_training", [documents, pairs]
    first = _start(module, both, [[*common, both, 0], [*common, both, 100]])
    try:
        assert first[1].wait(_PATIENCE) == -signal.SIGKILL, first[1].stdout.read()
    finally:
        for process in first:
            process.kill()
            process.communicate()
    assert tf.train.latest_checkpoint(str(both)).endswith("ckpt-50")
    _finish(_start(module, both, [[*common, both, 0]] * 2))
    # Faster to compile.
    fast = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    subprocess.run(
        [sys.executable, "-m", module, *map(str, [*common, single, 0])],
        env={**os.environ, "XLA_FLAGS": fast},
        check=True,
    )
    prefixes = [tf.train.latest_checkpoint(str(folder)) for folder in (single, both)]
    assert all(prefix.endswith("ckpt-200") for prefix in prefixes)
    expected, actual = map(tf.train.load_checkpoint, prefixes)
    names = [
        name
        for name in expected.get_variable_to_shape_map()
        if name.startswith(("encoder/", "language_model_head/", "data_positions/"))
    ]
    # The streams of both groups are among them.
    assert sum("data_positions/streams/" in name for name in names) == 2 and len(names) > 20
    for name in names:
        one, two = expected.get_tensor(name), actual.get_tensor(name)
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-4, err_msg=name)
