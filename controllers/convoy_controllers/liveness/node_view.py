"""The view of a node in plans: its Node object, its agent's silence, and the results of probes. Pure: no
I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from convoy_controllers.liveness.judge import Liveness
from convoy_controllers.views import NodeView


class NodeObject(Protocol):
    """A Node object of the API server."""

    @property
    def name(self) -> str:
        """Return the name of the Node."""
        ...

    @property
    def ready(self) -> bool:
        """Return True if the Node's Ready condition is True."""
        ...

    @property
    def cordoned(self) -> bool:
        """Return True if the Node is unschedulable."""
        ...

    @property
    def agent_ready(self) -> bool:
        """Return True if the Node carries the agent-ready label."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels of the Node."""
        ...


@dataclass(slots=True)
class NodeProbe:
    """Results of the probes of one node whose agent is silent."""

    since: float
    """Unix time in seconds of the agent's last message."""
    reachable: bool = True
    """True if any address on the node replied to the last probe."""
    pods_probed: bool = False
    """True if pods were probed, not only the agent. If only the agent was probed, a missing reply is
    ignored.
    """
    lease_seconds: float = 0.0
    """Minimum age in seconds of the kubelet's Lease when it was last read. The true age is never less."""


def node_view(
    name: str,
    node: NodeObject | None,
    *,
    silent: float,
    since: float,
    probe: NodeProbe | None,
    attested_by: frozenset[str],
) -> NodeView:
    """Return the view of a node that a pod names. `node`: the Node object; None if it was deleted.

    `silent`: seconds of the agent's silence if the agent counts as absent, else 0; `since`: Unix time in
    seconds of the agent's last message. Only replies of pods count, because the agent's own address may be
    gone with the agent.
    """
    probed = probe if silent else None
    return NodeView(
        name=name,
        exists=node is not None,
        ready=node is not None and node.ready,
        cordoned=node is not None and node.cordoned,
        agent_ready=node is not None and node.agent_ready,
        silent_seconds=silent,
        silent_since=(probed.since if probed else since) if silent else 0.0,
        pods_reachable=probed is None or probed.reachable or not probed.pods_probed,
        pods_replied=probed is not None and probed.reachable and probed.pods_probed,
        lease_seconds=probed.lease_seconds if probed else 0.0,
        attested_by=attested_by,
        labels=node.labels if node is not None else {},
    )


def wants_agent_ready(
    node: NodeObject, liveness: Liveness, reachable: bool, unready_seconds: float, now: float
) -> bool:
    """Return True if a node should carry the agent-ready label. `reachable`: True if the node replied to
    the last probe.

    The label is set as soon as the agent is present. It is removed at once if the agent is silent and the
    node does not reply or is not Ready. If the node replies and is Ready, the label is removed only after
    `unready_seconds` of silence, because agents restart. The label stays unchanged while no agent may be
    judged: under a new leader, or during an alarm.
    """
    if liveness.connected(node.name, now):
        return True
    if not node.agent_ready:
        return False
    if liveness.grace(now) > 0 or liveness.alarm(now):
        return True
    if liveness.silent(node.name, now) and not (reachable and node.ready):
        return False
    return liveness.silence(node.name, now) <= unready_seconds
