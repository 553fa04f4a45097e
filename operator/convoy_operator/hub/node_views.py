"""What plans are shown of a node: its object, its agent's silence, and what others say of it. Pure."""

from __future__ import annotations

from convoy_controllers.cached import Node
from convoy_controllers.views import NodeView
from convoy_operator.hub.witness import Case


def node_view(
    name: str,
    node: Node | None,
    *,
    silent: float,
    since: float,
    case: Case | None,
    vouched_by: frozenset[str],
) -> NodeView:
    """The view of a node that a pod names; `node` is None when it is in the cache no more.

    `silent`: seconds of its agent's silence if that is believed, else 0; `since`: Unix seconds of its last
    sign. Only what pods answered is shown as an answer: an agent's own address may be gone with the agent.
    """
    asked = case if silent else None
    return NodeView(
        name=name,
        exists=node is not None,
        ready=node is not None and node.ready,
        cordoned=node is not None and node.cordoned,
        agent_ready=node is not None and node.agent_ready,
        silent_seconds=silent,
        silent_since=(asked.since if asked else since) if silent else 0.0,
        answers=asked is None or asked.answers or not asked.pods_asked,
        answered=asked is not None and asked.answers and asked.pods_asked,
        lease_seconds=asked.lease_seconds if asked else 0.0,
        vouched_by=vouched_by,
        labels=node.labels if node is not None else {},
    )
