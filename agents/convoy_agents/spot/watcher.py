"""Polls the metadata service that the node's SpotPool names."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import structlog

from convoy_agents import metrics
from convoy_agents.backoff import Backoff
from convoy_agents.spot.notices import Notices
from convoy_agents.spot.source import POLL_SECONDS, NoticeSource, SourceError
from convoy_crds.spotpool_status import NoticeSource as Name

PERIOD_SECONDS = 2.0
"""Mean seconds between two polls. Each pause is between 75 and 125 % of this value."""
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 15.0
"""Shortest and longest pause after a failed poll."""
LOG_SECONDS = 300.0
"""Minimum seconds between two warnings about a service that keeps failing."""

log = structlog.get_logger()


class MetadataWatcher:
    """The polls of one node. A service that hangs or fails delays nothing else, and withdraws no notice."""

    def __init__(
        self,
        notices: Notices,
        named: Callable[[str], tuple[Name, NoticeSource] | None],
        period: float = PERIOD_SECONDS,
    ) -> None:
        """`named` returns the service of this name, None for no service, and raises ValueError for an unknown
        or forbidden one.
        """
        self._notices = notices
        self._named = named
        self._period = period
        self._metadata = ""
        self._changed = asyncio.Event()
        self._warn_at = 0.0

    def choose(self, metadata: str) -> None:
        """Poll this service from now on; none if the name is empty."""
        if metadata != self._metadata:
            self._metadata = metadata
            self._changed.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        source: NoticeSource | None = None
        name = Name.FAKE
        backoff = Backoff(first=RETRY_SECONDS, cap=MAX_RETRY_SECONDS)
        while True:
            if self._changed.is_set():
                self._changed.clear()
                self._notices.set_findings(name, ())
                self._notices.stop_polls()
                self._warn_at = 0.0
                found = self._find()
                name, source = found or (name, None)
                backoff.reset()
            pause: float | None = None
            if source is not None:
                pause = await self._poll(name, source, backoff)
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _find(self) -> tuple[Name, NoticeSource] | None:
        try:
            return self._named(self._metadata)
        except ValueError as error:
            metrics.NOTICE_POLLS.labels("refused").inc()
            log.warning("metadata service of the SpotPool not polled", why=str(error))
            self._notices.set_poll(self._metadata, str(error))
            return None

    async def _poll(self, name: Name, source: NoticeSource, backoff: Backoff) -> float:
        """Poll once. Return the seconds until the next poll."""
        try:
            async with asyncio.timeout(POLL_SECONDS):
                findings = await source.poll()
        except (SourceError, TimeoutError) as error:
            self._warn(name, str(error) or f"no reply within {POLL_SECONDS:g} s")
            if isinstance(error, SourceError) and error.findings:
                metrics.NOTICE_POLLS.labels("noticed").inc()
                self._notices.set_findings(name, error.findings, complete=False)
            return backoff.next()
        except Exception:
            # A reply that the client does not foresee must not end the polls.
            metrics.NOTICE_POLLS.labels("failed").inc()
            log.exception("poll of the metadata service failed", source=name.value)
            self._notices.set_poll(name.value, "its reply is not understood; the agent's log has the error")
            return backoff.next()
        metrics.NOTICE_POLLS.labels("done").inc()
        if findings:
            metrics.NOTICE_POLLS.labels("noticed").inc()
        self._warn_at = 0.0
        backoff.reset()
        self._notices.set_findings(name, findings)
        self._notices.set_poll(name.value)
        return self._period * random.uniform(0.75, 1.25)  # noqa: S311 - spreads polls, no secret

    def _warn(self, name: Name, why: str) -> None:
        metrics.NOTICE_POLLS.labels("failed").inc()
        self._notices.set_poll(name.value, why)
        now = asyncio.get_running_loop().time()
        if now >= self._warn_at:
            self._warn_at = now + LOG_SECONDS
            log.warning("metadata service not readable, will retry", source=name.value, why=why)
