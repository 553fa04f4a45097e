"""The Events of pods that do not come up: no status tells of a mount, a sandbox or a probe that fails.

Events are asked for on demand, about one late pod of a job at a time (`Plan.inspect`), and never by a
reconcile itself: where they have a store of their own that is down, nothing else waits for it. The API server
keeps no index of Events, so each question costs it a scan of the namespace's.
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

LEAST_SECONDS, MOST_SECONDS = 15.0, 120.0
"""Between two questions about pods of one job: at first, and where the last ones told nothing else."""
PER_SECOND, AT_ONCE = 5.0, 20
"""Questions of the whole operator; more are left out, and come again with a later plan."""
_REMEMBERED = 4096
"""Jobs whose next question is known; the one asked about longest ago makes room."""
_QUEUED = 256
_MESSAGE = 512
"""Characters of a message that are kept."""

_PLACED = frozenset({"Scheduled", "TriggeredScaleUp"})
_STARTS = frozenset({"Pulling", "Pulled", "Created", "Started"})
"""Reasons of a container's Events, which comes after all mounts and the sandbox."""
_IN_CONDITIONS = frozenset({"FailedScheduling"})
"""Warnings whose words the pod's own conditions have."""
_VAGUE = re.compile(r"^(Unable to attach or mount volumes|Error: |Back-off )")
"""Messages that only say that something failed, of which another Event says what."""
_RELEVANT_NORMAL = frozenset({"NotTriggerScaleUp"})
"""Reasons that matter although their Events are no Warnings."""
_SIMILAR = "(combined from similar events): "
_CHANGING = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # a UUID
    r"|\b(?=[0-9a-f]*\d)[0-9a-f]{10,}\b"  # an id of a container or sandbox
    r"|\d+"
)
"""Parts of a message that change while its cause stays: ids, times, ports, counters."""


class Source(Protocol):
    """The API server, as far as it is asked here."""

    async def events_of(self, namespace: str, uid: str) -> list[Object]:
        """The Events about one object, in no order. Raises errors.ApiError."""
        ...


@dataclass(slots=True)
class _Schedule:
    """When a job may be asked about again, and how long after that."""

    at: float
    seconds: float


class PodEvents:
    """Takes questions at once and asks in the background; `ClusterCache.pod_warnings` has the results."""

    def __init__(
        self,
        source: Source,
        cache: ClusterCache,
        wake: Callable[[Key], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`wake`: called for a job about whose pods something else is known now."""
        self._source, self._cache, self._wake, self._clock = source, cache, wake, clock
        self._schedules: OrderedDict[Key, _Schedule] = OrderedDict()
        self._waiting: asyncio.Queue[tuple[Key, Inspect]] = asyncio.Queue(_QUEUED)
        self._bucket = TokenBucket(PER_SECOND, AT_ONCE, clock)
        cache.pods.listen(self._on_pod)

    def request(self, key: Key, inspect: Inspect | None) -> None:
        """Asks about a pod soon, unless its job was asked about a moment ago. None where none is late."""
        if inspect is None:
            return
        schedule = self._schedules.setdefault(key, _Schedule(0.0, LEAST_SECONDS))
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
        """Asks, one question after the other, until cancelled."""
        while True:
            key, inspect = await self._waiting.get()
            try:
                found = await self._source.events_of(key.namespace, inspect.uid)
            except errors.ApiError as fault:
                log.warning("events of a pod not read", pod=inspect.name, error=str(fault))
                self._back_off(key)
                continue
            self._record_warning(key, inspect.uid, warning(found))

    def _record_warning(self, key: Key, uid: str, fresh: PodWarning | None) -> None:
        known, before = self._cache.pod_warnings, self._cache.pod_warnings.get(uid)
        if self._cache.pods.by_uid(uid) is None or same(before, fresh):
            self._back_off(key)
            return
        self._schedules[key] = _Schedule(self._clock() + LEAST_SECONDS, LEAST_SECONDS)
        if fresh is None:
            del known[uid]
        else:
            known[uid] = fresh
        self._wake(key)

    def _back_off(self, key: Key) -> None:
        """The last question about a job was of no use: the one after the next comes later."""
        if (schedule := self._schedules.get(key)) is not None:
            schedule.seconds = min(MOST_SECONDS, schedule.seconds * 1.5)

    def _on_pod(self, before: Pod | None, after: Pod | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._cache.pod_warnings.pop(before.uid, None)


def same(one: PodWarning | None, other: PodWarning | None) -> bool:
    """Return True for two warnings that differ in ids, times, ports and counters alone."""
    if one is None or other is None:
        return one is other
    return one.reason == other.reason and _shape(one.message) == _shape(other.message)


def _shape(message: str) -> str:
    return _CHANGING.sub("#", message)


def warning(events: Iterable[Mapping[str, Any]]) -> PodWarning | None:
    """The cause that keeps a pod from coming up now, by all its Events; None where they name none.

    The newest Warning, unless the pod has got further since. Of the newest few, one that names the cause goes
    before one that names only the failure.
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
    """Return True for an Event that shows an earlier warning to be over."""
    if event.get("reason") in _PLACED:
        return earlier.get("reason") in _RELEVANT_NORMAL
    return event.get("reason") in _STARTS and _container(earlier) in ("", _container(event))


def _container(event: Mapping[str, Any]) -> str:
    """Path of the container that an Event is about; empty for the pod as a whole."""
    return str((event.get("involvedObject") or {}).get("fieldPath") or "")


def _is_relevant(event: Mapping[str, Any]) -> bool:
    """Return True for an Event about a failure that no status tells of."""
    reason = event.get("reason")
    return reason in _RELEVANT_NORMAL or (event.get("type") == "Warning" and reason not in _IN_CONDITIONS)


def _text(event: Mapping[str, Any]) -> str:
    """The message on one line, without what the recorder puts before it."""
    text = " ".join(str(event.get("message") or "").split()).removeprefix(_SIMILAR)
    return text if len(text) <= _MESSAGE else text[: _MESSAGE - 4] + " ..."


def _order(event: Mapping[str, Any]) -> tuple[datetime, int]:
    """When it was last seen. Times may be whole seconds: of one second, the order of storage decides."""
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
    """A time of RFC 3339; the first of all for one that cannot be read."""
    try:
        return datetime.fromisoformat(text).replace(microsecond=0)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
