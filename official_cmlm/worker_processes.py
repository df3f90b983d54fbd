"""Preparation of processes that work for another one."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading


def end_with_parent() -> None:
    """Ends this process when the one that started it is gone, even if it was killed."""
    parent = multiprocessing.parent_process()

    def watch(sentinel: int) -> None:
        multiprocessing.connection.wait([sentinel])
        os._exit(1)

    if parent is not None:
        threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()


def prepare_worker(workers: int) -> None:
    """Prepares one of several processes that compute; it ends only when its parent ends.

    Unless the environment says otherwise, it gets its share of the cores. Call it before the
    libraries that compute are imported.
    """
    end_with_parent()
    # The parent ends the run in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = max(1, len(os.sched_getaffinity(0)) // workers)
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
