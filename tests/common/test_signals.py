"""Signals: the first asks, the second ends; programs that are called get them too."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from official_cmlm.common import signals
from official_cmlm.common.errors import Stopped


@pytest.mark.parametrize("signum", signals.SIGNALS)
def test_a_signal_asks_for_a_stop(signum, capfd):
    """It arrives in another thread, and the handlers of before are back afterwards."""
    before = signal.getsignal(signum)
    stop, arrived = signals.StopRequest(), threading.Event()

    def act(number):
        stop(number)
        arrived.set()

    with signals.watching(act):
        assert not stop
        os.kill(os.getpid(), signum)
        assert arrived.wait(60)
        assert stop
    assert signal.getsignal(signum) is before
    assert "a second signal stops at once" in capfd.readouterr().err


def test_other_threads_only_run_the_block():
    """Python lets only the main thread handle signals."""
    done = []

    def block():
        with signals.watching(done.append):
            done.append("ran")

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert done == ["ran"]


def test_the_second_signal_ends_the_process(monkeypatch):
    """A signal that arrives twice within a moment was sent once."""
    codes, now = [], [100.0]
    monkeypatch.setattr(signals.os, "_exit", codes.append)
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    stop = signals.StopRequest()
    stop(signal.SIGTERM)
    now[0] += 0.5
    stop(signal.SIGTERM)
    assert codes == []
    now[0] += 1.0
    stop(signal.SIGINT)
    assert codes == [130]


# Signals the parent, which passes the signal on, then ends as the argument says.
_CHILD = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(sys.argv[1])))
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""


@pytest.mark.parametrize(("status", "error"), [(0, Stopped), (3, KeyboardInterrupt)])
def test_a_signal_is_passed_on_to_the_program(status, error):
    with pytest.raises(error):
        signals.call([sys.executable, "-c", _CHILD, str(status)])


def test_without_a_signal_the_status_is_returned():
    assert signals.call([sys.executable, "-c", "raise SystemExit(3)"]) == 3


def test_a_stop_is_one_line():
    """The binaries' own start-up turns `Stopped` into status 0."""
    code = (
        "from official_cmlm import cli; from official_cmlm.common.errors import Stopped\n"
        "def main(): raise Stopped('stopped at step 3')\n"
        "cli.run(main)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "stopped at step 3\n")


# A program that says "ready", is interrupted, and loses the exception if the argument says so.
_INTERRUPTED = """
import contextlib, sys, threading
from official_cmlm import cli
from official_cmlm.common import signals

signals._SAME_SECONDS = 0.0
keeps = sys.argv[1] == "keeps"
signals._MOST_SECONDS = 0.0 if keeps else 1.0

def main(way):
    with signals.keeping("all is kept") if keeps else contextlib.nullcontext():
        try:
            print("ready", flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            if way == "ends":
                raise
            print("goes on", flush=True)
            threading.Event().wait()

cli.run(main)
"""


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("ends", "interrupted; give the same command again"),
        ("loses", "interrupted; "),
        ("keeps", ""),
    ],
)
def test_every_program_ends_after_ctrl_c(way, says):
    """The exception ends it, or the time that it may take, or a second Ctrl-C."""
    command = [sys.executable, "-c", _INTERRUPTED, way]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as program:
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        if way != "ends":
            assert program.stdout.readline() == "goes on\n"
        if way == "keeps":
            program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
        printed = program.stderr.read().strip()
    assert printed.startswith(says) and "\n" not in printed


@pytest.mark.parametrize("module", ["difflib", "absl.flags", "official_cmlm.cli", "numpy"])
def test_ctrl_c_during_start_up_shows_no_stack_trace(tmp_path, module):
    """The command reads standard input, so it ends only by the signal."""
    (tmp_path / "cmlm").write_text("from official_cmlm.command import main; main()")
    command = [sys.executable, "-X", "importtime", str(tmp_path / "cmlm"), "search", "-", "a"]
    with subprocess.Popen(command, stdin=-1, stderr=-1, text=True) as program:
        assert any(line.split("|")[-1].strip() == module for line in program.stderr)
        program.send_signal(signal.SIGINT)
        assert program.wait(60) in (-signal.SIGINT, 130)
        assert "Traceback" not in program.stderr.read()
