"""SIGTERM and SIGINT: the first signal requests an orderly stop, a second one stops at once."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

from official_cmlm.common.errors import Stopped

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A terminal, `timeout` and systemd signal a whole group of processes, and `call` forwards signals:
# a signal that was sent once can arrive twice. Signals within this many seconds count as one.
_SAME_SECONDS = 1.0


class StopRequest:
    """A flag that is true once a stop of this process was requested."""

    def __init__(self) -> None:
        self._first: float | None = None

    def __bool__(self) -> bool:
        return self._first is not None

    def __call__(self, signum: int) -> None:
        """Records a signal; the second one ends the process."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
            print(
                "\nstopping after this step and a checkpoint; a second signal stops at once",
                file=sys.stderr,
                flush=True,
            )
        elif now - self._first > _SAME_SECONDS:
            os._exit(128 + signum)


@contextlib.contextmanager
def watching(act: Callable[[int], None]) -> Iterator[None]:
    """Calls `act(signal number)` for each SIGTERM and SIGINT during the block, in another thread.

    The call comes at once, even while the main thread runs TensorFlow, where Python's own handlers
    would wait. Only the main thread can set this up; in other threads signals are not watched.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def watch() -> None:
        while data := os.read(reading, 1):
            if data[0] in SIGNALS:
                act(data[0])

    thread = threading.Thread(target=watch, daemon=True)
    old_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    old = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    thread.start()
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_fd)
        os.close(writing)
        thread.join()
        os.close(reading)


def call(command: list[str]) -> int:
    """Runs a program to its end and returns its exit status; signals are forwarded to it.

    Raises:
      Stopped: if a signal arrived and the program exited with status 0.
      KeyboardInterrupt: if a signal arrived and the program exited with another status.
    """
    received: list[int] = []
    started: list[subprocess.Popen] = []

    def pass_on(signum: int) -> None:
        received.append(signum)
        # The terminal sends Ctrl-C to all of its programs.
        if started and not (signum == signal.SIGINT and _in_foreground()):
            started[0].send_signal(signum)

    with watching(pass_on):
        started.append(subprocess.Popen(command))  # noqa: S603
        status = started[0].wait()
    if received and status:
        raise KeyboardInterrupt
    if received:
        raise Stopped("stopped; run the same command to resume")
    return status


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
