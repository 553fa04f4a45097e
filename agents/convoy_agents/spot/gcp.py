"""The metadata server of Google Compute Engine.

Sources: Compute Engine documentation, "Spot VMs" (`instance/preempted` is TRUE or FALSE; the machine then has
about 30 seconds), "View and query VM metadata" (requests and replies carry the header `Metadata-Flavor:
Google`) and "Monitor and plan for a host maintenance event" (`instance/maintenance-event`).
"""

from __future__ import annotations

from convoy_agents.spot.endpoint import Endpoint
from convoy_agents.spot.source import Finding, Findings, SourceError
from convoy_crds.spotpool_status import NoticeKind

FLAVOR = "Metadata-Flavor"
PREEMPTED_PATH = "/computeMetadata/v1/instance/preempted"
MAINTENANCE_PATH = "/computeMetadata/v1/instance/maintenance-event"
TERMINATE = "TERMINATE_ON_HOST_MAINTENANCE"
MAINTENANCE = ("NONE", "MIGRATE_ON_HOST_MAINTENANCE", TERMINATE)


class ComputeEngineMetadata:
    """The notices of a Compute Engine instance. The server gives no deadline."""

    def __init__(self, endpoint: Endpoint | None = None) -> None:
        self._endpoint = endpoint or Endpoint()

    async def poll(self) -> tuple[Finding, ...]:
        """Return the preemption or the maintenance that holds at present. Raises SourceError if the service
        gives no valid reply.

        A maintenance that stops the instance is a removal: it is no sign of missing capacity.
        """
        found = Findings()
        with found.part() as part:
            if await self._get(PREEMPTED_PATH, ("TRUE", "FALSE")) == "TRUE":
                part.append(Finding(NoticeKind.PREEMPTION))
        with found.part() as part:
            if await self._get(MAINTENANCE_PATH, MAINTENANCE) == TERMINATE:
                part.append(Finding(NoticeKind.REMOVAL))
        return found.all()

    async def _get(self, path: str, known: tuple[str, ...]) -> str:
        reply = await self._endpoint.request("GET", path, {FLAVOR: "Google"})
        if reply.status != 200:
            raise SourceError(f"{path}: status {reply.status} instead of 200")
        if reply.headers.get(FLAVOR.lower()) != "Google":
            raise SourceError(f"{path}: the reply has no header {FLAVOR}, so another server sent it")
        if (value := reply.text()) not in known:
            raise SourceError(f"{path}: {value[:40]!r} is not one of {', '.join(known)}")
        return value
