"""The metadata services by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convoy_agents.spot.aws import Ec2Metadata
from convoy_agents.spot.azure import AzureScheduledEvents
from convoy_agents.spot.fake import fake_source
from convoy_agents.spot.gcp import ComputeEngineMetadata
from convoy_agents.spot.source import NoticeSource
from convoy_crds.spotpool_status import NoticeSource as Name

REAL: Mapping[Name, Callable[[], NoticeSource]] = {
    Name.AWS: Ec2Metadata,
    Name.GCP: ComputeEngineMetadata,
    Name.AZURE: AzureScheduledEvents,
}
FAKE_FORBIDDEN = "the source Fake is not allowed: set the chart's value agent.notices.fake"


def source_named(metadata: str, fake: str, node: str) -> tuple[Name, NoticeSource] | None:
    """Return the service that a SpotPool names as `spec.notice.metadata`, and the source's name; None for
    `None` or an empty text. `fake` is the address of the source Fake; empty if the chart does not allow it.

    Raises ValueError for an unknown service, or one that is not allowed.
    """
    if metadata in ("", "None"):
        return None
    if metadata == Name.FAKE and not fake:
        raise ValueError(FAKE_FORBIDDEN)
    if metadata == Name.FAKE:
        return Name.FAKE, fake_source(fake, node)
    for name, make in REAL.items():
        if metadata == name:
            return name, make()
    raise ValueError(f"metadata {metadata[:40]!r} is not a known metadata service")
