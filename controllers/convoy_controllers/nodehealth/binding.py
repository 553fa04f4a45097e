"""Which node has a piece of hardware: names come and go, two may claim the same."""

from __future__ import annotations

from collections.abc import Sequence

from convoy_controllers.nodehealth.observed import NodeFacts
from convoy_crds.nodehealth import NodeRef


def chosen(known: NodeRef, claims: Sequence[NodeFacts]) -> NodeFacts | None:
    """The node that has the hardware: of those that claim it one whose agent is heard, best the one that had
    it, else the youngest. A node that was replaced may linger as an object; machine ids get cloned.
    """

    def rank(node: NodeFacts) -> tuple[bool, bool, float, str]:
        return node.telemetry, node.uid == known.uid, node.created.timestamp(), node.uid

    return max(claims, key=rank, default=None)
