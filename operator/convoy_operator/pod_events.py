"""Reads the Events of pods that start too slowly. No status reports a failed mount, sandbox or probe; only
Events do.

Events are read on demand (`Plan.inspect`), for one pod of a job at a time. They are read outside of
reconciles, so a reconcile does not wait if the API server cannot read Events from etcd. Requests are
limited, because the API server has no index of Events and scans all Events of the namespace for each
request.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Protocol

import structlog

from convoy_controllers.cached import Pod
from convoy_controllers.keys import Key
from convoy_controllers.plan import Inspect
from convoy_controllers.views import PodWarning
from convoy_operator import errors
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.gateway import Object
from convoy_operator.limits import TokenBucket

log = structlog.get_logger(__name__)

MIN_SECONDS, MAX_SECONDS = 15.0, 120.0
"""Minimum and maximum number of seconds between two requests about one job's pods. The interval grows while
requests bring nothing new.
"""
PER_SECOND, AT_ONCE = 5.0, 20
"""Rate limit and burst of requests for all jobs together. A request above the limit is dropped. A later
plan of the job makes the request again.
"""
_REMEMBERED = 4096
"""Maximum number of jobs with a scheduled next request. If there are more, the job for which `request` was
called the longest time ago is dropped.
"""
_QUEUED = 256
_MESSAGE = 512
"""Maximum number of characters of a message; the rest is cut off."""

_PLACED = frozenset({"Scheduled", "TriggeredScaleUp"})
_STARTS = frozenset({"Pulling", "Pulled", "Created", "Started"})
"""Reasons of Events that show that a container starts. All mounts and the sandbox must have succeeded by
that time.
"""
_IN_CONDITIONS = frozenset({"FailedScheduling"})
"""Reasons of Warnings that are ignored, because the pod's own conditions contain the same text."""
_VAGUE = re.compile(r"^(Unable to attach or mount volumes|Error: |Back-off )")
"""Matches messages that say only that something failed, not why. If one of them is reported, another Event
of the pod names the cause.
"""
_RELEVANT_NORMAL = frozenset({"NotTriggerScaleUp"})
"""Reasons of Events that count as failures although their type is Normal."""
_SIMILAR = "(combined from similar events): "
_CHANGING = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # a UUID
    r"|\b(?=[0-9a-f]*\d)[0-9a-f]{10,}\b"  # an id of a container or sandbox
    r"|\d+"
)
"""Matches the parts of a message that may change while its cause stays the same: ids, times, ports and
counters.
"""


class Source(Protocol):
    """The part of the gateway that this module needs."""

    async def events_of(self, namespace: str, uid: str) -> list[Object]:
        """Return the Events about one object in any order. Raises errors.ApiError if the request fails."""
        ...


@dataclass(slots=True)
class _Schedule:
    """Times of one job's requests. `at` is the monotonic time in seconds before which no request is sent.
    `seconds` is the interval from the next request to the one after it.
    """

    at: float
    seconds: float


