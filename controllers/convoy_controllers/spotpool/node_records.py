"""Follows the nodes of a pool: when they boot, are lost, and leave.

A node's life ends once, whatever shows it first: the deletion of its Node object, another boot id, or its
silence for LOST_SECONDS.
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


def follow(
    records: Iterable[NodeRecord], nodes: Iterable[Node], existing: frozenset[str], now: datetime
) -> Followed:
    """Return the records of the pool's nodes at `now`, and the lives that have ended since `records`.

    A node that left the pool because its labels changed has no end. `existing`: uids of all Nodes.
    """
    known = {one.uid: one for one in records}
    ends: list[NodeEnd] = []
    kept: list[NodeRecord] = []
    for node in nodes:
        before = known.pop(node.uid, None)
        after = _after(before, node, now)
        if before is not None and not before.lost:
            if _rebooted(before, node):
                ends.append(NodeEnd(before, EndCause.REBOOTED))
            elif after.lost:
                ends.append(NodeEnd(before, EndCause.LOST))
        kept.append(after)
    ends += [
        NodeEnd(one, EndCause.DELETED) for one in known.values() if one.uid not in existing and not one.lost
    ]
    return Followed(tuple(kept), tuple(ends))


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
        record.lost = before.lost or silent >= LOST_SECONDS
    return record
