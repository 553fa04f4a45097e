"""Numbers the ranks of a new incarnation along the topology, and shows where the ranks run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from convoy_controllers.placement.numbering import HORIZON_SECONDS, Move, hops, order, pays
from convoy_controllers.placement.topology import UNKNOWN, Topology, topology
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import PodView
from convoy_crds.layout import Slot, numbered, present
from convoy_crds.placement import MAX_DOMAINS, DomainCount, KeyPlacement, PlacementStatus
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_status import TrainingJobStatus


def renumber(
    observed: Observed,
    status: TrainingJobStatus,
    chosen: Sequence[Slot],
    pods: Mapping[str, PodView],
) -> None:
    """Set the order of the ranks of each role in the status.

    The first incarnation is always numbered along the topology. A regrowth is, if the shorter ring regains
    the time in which moved ranks fetch their state. After any other fault the ranks keep their order, so that
    they find their state on their own nodes.
    """
    keys = observed.job.spec.placement.topology_keys
    if not keys:
        return
    nodes = _nodes(chosen, pods)
    found = _topology(observed, keys)
    fresh = order(chosen, nodes, found)
    known = {role.name: role.order for role in status.roles}
    now, then = numbered(tuple(chosen), known), numbered(tuple(chosen), fresh)
    move = Move(
        hops_before=hops(now, nodes, found),
        hops_after=hops(then, nodes, found),
        moved=sum(ours.pod != theirs.pod for ours, theirs in zip(now, then, strict=True)),
        bytes_per_slot=_bytes_to_fetch(observed, status),
        remaining_seconds=_remaining_seconds(status),
    )
    if not _may_renumber(status) or not pays(move):
        return
    for role in status.roles:
        if (replicas := fresh.get(role.name)) is not None:
            role.order = replicas if replicas != sorted(replicas) else []


def show(observed: Observed, status: TrainingJobStatus, own: Mapping[str, PodView]) -> None:
    """Set the domains and hops of the incarnation in the status. Without topology keys, remove them."""
    placed = status.placement or PlacementStatus()
    keys = observed.job.spec.placement.topology_keys
    layout = present(observed.job.model_copy(update={"status": status})) if status.formed else ()
    nodes = _nodes(layout, own)
    if not keys:
        placed.keys, placed.hops, placed.summary = [], None, ""
    elif layout and all(nodes.get(slot.pod) for slot in layout):
        found = _topology(observed, keys)
        placed.keys = [_key(found, level, layout, nodes) for level in range(len(keys))]
        placed.hops = hops(layout, nodes, found)
        placed.summary = _summary(placed)
    status.placement = placed if placed != PlacementStatus() else None


def _key(found: Topology, level: int, layout: Sequence[Slot], nodes: Mapping[str, str]) -> KeyPlacement:
    counts: Counter[str] = Counter()
    for slot in layout:
        counts[found.path(nodes[slot.pod])[level] or UNKNOWN] += slot.processes
    ranks = [DomainCount(name=name, ranks=count) for name, count in counts.items()]
    return KeyPlacement(key=found.keys[level], domains=len(ranks), ranks=ranks[:MAX_DOMAINS])


def _summary(placed: PlacementStatus) -> str:
    """Return the text for `kubectl get`, such as `2 racks, 3 hops`."""
    first = placed.keys[0]
    label = first.key.rsplit("/", 1)[-1]
    domains = f"{first.domains} {label}{'s' if first.domains != 1 else ''}"
    return f"{domains}, {placed.hops} hop{'s' if placed.hops != 1 else ''}"


def _nodes(layout: Sequence[Slot], pods: Mapping[str, PodView]) -> dict[str, str]:
    return {slot.pod: pod.node for slot in layout if (pod := pods.get(slot.pod)) is not None and pod.node}


def _topology(observed: Observed, keys: Sequence[str]) -> Topology:
    return topology(keys, {name: node.labels for name, node in observed.nodes.items()})


def _may_renumber(status: TrainingJobStatus) -> bool:
    last = status.restarts.last
    return status.saved is None or (last is not None and last.reason == Reasons.REGROW.name)


def _bytes_to_fetch(observed: Observed, status: TrainingJobStatus) -> int:
    """Return the bytes that a slot with other ranks must fetch; 0 if nothing has been saved."""
    if status.saved is None:
        return 0
    return max((view.memory.wanted for view in observed.slots.values() if view.memory), default=0)


def _remaining_seconds(status: TrainingJobStatus) -> float:
    """Return the estimated seconds until the training is complete; HORIZON_SECONDS if they are unknown."""
    progress = status.progress
    if progress is None or progress.eta_at is None or progress.time is None:
        return HORIZON_SECONDS
    return max(0.0, (progress.eta_at - progress.time).total_seconds())
