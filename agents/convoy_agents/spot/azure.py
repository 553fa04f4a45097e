"""The Scheduled Events of Azure.

Sources: Azure documentation, "Scheduled Events for Linux VMs" (header `Metadata: true`; `NotBefore` is an
HTTP date, and empty once the event has started; all machines of a scale set's placement group see the
events of all; the first request of a machine may take two minutes) and "Azure Instance Metadata Service"
(`name` and `resourceId`). `Preempt` comes up to 30 seconds ahead, often less (karpenter-provider-azure#1769).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from convoy_agents.spot.endpoint import Endpoint, Reply
from convoy_agents.spot.source import Finding, Findings, SourceError, unix_seconds
from convoy_crds.spotpool_status import NoticeKind

log = structlog.get_logger(__name__)

EVENTS_PATH = "/metadata/scheduledevents?api-version=2020-07-01"
COMPUTE_PATH = "/metadata/instance/compute?api-version=2021-02-01"
KINDS: Mapping[str, NoticeKind] = {"Preempt": NoticeKind.PREEMPTION, "Terminate": NoticeKind.REMOVAL}
"""Kinds of the events that end a machine. Others only pause or restart the machine."""
STATUSES = ("Scheduled", "Started")
MAX_OTHERS = 256
"""Maximum number of notices about other machines. All machines of a placement group, at most 100, may be
evicted at once.
"""


class AzureScheduledEvents:
    """The notices of an Azure machine, and of the other machines of its scale set."""

    def __init__(self, endpoint: Endpoint | None = None) -> None:
        self._endpoint = endpoint or Endpoint()
        self._name = self._resource_id = ""

    async def poll(self) -> tuple[Finding, ...]:
        """Return the events that end a machine of the scale set. Raises SourceError if the service gives no
        valid reply.
        """
        if not self._name:
            await self._identify()
        events = (await self._get(EVENTS_PATH)).json().get("Events")
        if not isinstance(events, list):
            raise SourceError(f"{EVENTS_PATH}: Events is not a list")
        found = Findings()
        others: list[Finding] = []
        for event in events:
            with found.part() as part:
                for one in self._of_event(event):
                    (others if one.provider_id else part).append(one)
        with found.part() as part:
            part.extend(others[:MAX_OTHERS])
        return found.all()

    def _of_event(self, event: Any) -> Iterator[Finding]:
        if not isinstance(event, dict) or not isinstance(resources := event.get("Resources"), list):
            raise SourceError("Events: an event is not an object with a list of Resources")
        kind = KINDS.get(str(event.get("EventType")))
        if kind is None or event.get("EventStatus") not in STATUSES:
            return
        deadline = _not_before(event)
        for name in resources:
            if name == self._name:
                yield Finding(kind, deadline)
            elif other := self._provider_id(str(name)):
                yield Finding(kind, deadline, other)

    def _provider_id(self, name: str) -> str:
        """Return the provider id of another machine of this scale set; empty for any other machine.

        Machines of a scale set are named `SET_NUMBER`, and their resource ids end in the number.
        """
        scale_set, _, number = name.rpartition("_")
        own_set, _, own_number = self._name.rpartition("_")
        parent, _, last = self._resource_id.rpartition("/")
        if not scale_set or scale_set != own_set or last != own_number or not number.isalnum():
            return ""
        return f"azure://{parent}/{number}"

    async def _identify(self) -> None:
        compute = (await self._get(COMPUTE_PATH)).json()
        name, resource_id = compute.get("name"), compute.get("resourceId")
        if not isinstance(name, str) or not name or not isinstance(resource_id, str):
            raise SourceError(f"{COMPUTE_PATH}: name or resourceId is missing")
        self._name, self._resource_id = name, resource_id

    async def _get(self, path: str) -> Reply:
        reply = await self._endpoint.request("GET", path, {"Metadata": "true"})
        if reply.status != 200:
            raise SourceError(f"{path}: status {reply.status} instead of 200")
        return reply


def _not_before(event: Mapping[str, Any]) -> float:
    """Return the Unix seconds of an event's start; 0 if it has started. A time that cannot be read counts as
    a start, because the event itself is certain.
    """
    text = event.get("NotBefore")
    if not text:
        return 0.0
    try:
        return unix_seconds(text, "NotBefore")
    except SourceError as error:
        log.warning("time of a scheduled event not readable, counts as now", why=str(error))
        return 0.0
