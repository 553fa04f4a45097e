"""Watches the size of a file that torch writes, also within a step.

A step may be long: without Convoy's API, an evaluation lies between two steps of the optimizer. torch's
profiler can be stopped only by the thread that started it. So the watch lets the interpreter call a function
in that thread as it calls handlers of signals, but no system call is interrupted.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

SECONDS = 0.1
"""Seconds between two looks at the size."""

_pending: deque[Callable[[], None]] = deque()
"""Functions to call in the main thread."""


class SizeWatch:
    """Calls a function once if a file becomes larger than a limit, until `stop`.

    Only the main thread can be called. For another thread, the watch does nothing.
    """

    def __init__(self, path: Path, limit: int, call: Callable[[], None]) -> None:
        """`call`: called between two instructions of the thread that makes this watch. It never raises."""
        self._path, self._limit, self._call = path, limit, call
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if threading.current_thread() is threading.main_thread():
            self._thread = threading.Thread(target=self._run, name="convoy-trace-size", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Call nothing any more."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(SECONDS):
            if size_of(self._path) > self._limit:
                _call_in_main_thread(self._call_unless_stopped)
                return

    def _call_unless_stopped(self) -> None:
        if not self._over.is_set():
            self._call()


def size_of(path: Path) -> int:
    """Return the bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _call_in_main_thread(function: Callable[[], None]) -> None:
    _pending.append(function)
    ctypes.pythonapi.Py_AddPendingCall(_run_pending, None)


def _call_oldest(_: object) -> int:
    if _pending:
        _pending.popleft()()
    return 0


_run_pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_call_oldest)
"""The interpreter calls this, so it must exist as long as the program."""
