"""The view of a node in plans: its object, its agent's silence, and the results of probes. Pure."""

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
        """Name of the Node."""
        ...

    @property
    def ready(self) -> bool:
        """Return True if its Ready condition is True."""
        ...

    @property
    def cordoned(self) -> bool:
        """Return True if it is unschedulable."""
        ...

    @property
    def agent_ready(self) -> bool:
        """Return True if it carries the agent-ready label."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the Node."""
        ...


@dataclass(slots=True)
class NodeProbe:
    """Results of the probes of one quiet node."""

    since: float
    """Unix seconds of its agent's last sign."""
    reachable: bool = True
    """True if anything on it replied to the last probe."""
    pods_probed: bool = False
    """True if pods were probed (not only the agent), so that no reply means something."""
    lease_seconds: float = 0.0
    """Age of the kubelet's Lease when last read: at least, never more than the true age."""


def node_view(
    name: str,
    node: NodeObject | None,
    *,
    silent: float,
    since: float,
    probe: NodeProbe | None,
    attested_by: frozenset[str],
) -> NodeView:
    """Return the view of a node that a pod names. `node`: None if its object was deleted.

    `silent`: seconds of its agent's silence if believed, else 0; `since`: Unix seconds of the agent's last
    sign. Only replies of pods count: the agent's own address may be gone with the agent.
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
    """Return True if a node is to carry the agent-ready label. `reachable`: it replied to the last probe.

    The label is given at once. It is removed at once if the agent is silent and the node does not reply, or
    its kubelet does not report either. If the node is alive it is removed only after a long silence, since
    agents restart. While no agent may be judged (new leader, doubtful network) the label stays as it is.
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