class PodEvents:
    """Queues requests without waiting and reads Events in the background. The results are stored in
    `ClusterCache.pod_warnings`.
    """

    def __init__(
        self,
        source: Source,
        cache: ClusterCache,
        wake: Callable[[Key], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`wake` is called with a job's key when the warning about one of its pods changes."""
        self._source, self._cache, self._wake, self._clock = source, cache, wake, clock
        self._schedules: OrderedDict[Key, _Schedule] = OrderedDict()
        self._waiting: asyncio.Queue[tuple[Key, Inspect]] = asyncio.Queue(_QUEUED)
        self._bucket = TokenBucket(PER_SECOND, AT_ONCE, clock)
        cache.pods.listen(self._on_pod)

    def request(self, key: Key, inspect: Inspect | None) -> None:
        """Queue a request for the Events of the pod that `inspect` names. Do nothing if `inspect` is None,
        because no pod of the job starts too slowly. Also do nothing if the job's next request is not due
        yet, or if a limit on requests is reached.
        """
        if inspect is None:
            return
        schedule = self._schedules.setdefault(key, _Schedule(0.0, MIN_SECONDS))
        self._schedules.move_to_end(key)
        while len(self._schedules) > _REMEMBERED:
            self._schedules.popitem(last=False)
        now = self._clock()
        if now < schedule.at or self._waiting.full() or self._bucket.debt > 0:
            return
        self._bucket.reserve()
        schedule.at = now + schedule.seconds
        self._waiting.put_nowait((key, inspect))

    async def run(self) -> None:
        """Read Events, one pod after the other, until cancelled."""
        while True:
            key, inspect = await self._waiting.get()
            try:
                found = await self._source.events_of(key.namespace, inspect.uid)
            except errors.ApiError as fault:
                log.warning(
                    "reading the Events of a pod failed, a later plan tries again",
                    pod=inspect.name,
                    error=str(fault),
                )
                self._back_off(key)
                continue
            self._record_warning(key, inspect.uid, warning(found))

    def _record_warning(self, key: Key, uid: str, fresh: PodWarning | None) -> None:
        known, before = self._cache.pod_warnings, self._cache.pod_warnings.get(uid)
        if self._cache.pods.by_uid(uid) is None or same(before, fresh):
            self._back_off(key)
            return
        self._schedules[key] = _Schedule(self._clock() + MIN_SECONDS, MIN_SECONDS)
        if fresh is None:
            del known[uid]
        else:
            known[uid] = fresh
        self._wake(key)

    def _back_off(self, key: Key) -> None:
        """Lengthen the interval between a job's requests, because the last request failed or brought
        nothing new.
        """
        if (schedule := self._schedules.get(key)) is not None:
            schedule.seconds = min(MAX_SECONDS, schedule.seconds * 1.5)

    def _on_pod(self, before: Pod | None, after: Pod | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._cache.pod_warnings.pop(before.uid, None)


def same(one: PodWarning | None, other: PodWarning | None) -> bool:
    """Return True if two warnings are equal except for ids, times, ports and counters."""
    if one is None or other is None:
        return one is other
    return one.reason == other.reason and _shape(one.message) == _shape(other.message)


def _shape(message: str) -> str:
    return _CHANGING.sub("#", message)


def warning(events: Iterable[Mapping[str, Any]]) -> PodWarning | None:
    """Return the Warning that explains why a pod does not start; None if its Events name no cause.

    A Warning counts only if no later Event shows that its problem is over. Of the remaining Warnings, the
    newest one that names a cause is returned, or else the newest one.
    """
    failures: list[Mapping[str, Any]] = []
    for event in sorted(events, key=_order):
        if _is_relevant(event):
            failures.append(event)
        else:
            failures = [one for one in failures if not _resolves(event, one)]
    plain = [event for event in failures if not _VAGUE.match(_text(event))]
    chosen = (plain or failures)[-1:]
    return PodWarning(str(chosen[0].get("reason") or "Warning"), _text(chosen[0])) if chosen else None


def _resolves(event: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Return True if an Event shows that the problem of an earlier warning is over."""
    if event.get("reason") in _PLACED:
        return earlier.get("reason") in _RELEVANT_NORMAL
    return event.get("reason") in _STARTS and _container(earlier) in ("", _container(event))


def _container(event: Mapping[str, Any]) -> str:
    """Return the field path of the container that an Event is about; empty if it is about the whole pod."""
    return str((event.get("involvedObject") or {}).get("fieldPath") or "")


def _is_relevant(event: Mapping[str, Any]) -> bool:
    """Return True if an Event is about a failure that the pod's status does not report."""
    reason = event.get("reason")
    return reason in _RELEVANT_NORMAL or (event.get("type") == "Warning" and reason not in _IN_CONDITIONS)


def _text(event: Mapping[str, Any]) -> str:
    """Return an Event's message on one line, without the prefix that Kubernetes adds to combined Events."""
    text = " ".join(str(event.get("message") or "").split()).removeprefix(_SIMILAR)
    return text if len(text) <= _MESSAGE else text[: _MESSAGE - 4] + " ..."


def _order(event: Mapping[str, Any]) -> tuple[datetime, int]:
    """Return the sort key of an Event: the time of its last occurrence in whole seconds, then its
    resourceVersion.
    """
    series, metadata = event.get("series") or {}, event.get("metadata") or {}
    version = str(metadata.get("resourceVersion") or "")
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        metadata.get("creationTimestamp"),
    )
    at = next((time for time in times if time), "")
    return _time(at), int(version) if version.isdigit() else 0


def _time(text: str) -> datetime:
    """Parse an RFC 3339 time, without fractions of a second. Return the earliest possible time for an
    invalid text.
    """
    try:
        return datetime.fromisoformat(text).replace(microsecond=0)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
