"""Leader election. The leader renews a Lease every second; if it cannot, its process ends.

The lock is kubernetes.aio's, with a short timeout on every call. The lock's own timeout of 300 s is far
longer than the Lease lasts. The election is Convoy's own. It measures time with the monotonic clock, and it
ends at once if another replica holds the Lease. It releases the Lease when the replica stops. If the event
loop is blocked, it cannot notice that the Lease has expired, so a watchdog thread then ends the process.
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

from convoy_crds.shown import error_line
from convoy_operator.limits import backoff

log = structlog.get_logger(__name__)

_EXIT_CODE = 70
_SEPARATOR = "@"


class LeadershipLost(Exception):
    """Raised if this replica loses the Lease. The process must then end."""


def identity_of(name: str, boot: str, hub_address: str) -> str:
    """Return the holder identity for the Lease. It consists of the replica's name, a random id of this
    process, and the address of its hub.
    """
    return f"{name}_{boot}{_SEPARATOR}{hub_address}"


def address_in(identity: str) -> str:
    """Return the hub's address in a holder identity; empty if the identity contains none."""
    return identity.partition(_SEPARATOR)[2]


class LeaseLock(StockLeaseLock):
    """kubernetes.aio's lock with a timeout of `call_seconds` on each call. Calls return a failure and never
    raise.
    """

    def __init__(
        self, name: str, namespace: str, identity: str, client: ApiClient, call_seconds: float
    ) -> None:
        super().__init__(name, namespace, identity, client)
        self._call_seconds = call_seconds

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """Return (True, record), or (False, ApiException) after a failure."""
        try:
            async with asyncio.timeout(self._call_seconds):
                found: tuple[bool, Any] = await super().get(name, namespace)
                return found
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            return False, ApiException(status=0, reason=error_line(fault))

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create the Lease and return True if that succeeds. The inherited method cannot be used, because
        its own validation rejects its request.
        """
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        try:
            async with asyncio.timeout(self._call_seconds):
                await self.api_instance.create_namespaced_lease(namespace, body)
        except (ApiException, TimeoutError, aiohttp.ClientError, OSError) as fault:
            log.warning("creating the Lease failed, will retry", error=error_line(fault)[:500])
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Replace the Lease and return True if that succeeds. It fails if the Lease has changed since the
        last `get`.
        """
        try:
            async with asyncio.timeout(self._call_seconds):
                return bool(await super().update(name, namespace, updated_record))
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False


class Watchdog(threading.Thread):
    """Thread that ends the process if `feed` is not called for `seconds`. It does nothing before the first
    `feed` and after `disarm`.
    """

    def __init__(self, seconds: float, expired: Callable[[], None] | None = None) -> None:
        super().__init__(name="lease-watchdog", daemon=True)
        self._seconds = seconds
        self._expired = expired or _exit_process
        self._fed_at: float | None = None
        self._ended = threading.Event()

    def feed(self, at: float) -> None:
        """Record a renewal of the Lease. `at` is the monotonic time in seconds when its request was sent."""
        self._fed_at = at

    def disarm(self) -> None:
        """Stop watching: this replica no longer leads. The next call of `feed` starts the watch again."""
        self._fed_at = None

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()

    def run(self) -> None:
        """Check the time of the last `feed` at least four times a second."""
        while not self._ended.wait(min(0.25, self._seconds / 4)):
            fed_at = self._fed_at
            if fed_at is not None and time.monotonic() - fed_at > self._seconds:
                self._fed_at = None
                self._expired()


def _exit_process() -> None:
    # Do not log and do not call anything that may block: the stuck thread may hold the logging system's
    # locks.
    os.write(sys.stderr.fileno(), b'{"event": "lease not renewed in time and event loop stuck: exiting"}\n')
    os._exit(_EXIT_CODE)


class Elector:
    """Takes part in elections until this replica becomes the leader, and then leads until it stops."""

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
        """Number of renewals and other changes of the Lease that this replica has seen."""
        self._holder = ""
        self._acquired = ""
        self.observed = asyncio.Event()
        """Set after the Lease was read or written for the first time."""
        self.leading = False
        self.previous_renewal: datetime | None = None
        """Time when the previous leader last renewed the Lease, by that leader's clock. None if there was
        no previous leader, or while this replica does not lead.
        """

    @property
    def address(self) -> str:
        """Return the address of the leader's hub from the Lease; empty if no replica leads."""
        return address_in(self._holder)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then run `lead` and keep renewing the Lease. Return when `lead` returns.

        Raises LeadershipLost if the Lease is lost. If the call is cancelled or `lead` fails, release the
        Lease first.
        """
        while not await self._try():  # noqa: ASYNC110 - what is waited for is at the API server
            await asyncio.sleep(
                backoff(0, self._retry_seconds, self._retry_seconds) + self._retry_seconds * 0.25
            )
        self.leading = True
        log.info("this replica leads", identity=self._lock.identity)
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
                raise LeadershipLost(f"{self._holder} holds the Lease now, so this replica must stop")
            elif time.monotonic() - renewed_at > self._renew_seconds:
                raise LeadershipLost(f"the Lease could not be renewed for {self._renew_seconds} s")

    async def _try(self) -> bool:
        """Try once to acquire or renew the Lease. Return True if this replica holds the Lease."""
        sent_at = time.monotonic()
        lock = self._lock
        found, record = await lock.get(lock.name, lock.namespace)
        if not found:
            if getattr(record, "status", None) != HTTPStatus.NOT_FOUND:
                log.warning(
                    "reading the Lease failed, will retry", error=str(getattr(record, "reason", record))
                )
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
        """Return True if the Lease did not change for the duration that its holder requested, as measured
        by this replica.
        """
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
        """Release the Lease by shortening its duration to one second, so that another replica can soon
        lead.
        """
        lock = self._lock
        # Read the Lease first. The lock can replace only the version that it read last, and this replica's
        # last renewal created a newer version.
        found, record = await lock.get(lock.name, lock.namespace)
        if not found or record.holder_identity != lock.identity:
            return
        if await lock.update(lock.name, lock.namespace, self._record(lease_seconds=1)):
            log.info("released the Lease")


def _moment(text: str | None) -> datetime | None:
    """Parse a time in a record as UTC, because the record contains no time zone. Return None for an invalid
    text.
    """
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None
    except ValueError:
        return None
