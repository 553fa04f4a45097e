"""SIGTERM as a flag. The signal interrupts no code; the job checks the flag between two steps."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any


class Interruption:
    """The request to stop the job, which arrives as SIGTERM."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._previous: Any = None
        self._armed = False

    def arm(self) -> None:
        """Install the SIGTERM handler. Outside the main thread this does nothing, because Python cannot
        install a handler there.
        """
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._on_signal)
            self._armed = True

    def disarm(self) -> None:
        """Restore the previous SIGTERM handler."""
        if self._armed:
            signal.signal(signal.SIGTERM, self._previous)
            self._armed = False

    @property
    def requested(self) -> bool:
        """True if SIGTERM has arrived."""
        return self.since is not None

    def elapsed(self) -> float:
        """Return the seconds since SIGTERM arrived; 0 if it has not arrived."""
        return 0.0 if self.since is None else time.monotonic() - self.since

    def _on_signal(self, *_: Any) -> None:
        if self.since is None:
            self.since = time.monotonic()
