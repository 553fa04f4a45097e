"""The notice that a node will disappear, as one source reports it."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_crds.spotpool_status import NoticeKind, NoticeSource

UNJOINED = ""
"""Name under which notices for instances without a Node are kept."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice that holds as long as its source repeats it."""

    source: NoticeSource
    node_name: str = ""
    node_uid: str = ""
    """Uid of the Node; empty if the source does not know the uid."""
    boot_id: str = ""
    """Boot id of the node's machine; empty if the source does not know it."""
    provider_id: str = ""
    """Id of the instance, as in the Node's `spec.providerID`; empty if unknown."""
    kind: NoticeKind = NoticeKind.PREEMPTION
    at: float = 0.0
    """Unix seconds at which the source first gave the notice; 0 if unknown."""
    deadline: float = 0.0
    """Unix seconds at which the node may disappear; 0 if the source does not know it."""
