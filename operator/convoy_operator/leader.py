"""Leader election: the leader renews a Lease every second, or its process ends.

The lock is kubernetes.aio's, with a deadline on every call: its own timeout of 300 s is far longer than a
Lease. The election is Convoy's own. It measures with the monotonic clock, gives up at once when another
replica holds the Lease, and releases the Lease when it stops. A watchdog thread ends the process if a
blocked event loop cannot notice that the Lease expired.
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
    """This replica lost the Lease; its process must end."""


def identity_of(name: str, boot: str, hub_address: str) -> str:
    """Return the Lease's holder identity: the replica's name, a random id of this start, and its hub's
    address.
    """
    return f"{name}_{boot}{_SEPARATOR}{hub_address}"


def address_in(identity: str) -> str:
    """Return the hub's address in a holder identity; empty if it has none."""
    return identity.partition(_SEPARATOR)[2]


class LeaseLock(StockLeaseLock):
    """kubernetes.aio's lock with a timeout of `call_seconds` on each call. Calls report failure and never
    raise.
    """

    def __init__(
        self, name: str, namespace: str, identity: str, client: ApiClient, call_seconds: float
    ) -> None:
        super().__init__(name, namespace, identity, client)
        self._call_seconds = call_seconds

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """Return (True, record) or (False, ApiException)."""
        try:
            async with asyncio.timeout(self._call_seconds):
                found: tuple[bool, Any] = await super().get(name, namespace)
                return found
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            return False, ApiException(status=0, reason=repr(fault))

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Return True if the Lease was created. The stock method fails its own validation."""
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        try:
            async with asyncio.timeout(self._call_seconds):
                await self.api_instance.create_namespaced_lease(namespace, body)
        except (ApiException, TimeoutError, aiohttp.ClientError, OSError) as fault:
            log.warning("creating the Lease failed, will retry", error=repr(fault)[:500])
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Return True if the Lease was replaced; False if it changed since `get`."""
        try:
            async with asyncio.timeout(self._call_seconds):
                return bool(await super().update(name, namespace, updated_record))
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False


class Watchdog(threading.Thread):
    """Ends the process if `feed` is not called for `seconds`, until `disarm` is called."""

    def __init__(self, seconds: float, expired: Callable[[], None] | None = None) -> None:
        super().__init__(name="lease-watchdog", daemon=True)
        self._seconds = seconds
        self._expired = expired or _exit_process
        self._fed_at: float | None = None
        self._ended = threading.Event()

    def feed(self, at: float) -> None:
        """Record that the Lease was renewed by a request sent at `at` (monotonic seconds)."""
        self._fed_at = at

    def disarm(self) -> None:
        """Stop watching: this replica does not lead."""
        self._fed_at = None

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()

    def run(self) -> None:
        """Check four times a second."""
        while not self._ended.wait(min(0.25, self._seconds / 4)):
            fed_at = self._fed_at
            if fed_at is not None and time.monotonic() - fed_at > self._seconds:
                self._fed_at = None
                self._expired()


def _exit_process() -> None:
    # Nothing here may block: the blocked thread may hold the logging system's locks.
    os.write(sys.stderr.fileno(), b'{"event": "lease not renewed in time and event loop stuck: exiting"}\n')
    os._exit(_EXIT_CODE)


class Elector:
    """Takes part in the election until this replica has led once."""

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
        """Number of renewals and changes of the Lease seen so far."""
        self._holder = ""
        self._acquired = ""
        self.observed = asyncio.Event()
        """Set once the Lease was read or written."""
        self.leading = False
        self.previous_renewal: datetime | None = None
        """Last renewal of the Lease by the previous leader, by its clock; None if there was none. Set once
        this replica leads.
        """

    @property
    def address(self) -> str:
        """The leader's hub address in the Lease; empty if nobody leads."""
        return address_in(self._holder)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then run `lead` while renewing it.

        Raise LeadershipLost when the Lease is lost; return only if `lead` returns. Release the Lease when
        cancelled or when `lead` fails.
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
        """Acquire or renew the Lease; return True if this replica holds it."""
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
        """Return True if this replica saw the Lease unchanged for the duration that its holder requested."""
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
        """Release the Lease so that another replica can lead at once: shorten its duration to one second."""
        lock = self._lock
        # Read first: the lock replaces the version that it last read, and the last renewal made a newer one.
        found, record = await lock.get(lock.name, lock.namespace)
        if not found or record.holder_identity != lock.identity:
            return
        if await lock.update(lock.name, lock.namespace, self._record(lease_seconds=1)):
            log.info("released the Lease")


def _moment(text: str | None) -> datetime | None:
    """Parse a time of a record, which has no time zone, as UTC; return None if it cannot be parsed."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None
    except ValueError:
        return None
