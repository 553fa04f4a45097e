"""The table of nodes, with data from Kubernetes and from Convoy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from convoy_controllers.cached import Node
from convoy_crds.guardpolicy import BreakerState, GuardPolicy
from convoy_crds.nodehealth import NodeHealth, State
from convoy_crds.summaries import age
from convoy_operator.dashboard.core.formatting import node_link
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

UNGUARDED = "Unguarded"
"""State of a node without a NodeHealth."""
TONES = {
    State.UNVERIFIED: Tone.PLAIN,
    State.GATED: Tone.BUSY,
    State.SWEEPING: Tone.BUSY,
    State.QUALIFIED: Tone.GOOD,
    State.SUSPECT: Tone.WARN,
    State.QUARANTINED: Tone.BAD,
    State.DRAINING: Tone.BAD,
    State.REPAIRING: Tone.BAD,
    State.REQUALIFYING: Tone.BUSY,
    State.PROBATION: Tone.WARN,
    State.CONDEMNED: Tone.BAD,
    State.EXEMPT: Tone.QUIET,
}
COLUMNS = (
    Column("Node", link=True),
    Column("Kubelet", badge=True),
    Column("Agent", badge=True),
    Column("Health", badge=True),
    Column("In state for", number=True),
    Column("Rack"),
    Column("Pods", number=True),
    Column("Breaker", badge=True),
    Column("Why", wide=True, brief=True),
)


def by_node(healths: Iterable[ParsedObject[NodeHealth]], nodes: Iterable[Node]) -> dict[str, NodeHealth]:
    """Return the NodeHealth of the hardware that each existing node has, by node name.

    A NodeHealth keeps the name of its node after the hardware was removed from that node. A newer node may
    have the same name. The node's uid in the NodeHealth tells the two nodes apart. A NodeHealth without a
    uid matches a node by name alone. If several NodeHealths match one node, those with a uid are preferred.
    Of these, the one whose state changed last is returned.
    """
    uids = {node.name: node.uid for node in nodes}
    found: dict[str, NodeHealth] = {}
    for parsed in healths:
        if parsed.model is None:
            continue
        ref = parsed.model.status.node_ref
        if ref.name not in uids or ref.uid not in ("", uids[ref.name]):
            continue
        known = found.get(ref.name)
        if known is None or _certainty(known) < _certainty(parsed.model):
            found[ref.name] = parsed.model
    return found


def last_of(healths: Iterable[ParsedObject[NodeHealth]], name: str) -> NodeHealth | None:
    """Return the NodeHealth of a deleted node. If several NodeHealths name the node, return the one with
    the newest state.
    """
    found = [parsed.model for parsed in healths if parsed.model and parsed.model.status.node_ref.name == name]
    return max(found, key=_since, default=None)


def _certainty(health: NodeHealth) -> tuple[bool, float]:
    return bool(health.status.node_ref.uid), _since(health)


def _since(health: NodeHealth) -> float:
    return health.status.since.timestamp() if health.status.since else 0.0


def breaker(policy: GuardPolicy | None) -> Cell:
    """Return the state of the policy's breaker as a cell."""
    if policy is None:
        return Cell("-")
    state = policy.status.breaker.state
    return Cell(state, Tone.PLAIN if state is BreakerState.CLOSED else Tone.BAD)


def row(
    node: Node, health: NodeHealth | None, policies: Mapping[str, GuardPolicy], pods: int, now: datetime
) -> Row:
    """Return the table row of a node."""
    kubelet = Cell("Ready", Tone.GOOD) if node.ready else Cell("NotReady", Tone.BAD)
    if node.ready and node.cordoned:
        kubelet = Cell("Cordoned", Tone.QUIET)
    agent = Cell("Ready", Tone.GOOD) if node.agent_ready else Cell("NotReady", Tone.WARN)
    name = Cell(node.name, href=node_link(node.name))
    if health is None:
        reason = Cell("no GuardPolicy selects this node, or its agent has not reported yet")
        known = (name, kubelet, agent, Cell(UNGUARDED, Tone.QUIET), Cell("-"), Cell("-"))
        return Row(node.name, (*known, Cell(str(pods), order=float(pods)), Cell("-"), reason), UNGUARDED)
    status = health.status
    since = status.since
    cells = (
        name,
        kubelet,
        agent,
        Cell(status.state, TONES[status.state]),
        Cell(age(since, now), order=-since.timestamp() if since else None),
        Cell(status.node_ref.rack or "-"),
        Cell(str(pods), order=float(pods)),
        breaker(policies.get(status.policy)),
        Cell(status.message or "-"),
    )
    return Row(node.name, cells, status.state)


def rows(
    nodes: Iterable[Node],
    healths: Mapping[str, NodeHealth],
    policies: Mapping[str, GuardPolicy],
    pods: Mapping[str, int],
    now: datetime,
) -> list[Row]:
    """Return all nodes as table rows, sorted by name. `pods` holds the number of jobs' pods on each node,
    by node name.
    """
    return [
        row(node, healths.get(node.name), policies, pods.get(node.name, 0), now)
        for node in sorted(nodes, key=lambda node: node.name)
    ]


def counts(rows: Iterable[Row]) -> dict[str, int]:
    """Return the number of nodes in each state, ordered like `State`. States without nodes are left out."""
    found: dict[str, int] = {}
    for one in rows:
        found[one.group] = found.get(one.group, 0) + 1
    order = [*(state.value for state in State), UNGUARDED]
    return {state: found[state] for state in order if state in found}
