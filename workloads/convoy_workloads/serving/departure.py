"""The end of a serving rank after SIGTERM: it leaves its Service, refuses new requests, and drains."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving import kept_socket
from convoy_workloads.serving.lifecycle import Lifecycle
from convoy_workloads.serving.settings import Settings

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Departure:
    """The steps from SIGTERM to the end of the last request."""

    def __init__(
        self, settings: Settings, lifecycle: Lifecycle, idle: asyncio.Event, in_flight: Callable[[], int]
    ) -> None:
        """`idle` is set while no request is in flight. `in_flight` returns the number of such requests."""
        self.begun = asyncio.Event()
        """Set when the rank leaves its Service."""
        self._settings = settings
        self._lifecycle = lifecycle
        self._idle = idle
        self._in_flight = in_flight
        self._refusing = asyncio.Event()
        """Set when new requests must be refused before the endpoint lag has passed."""

    def handle_signals(self) -> None:
        """Let SIGTERM and SIGINT begin the departure."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.leave)

    def release_signals(self) -> None:
        """Restore the usual effect of the signals."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def leave(self) -> None:
        """Leave the Service and drain, as after SIGTERM. A second call ends the endpoint lag at once."""
        if self.begun.is_set():
            self._refusing.set()
        else:
            self.begun.set()
            self._lifecycle.leave()
            # No other rank replaces this one, so the launcher need not keep its port.
            kept_socket.drop()
            log_line(
                f"ends: accepts requests for another {self._settings.endpoint_lag_seconds:g} s, until all "
                f"proxies know; then the requests in flight have {self._settings.drain_seconds:g} s"
            )

    async def drain(self, over: asyncio.Future[Any], close_idle: Callable[[], None]) -> None:
        """Wait until all proxies know that this rank is ending, then until its requests have ended. Stop
        waiting when `over` is done.

        `close_idle` closes the connections without a request, whose next request would be refused.
        """
        refusing = asyncio.ensure_future(self._refusing.wait())
        lag = self._settings.endpoint_lag_seconds
        await asyncio.wait({over, refusing}, timeout=lag, return_when=asyncio.FIRST_COMPLETED)
        refusing.cancel()
        self._lifecycle.drain()
        close_idle()
        idle: asyncio.Future[Any] = asyncio.ensure_future(self._idle.wait())
        await asyncio.wait(
            {over, idle}, timeout=self._settings.drain_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if not idle.done():
            log_line(f"{self._in_flight()} requests did not end within the drain time and are cancelled")
        idle.cancel()
