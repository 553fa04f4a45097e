"""Follows the nodes of a pool: when they boot, are lost, and leave.

A node's life ends once, whatever shows it first: the deletion of its Node object, another boot id, or its
silence for LOST_SECONDS. A silent node that comes back without a reboot was never lost: its network or the
control plane was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from convoy_controllers.cached import Node
from convoy_crds.spotpool_status import NodeRecord

LOST_SECONDS = 120.0
"""Seconds for which a node that has been ready must be silent before it counts as lost."""


class EndCause(Enum):
    """Sign by which a node's life ended."""

    DELETED = auto()
    REBOOTED = auto()
    LOST = auto()
    """The node exists but is silent."""


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """The end of a node's life."""

    record: NodeRecord
    cause: EndCause


@dataclass(frozen=True, slots=True)
class Followed:
    """The records of the present nodes, and the lives that have ended."""

    records: tuple[NodeRecord, ...]
    ends: tuple[NodeEnd, ...]
    returned: tuple[NodeRecord, ...] = ()
    """The former records of nodes that counted as lost and have come back."""


def follow(
    records: Iterable[NodeRecord], nodes: Iterable[Node], existing: frozenset[str], now: datetime
) -> Followed:
    """Return the records of the pool's nodes at `now`, and the lives that have ended since `records`.

    A node that left the pool because its labels changed has no end. `existing`: uids of all Nodes.
    """
    known = {one.uid: one for one in records}
    ends: list[NodeEnd] = []
    kept: list[NodeRecord] = []
    back: list[NodeRecord] = []
    for node in nodes:
        before = known.pop(node.uid, None)
        after = _after(before, node, now)
        if before is not None and before.lost_at is None:
            if _rebooted(before, node):
                ends.append(NodeEnd(before, EndCause.REBOOTED))
            elif after.lost_at is not None:
                ends.append(NodeEnd(before, EndCause.LOST))
        elif before is not None and has_returned(before, node):
            back.append(before)
        kept.append(after)
    ends += [
        NodeEnd(one, EndCause.DELETED)
        for one in known.values()
        if one.uid not in existing and one.lost_at is None
    ]
    return Followed(tuple(kept), tuple(ends), tuple(back))


def has_returned(before: NodeRecord, node: Node) -> bool:
    """Return True if a node that counted as lost has come back without a reboot."""
    return before.lost_at is not None and node.ready and not _rebooted(before, node)


def _rebooted(before: NodeRecord, node: Node) -> bool:
    return bool(before.boot_id and node.boot_id and before.boot_id != node.boot_id)


def _after(before: NodeRecord | None, node: Node, now: datetime) -> NodeRecord:
    record = NodeRecord(
        name=node.name, uid=node.uid, boot_id=node.boot_id, booted=node.ready, cordoned=node.cordoned
    )
    if before is None or _rebooted(before, node):
        return record
    record.boot_id = node.boot_id or before.boot_id
    record.booted = before.booted or node.ready
    if record.booted and not node.ready:
        record.silent_since = before.silent_since or now
        silent = (now - record.silent_since).total_seconds()
        record.lost_at = before.lost_at or (now if silent >= LOST_SECONDS else None)
    return record
