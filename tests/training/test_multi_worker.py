"""Two worker processes train as one device does, stop together, and go on together."""

import json
import os
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.training.run import run
from tests.training.tiny_training import params


def _free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


# Seconds until two processes that wait for each other are given up.
_PATIENCE = 540


def _two_workers(records, model_dir, steps, steps_per_loop=1, signalled_at=(0, 0)):
    """Runs the training in two processes; returns what they printed."""
    workers = [f"localhost:{port}" for port in _free_ports(2)]
    processes, printed = [], []
    for index in range(2):
        task = {"type": "worker", "index": index}
        temporary = model_dir.parent / f"temporary{index}"
        temporary.mkdir(exist_ok=True)
        arguments = [records, model_dir, steps, steps_per_loop, signalled_at[index]]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.training.tiny_training", *map(str, arguments)],
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
    try:
        printed = [process.communicate(timeout=_PATIENCE)[0] for process in processes]
    finally:
        # One that waits for a partner that has gone would wait for ever.
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], printed
    # What the second worker saved for nobody.
    left = [path for index in range(2) for path in model_dir.parent.glob(f"temporary{index}/*")]
    assert not [path for path in left if path.is_dir()]
    return printed


@pytest.mark.long
def test_two_workers_train_as_one_device_and_go_on(records_dir, tmp_path):
    """Four steps, and four more in new processes, give the weights of eight on one device."""
    both, single = tmp_path / "both", tmp_path / "single"
    _two_workers(records_dir, both, 4)
    assert tf.train.latest_checkpoint(str(both)).endswith("ckpt-4")
    _two_workers(records_dir, both, 8)
    run(params(str(records_dir), 4, steps=8), "train", str(single))
    expected, found = (
        tf.train.load_checkpoint(tf.train.latest_checkpoint(str(folder)))
        for folder in (single, both)
    )
    names = [n for n in expected.get_variable_to_shape_map() if n.startswith("encoder/")]
    assert len(names) > 15
    for name in names:
        one, two = expected.get_tensor(name), found.get_tensor(name)
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5, err_msg=name)
    lines = (both / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 9))


@pytest.mark.long
def test_a_signal_to_one_worker_stops_both(records_dir, tmp_path):
    """Soon after it, inside a loop of 5,000 steps, at one step, which the other one has saved."""
    first, second = _two_workers(records_dir, tmp_path / "model", 5000, 5000, (0, 3))
    step = int(re.search(r"stopped at step (\d+) of 5000, saved as ", first)[1])
    assert f"stopped at step {step} of 5000, saved by the chief worker; run the same" in second
    # After pieces of 1, 2, 4 … steps at most; the signal may arrive a piece late.
    assert 3 <= step < 100
    assert tf.train.latest_checkpoint(str(tmp_path / "model")).endswith(f"ckpt-{step}")
