"""Processes of this machine that end with the one that started them, however it ends."""

import multiprocessing
import os
import select
import threading
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from pretrain import access


def pool(count: int) -> ProcessPoolExecutor:
    """``count`` processes to share work with.

    Python's own outlive a parent that was killed, and hold whatever they were given.
    """
    # Spawned, since a fork would copy the locks of threads that it does not copy.
    context = multiprocessing.get_context("spawn")
    started = partial(_start, os.getpid(), access.standing())
    return ProcessPoolExecutor(count, mp_context=context, initializer=started)


def _start(pid: int, accesses: tuple[access.Access, ...]) -> None:
    access.adopt(accesses)
    end_with(pid)


def end_with(pid: int, code: int = 1) -> None:
    """End this process with ``code`` as soon as another one has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(code)

    def wait() -> None:
        select.select([descriptor], [], [])
        os._exit(code)

    threading.Thread(target=wait, name="end-with", daemon=True).start()
