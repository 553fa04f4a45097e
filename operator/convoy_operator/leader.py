"""Who leads: one replica holds the Lease and renews it every second, or its process ends.

The lock is kubernetes.aio's with a deadline on every call (its own is 300 s, far beyond a Lease). The
election is ours: it measures by the monotonic clock, gives up at once when another holds the Lease, and
gives the Lease back when it stops. A thread ends the process if the event loop is too stuck to notice that
time is up.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient, V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock as StockLeaseLock

from convoy_operator.limits import backoff

log = structlog.get_logger(__name__)

_EXIT_CODE = 70
_SEPARATOR = "@"


class LeadershipLost(Exception):
    """This replica led and does not any more; its process is to end."""


def identity_of(name: str, boot: str, hub_address: str) -> str:
    """What the Lease names as holder: this start of this replica, and where its hub is."""
    return f"{name}_{boot}{_SEPARATOR}{hub_address}"


def address_in(identity: str) -> str:
    """The hub's address in a holder's identity; empty when it has none."""
    return identity.partition(_SEPARATOR)[2]


class LeaseLock(StockLeaseLock):
    """The stock lock, each call of which ends within `call_seconds`, and which fails but never raises."""

    def __init__(
        self, name: str, namespace: str, identity: str, client: ApiClient, call_seconds: float
    ) -> None:
        super().__init__(name, namespace, identity, client)
        self._call_seconds = call_seconds

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """(True, record) or (False, ApiException)."""
        try:
            async with asyncio.timeout(self._call_seconds):
                found: tuple[bool, Any] = await super().get(name, namespace)
                return found
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            return False, ApiException(status=0, reason=repr(fault))

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Whether the Lease was created. The stock method's call fails its own validation."""
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        try:
            async with asyncio.timeout(self._call_seconds):
                await self.api_instance.create_namespaced_lease(namespace, body)
        except (ApiException, TimeoutError, aiohttp.ClientError, OSError) as fault:
            log.warning("the Lease cannot be created", error=repr(fault)[:500])
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Whether the Lease was replaced; not when it changed since `get`."""
        try:
            async with asyncio.timeout(self._call_seconds):
                return bool(await super().update(name, namespace, updated_record))
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False


class Watchdog(threading.Thread):
    """Ends the process when `fed` is not called for `seconds` between `arm` and `disarm`."""

    def __init__(self, seconds: float, expired: Callable[[], None] | None = None) -> None:
        super().__init__(name="lease-watchdog", daemon=True)
        self._seconds = seconds
        self._expired = expired or _exit_process
        self._fed_at: float | None = None
        self._ended = threading.Event()

    def feed(self, at: float) -> None:
        """The Lease was renewed by a request sent at `at` (monotonic)."""
        self._fed_at = at

    def disarm(self) -> None:
        """This replica does not lead."""
        self._fed_at = None

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()

    def run(self) -> None:
        """Looks four times a second."""
        while not self._ended.wait(min(0.25, self._seconds / 4)):
            fed_at = self._fed_at
            if fed_at is not None and time.monotonic() - fed_at > self._seconds:
                self._fed_at = None
                self._expired()


def _exit_process() -> None:
    # Nothing that could block: locks of the logging system may be held by the very thread that is stuck.
    os.write(sys.stderr.fileno(), b'{"event": "lease not renewed in time and event loop stuck: exiting"}\n')
    os._exit(_EXIT_CODE)


class Elector:
    """Takes part in the election until it has led."""

    def __init__(
        self,
        lock: LeaseLock,
        *,
        lease_seconds: int,
        renew_seconds: float,
        retry_seconds: float,
        watchdog: Watchdog,
    ) -> None:
        self._lock = lock
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._retry_seconds = retry_seconds
        self._watchdog = watchdog
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self.renewals = 0
        """How often the Lease was seen renewed, or taken."""
        self._holder = ""
        self._acquired = ""
        self.observed = asyncio.Event()
        """Set once the Lease was read or written."""
        self.leading = False
        self.previous_renewal: datetime | None = None
        """When the last leader's hold on the Lease was last renewed, by its clock; None when there was none.
        Known once this one leads."""

    @property
    def address(self) -> str:
        """The leader's hub address, as the Lease last named it; empty when nobody leads."""
        return address_in(self._holder)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits for the Lease, then runs `lead` while renewing it.

        Raises LeadershipLost when the Lease is lost; returns only if `lead` does. Gives the Lease back when
        cancelled or when `lead` fails.
        """
        while not await self._try():  # noqa: ASYNC110 - what is waited for is at the API server
            await asyncio.sleep(
                backoff(0, self._retry_seconds, self._retry_seconds) + self._retry_seconds * 0.25
            )
        self.leading = True
        log.info("leading", identity=self._lock.identity)
        work = asyncio.ensure_future(lead())
        renewal = asyncio.create_task(self._renew())
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if renewal.done():
                self.leading = False
                renewal.result()
            work.result()
        finally:
            held = self.leading
            self.leading = False
            for task in (work, renewal):
                task.cancel()
            await asyncio.gather(work, renewal, return_exceptions=True)
            self._watchdog.disarm()
            if held:
                await self._release()

    async def _renew(self) -> None:
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(self._retry_seconds)
            if await self._try():
                renewed_at = time.monotonic()
            elif self._holder and self._holder != self._lock.identity:
                raise LeadershipLost(f"{self._holder} holds the Lease")
            elif time.monotonic() - renewed_at > self._renew_seconds:
                raise LeadershipLost(f"the Lease could not be renewed for {self._renew_seconds} s")

    async def _try(self) -> bool:
        """Takes or renews the Lease; whether it is held now."""
        sent_at = time.monotonic()
        lock = self._lock
        found, record = await lock.get(lock.name, lock.namespace)
        if not found:
            if getattr(record, "status", None) != HTTPStatus.NOT_FOUND:
                log.warning("the Lease cannot be read", error=str(getattr(record, "reason", record)))
                return False
            held = await lock.create(lock.name, lock.namespace, self._record())
        else:
            self._observe(record)
            if self._holder != lock.identity and not self._expired(record):
                return False
            before = self.previous_renewal if self._holder == lock.identity else _moment(record.renew_time)
            if held := await lock.update(lock.name, lock.namespace, self._record()):
                self.previous_renewal = before
        if held:
            self._holder = lock.identity
            self.observed.set()
            self._watchdog.feed(sent_at)
        return held

    def _observe(self, record: LeaderElectionRecord) -> None:
        self._holder = record.holder_identity or ""
        self.observed.set()
        seen = (self._holder, record.renew_time or "")
        if seen != self._seen:
            self._seen, self._seen_at = seen, time.monotonic()
            self.renewals += 1

    def _expired(self, record: LeaderElectionRecord) -> bool:
        """Whether the Lease has stood unchanged before our eyes for as long as its holder asked for."""
        if not record.holder_identity or not record.renew_time:
            return True
        duration = float(record.lease_duration or self._lease_seconds)
        return time.monotonic() - self._seen_at > min(duration, 10.0 * self._lease_seconds)

    def _record(self, lease_seconds: int | None = None) -> LeaderElectionRecord:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        if self._holder != self._lock.identity or not self._acquired:
            self._acquired = now
        return LeaderElectionRecord(
            self._lock.identity, str(lease_seconds or self._lease_seconds), self._acquired, now
        )

    async def _release(self) -> None:
        """Lets the next leader begin at once: the Lease is good for one more second only."""
        lock = self._lock
        # Read first: the lock replaces the version that it last read, and the last renewal made a newer one.
        found, record = await lock.get(lock.name, lock.namespace)
        if not found or record.holder_identity != lock.identity:
            return
        if await lock.update(lock.name, lock.namespace, self._record(lease_seconds=1)):
            log.info("gave the Lease back")


def _moment(text: str | None) -> datetime | None:
    """A time of a record, which is without its zone; None for one that cannot be read."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None
    except ValueError:
        return None
