"""SIGTERM as a flag: the signal interrupts nothing, the next step boundary sees it."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any


class Interruption:
    """Whether, and since when, this process was asked to leave."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._previous: Any = None
        self._armed = False

    def arm(self) -> None:
        """Takes SIGTERM over. Off the main thread signals cannot be taken, so it stays as it is."""
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._on_signal)
            self._armed = True

    def disarm(self) -> None:
        """Gives SIGTERM back."""
        if self._armed:
            signal.signal(signal.SIGTERM, self._previous)
            self._armed = False

    @property
    def requested(self) -> bool:
        """Whether SIGTERM came."""
        return self.since is not None

    def elapsed(self) -> float:
        """Seconds since SIGTERM came; 0 before."""
        return 0.0 if self.since is None else time.monotonic() - self.since

    def _on_signal(self, *_: Any) -> None:
        if self.since is None:
            self.since = time.monotonic()
