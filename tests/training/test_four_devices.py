"""Four replicas train as one device does, with dropout on and negatives from all of them."""

import subprocess
import sys

import pytest

from tests.training.four_devices import NAMES


@pytest.mark.long
def test_a_step_on_four_devices_equals_one(vocabulary, tmp_path):
    vocabulary.save(tmp_path)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.training.four_devices"),
            *(str(tmp_path), str(tmp_path / "records")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(NAMES)
