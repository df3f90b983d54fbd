"""`processor`: affinity, quotas of containers, the environment, bfloat16."""

import os
import signal
import subprocess
import sys

import pytest

from official_cmlm.common import processor, worker_processes


def test_cores_are_those_of_the_processs_share(monkeypatch):
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(processor, "cgroup_cores", lambda: 0)
    assert processor.usable_cores() == 8
    for value, cores in (("3", 3), ("0", 8), ("99", 8), ("4,2", 8)):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert processor.usable_cores() == cores
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    assert processor.usable_cores() == 2
    monkeypatch.setattr(processor, "cgroup_cores", lambda: 1)
    assert processor.usable_cores() == 1


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/", {"cpu.max": "max 100000\n"}, 0),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, 1),
        ("0::/gone", {"cpu.max": "300000 100000\n"}, 3),
        ("3:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "-1\n"}, 0),
        (
            "3:cpu,cpuacct:/a\n4:pids:/",
            {"cpu/a/cpu.cfs_quota_us": "250000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            3,
        ),
        ("0::/", {"cpu.max": "junk"}, 0),
        ("", {}, 0),
    ],
)
def test_cores_of_a_container_are_its_quota(tmp_path, cgroup, files, cores):
    written = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (written | {"proc/self/cgroup": cgroup}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processor.cgroup_cores(tmp_path) == cores


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16 avx512f\n", True),
        ("flags\t\t: fpu amx_bf16\n", True),
        ("flags\t\t: fpu avx2 avx512f\nmodel name: avx512_bf16\n", False),
        ("", False),
    ],
)
def test_bfloat16_is_asked_of_the_processor(tmp_path, text, found):
    assert not processor.multiplies_bfloat16(tmp_path / "missing")
    (tmp_path / "cpuinfo").write_text(text)
    assert processor.multiplies_bfloat16(tmp_path / "cpuinfo") == found


# Encodes a sentence, here and in a process, without what Python has on Linux alone.
_ELSEWHERE = """
import os, signal, sys
sys.modules |= dict.fromkeys(["fcntl", "resource"])
del os.sysconf, os.sched_getaffinity, os.getpgrp, os.tcgetpgrp, signal.pthread_sigmask
from official_cmlm import SentenceEncoder
from official_cmlm.common import files, signals, worker_processes
if __name__ == "__main__":
    with signals.ending_soon(""), worker_processes.Processes(1) as processes:
        encoder = SentenceEncoder.load("mini-en")
        print(encoder.encode(["a"]).shape, processes.call(len), files.is_locked(__file__))
"""


def test_a_sentence_is_encoded_on_other_systems(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(_ELSEWHERE)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert done.stdout == "(1, 384) 0 False\n", done.stderr


def test_workers_share_the_quota(monkeypatch):
    """Several processes divide the cores that a container may use."""
    names = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS")
    for name in names:
        # Set and deleted, so that it is deleted again after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    monkeypatch.setattr(processor, "cgroup_cores", lambda: 4)
    monkeypatch.setattr(worker_processes, "end_with_parent", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *unused: None)
    worker_processes.prepare_worker(2)
    assert [os.environ[name] for name in names] == ["2"] * 3
