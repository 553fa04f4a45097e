"""Decides whether a node is lost.

A node is lost if its agent is silent and one of two things confirms the loss: no pod on the node replies to
probes, or the kubelet does not report either.
"""

from __future__ import annotations

from collections.abc import Iterable

from convoy_controllers.liveness.timings import HEARTBEAT_SECONDS, REPORT_SECONDS
from convoy_controllers.views import NodeView, SlotView

STEP_SECONDS = 5.0
"""Seconds for which a new step proves that all nodes that it needed are alive."""
DOUBT_SECONDS = HEARTBEAT_SECONDS + REPORT_SECONDS + 1.0
"""Seconds after the last message of an agent. A step that is reported within this time may have ended
before the node failed, so it does not prove that the node is alive. The time has three parts: the node
may fail up to one heartbeat interval after its agent's last message, progress is batched before it is
reported, and the network may add a second.
"""


def why_lost(node: NodeView, views: Iterable[SlotView]) -> str:
    """Return the reason why a node counts as lost; empty if it does not. `views` are the pods whose steps
    need the node.
    """
    if not node.exists:
        return "its Node object was deleted"
    if not node.silent_seconds:
        return ""
    if any(_proves_alive(view, node) for view in views):
        return ""
    silence = f"its agent has been silent for {node.silent_seconds:.0f} s"
    if not node.ready:
        return f"{silence} and its kubelet does not report"
    if node.pods_reachable:
        return ""
    return f"{silence} and its pods do not reply to probes"


def _proves_alive(view: SlotView, node: NodeView) -> bool:
    """Return True if a pod on another node made a step after this node fell silent and within the last
    STEP_SECONDS.

    An older step is no proof, because the node may have died after that step.
    """
    if view.node == node.name or view.stepped <= node.silent_since + DOUBT_SECONDS:
        return False
    return node.silent_since + node.silent_seconds - view.stepped < STEP_SECONDS
