"""Prints progress lines with the seconds since the command started."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Prints one line per step to standard error, with the elapsed seconds. With `quiet`, prints nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._start = time.monotonic()
        self._quiet = quiet

    def report(self, text: str) -> None:
        """Print one line."""
        if not self._quiet:
            print(f"[{time.monotonic() - self._start:6.1f} s] {text}", file=sys.stderr, flush=True)

    @contextmanager
    def long(self, text: str, every: float = 30.0) -> Iterator[None]:
        """Print `text` at the start of the block, every `every` seconds while it runs, and with its
        duration at the end.
        """
        started = time.monotonic()
        done = threading.Event()

        def remind() -> None:
            while not done.wait(every):
                self.report(f"{text}: still running after {time.monotonic() - started:.0f} s")

        self.report(text)
        reminder = threading.Thread(target=remind, daemon=True)
        reminder.start()
        try:
            yield
        finally:
            done.set()
            reminder.join()
        self.report(f"{text}: done in {time.monotonic() - started:.1f} s")
