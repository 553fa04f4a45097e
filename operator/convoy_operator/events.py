"""The recorder of Kubernetes Events. It posts in the background, and the same Event at most once in ten
minutes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time

import structlog

from convoy_controllers.children import Event
from convoy_controllers.resources import EVENTS, Resource
from convoy_crds.terms import OPERATOR
from convoy_operator import errors
from convoy_operator.gateway import ApiGateway, Object
from convoy_operator.metrics import Metrics

log = structlog.get_logger(__name__)

WINDOW = 600.0
"""Seconds after the post of an Event during which equal Events of the same object are counted but not
posted. `PER_OBJECT` applies to periods of the same length.
"""
PER_OBJECT = 25
"""Maximum number of Events of one object that are posted within WINDOW seconds. Without this limit, an
object that changes all the time could fill etcd.
"""
_REMEMBERED = 4096
_QUEUED = 1000
_NAME = 253 - 17
"""Maximum number of characters of the object's name in an Event's name. The rest of the name is a dot and a
digest of 16 characters.
"""
_MESSAGE = 1024
"""Maximum number of bytes of an Event's message. The API server rejects longer messages."""


@dataclass(slots=True)
class _Posted:
    """The Unix time in seconds at which an Event was last posted, and the number of equal Events since
    then, which were not posted.
    """

    at: float
    repeats: int = 0


@dataclass(slots=True)
class _Window:
    """The start of the current period of WINDOW seconds for one object, in Unix seconds, and the number of
    the object's Events that were posted since then.
    """

    since: float
    count: int = 0


class EventRecorder:
    """Queues Events without waiting and posts them in the background. Events above the limits are dropped,
    and a metric counts the dropped Events.
    """

    def __init__(
        self, gateway: ApiGateway, metrics: Metrics, instance: str, clock: Callable[[], float] = time
    ) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._instance = instance
        self._clock = clock
        self._posted: OrderedDict[tuple[str, str, str], _Posted] = OrderedDict()
        self._windows: OrderedDict[str, _Window] = OrderedDict()
        self._outbox: asyncio.Queue[tuple[str, Object]] = asyncio.Queue(_QUEUED)

    def record(self, resource: Resource, parent: Object, event: Event) -> None:
        """Queue an Event about `parent`, unless an equal Event was posted less than WINDOW seconds ago."""
        now = self._clock()
        uid = parent["metadata"]["uid"]
        key = (uid, event.reason.name, event.message)
        posted = self._posted.get(key)
        if posted is not None and now - posted.at < WINDOW:
            posted.repeats += 1
            self._metrics.events_dropped.labels("repeated").inc()
            return
        window = self._windows.get(uid)
        if window is None or now - window.since >= WINDOW:
            window = self._windows[uid] = _Window(now)
        if window.count >= PER_OBJECT:
            self._metrics.events_dropped.labels("too_many").inc()
            return
        body = _body(
            resource, parent, event, now, count=1 + (posted.repeats if posted else 0), instance=self._instance
        )
        try:
            self._outbox.put_nowait((body["metadata"]["namespace"], body))
        except asyncio.QueueFull:
            self._metrics.events_dropped.labels("queue_full").inc()
            return
        window.count += 1
        self._posted[key] = _Posted(now)
        self._posted.move_to_end(key)
        self._windows.move_to_end(uid)
        for memory in (self._posted, self._windows):
            while len(memory) > _REMEMBERED:
                memory.popitem(last=False)

    async def run(self) -> None:
        """Post the recorded Events until cancelled."""
        while True:
            namespace, body = await self._outbox.get()
            try:
                await self._gateway.create(EVENTS, namespace, body)
            except errors.AlreadyExists:
                pass
            except errors.ApiError as fault:
                # Drop the Event: Events are best effort, and the gateway has already retried the request.
                self._metrics.events_dropped.labels("refused").inc()
                log.warning("posting an Event failed, it is dropped", reason=body["reason"], error=str(fault))


def _body(
    resource: Resource, parent: Object, event: Event, now: float, *, count: int, instance: str
) -> Object:
    metadata = parent["metadata"]
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = event.message.encode()[:_MESSAGE].decode(errors="ignore")
    identity = f"{metadata['uid']}/{event.reason.name}/{event.message}/{now}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    namespace = metadata.get("namespace") or "default"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:_NAME].rstrip('-.')}.{digest}",
            "namespace": namespace,
        },
        "involvedObject": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "type": "Warning" if event.reason.warning else "Normal",
        "reason": event.reason.name,
        "message": message,
        "count": count,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": OPERATOR, "host": instance},
        "reportingComponent": f"convoy.dev/{OPERATOR}",
        "reportingInstance": instance,
    }
