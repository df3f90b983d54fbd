"""Two worker processes train as one device does, stop together, and go on together."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from experiments.training import run
from tests.experiments.tiny_training import params


def _free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _two_workers(records, model_dir, steps):
    """Runs the training in two processes; returns what they printed."""
    workers = [f"localhost:{port}" for port in _free_ports(2)]
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        processes.append(
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.experiments.tiny_training"),
                    *(str(records), str(model_dir), str(steps)),
                ],
                env={
                    **os.environ,
                    "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task}),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
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
