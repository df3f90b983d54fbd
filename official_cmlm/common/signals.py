"""SIGTERM and SIGINT: the first signal requests an orderly stop, a second one stops at once."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from official_cmlm.common.errors import Stopped

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A terminal, `timeout` and systemd signal a whole group of processes, and `call` forwards signals:
# a signal that was sent once can arrive twice. Signals within this many seconds count as one.
_SAME_SECONDS = 1.0
# Seconds after Ctrl-C at which a program that still runs is ended.
_MOST_SECONDS = 1.8
# It is held while an interrupted program writes what it keeps, as the words say.
_keeping, _kept = threading.Lock(), list[str]()


class StopRequest:
    """A flag that is true once a stop of this process was requested.

    The message is printed then.
    """

    def __init__(
        self,
        message: str = "stopping after this step and a checkpoint; a second signal stops at once",
    ) -> None:
        self._first: float | None = None
        self._message = message

    def __bool__(self) -> bool:
        return self._first is not None

    def __call__(self, signum: int) -> None:
        """Records a signal; the second one ends the process."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
            if self._message:
                print(f"\n{self._message}", file=sys.stderr, flush=True)
        elif now - self._first > _SAME_SECONDS:
            os._exit(128 + signum)


@contextlib.contextmanager
def watching(
    act: Callable[[int], None],
    numbers: Collection[int] = SIGNALS,
    handler: Callable[..., None] = lambda *_: None,
) -> Iterator[None]:
    """Calls `act(signal number)` for each of these signals during the block, in another thread.

    The call comes at once, even while the main thread runs TensorFlow, where Python's own handlers
    would wait. Only the main thread can set this up; in other threads signals are not watched.

    Args:
      act: see above.
      numbers: the signals.
      handler: called by the main thread as soon as it runs Python code.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    # Windows asks for it of sockets alone.
    if hasattr(os, "set_blocking"):
        os.set_blocking(writing, False)

    def watch() -> None:
        while data := os.read(reading, 1):
            if data[0] in numbers:
                act(data[0])

    thread = threading.Thread(target=watch, daemon=True)
    old_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    old = {number: signal.signal(number, handler) for number in numbers}
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


@contextlib.contextmanager
def ending_soon(advice: str) -> Iterator[None]:
    """Lets the first Ctrl-C raise `KeyboardInterrupt`, and a second one end the process at once.

    A process that has not ended two seconds after the first one, as a library computes or has lost
    the exception, is ended with the advice; nothing that is written at that time is then half
    there, as files appear when they are whole. Blocks that handle SIGINT themselves are left alone.
    """
    stop, is_raised, is_over = StopRequest(""), False, False

    def interrupt(*_: Any) -> None:
        # A second exception would end the clean-up after the first.
        nonlocal is_raised
        if not is_raised:
            is_raised = True
            raise KeyboardInterrupt

    def end() -> None:
        with _keeping, contextlib.suppress(OSError):
            if not is_over:
                os.write(2, f"\ninterrupted; {_kept[0] if _kept else advice}\n".encode())
        os._exit(128 + signal.SIGINT)

    def act(signum: int) -> None:
        if signal.getsignal(signum) is interrupt:
            if not stop:
                timer = threading.Timer(_MOST_SECONDS, end)
                timer.daemon = True
                timer.start()
            stop(signum)

    try:
        with watching(act, (signal.SIGINT,), interrupt):
            yield
    finally:
        is_over = True


@contextlib.contextmanager
def keeping(words: str) -> Iterator[None]:
    """Lets a program that was interrupted take its time for what it keeps, as the words say.

    Raises:
      KeyboardInterrupt: at the end, with the words.
    """
    _kept[:] = [words]
    with _keeping:
        yield
    raise KeyboardInterrupt(words)


def call(command: list[str]) -> int:
    """Runs a program to its end and returns its exit status; signals are forwarded to it.

    Raises:
      Stopped: if a signal arrived and the program exited with status 0.
      KeyboardInterrupt: if a signal arrived and the program exited with another status.
    """
    import subprocess

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
