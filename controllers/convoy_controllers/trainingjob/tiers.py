"""Decides which tiers keep a job's checkpoints. Pure.

A job with `spec.checkpoint.tiers` gets these tiers. Any other job gets checkpoints in memory by default,
unless the chart or the job turns the default off. Its agents report how many bytes its ranks need. If copies
do not fit beside them, the job keeps none. If the ranks' own buffers do not fit, the job has no tier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from convoy_controllers.trainingjob.observed import Observed
from convoy_crds.layout import present
from convoy_crds.meta import in_bytes
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_checkpoint import (
    CheckpointDefault,
    CheckpointDefaults,
    LocalTier,
    PeerTier,
    Tiers,
)
from convoy_crds.trainingjob_status import (
    CheckpointStatus,
    EffectiveTiers,
    TierSource,
    TrainingJobStatus,
)

BY_DEFAULT = Tiers(local=LocalTier(), peer=PeerTier(copies=1))
"""Tiers of a job without `spec.checkpoint.tiers`, if its nodes have memory for them."""
MEBIBYTE = 2**20


class Shortfall(NamedTuple):
    """Reason why a job gets fewer tiers by default than BY_DEFAULT."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """A job's memory for checkpoints on one node, as the agent of the node reports it."""

    wanted: int = 0
    """Bytes that the job's ranks on the node need for their buffers; 0 while a rank has not requested any."""
    limit: int = 0
    """Maximum bytes of the job on the node; 0 if the agent has not reported it."""


@dataclass(frozen=True, slots=True)
class Known:
    """The facts about a job's nodes on which its default tiers depend."""

    nodes: Sequence[str] = ()
    """Nodes of the incarnation. Empty while one of its pods is missing or has no node."""
    memory: Mapping[str, NodeMemory] = field(default_factory=dict)
    """The agents' reports by node."""
    stored: EffectiveTiers | None = None
    """The tiers in the job's status. They apply until all nodes have reported."""


@dataclass(frozen=True, slots=True)
class Effective:
    """The tiers that a job uses."""

    tiers: Tiers = field(default_factory=Tiers)
    source: TierSource | None = None
    """Origin of the tiers; None for a job without tiers."""
    limit: int = 0
    """Maximum bytes of the job on one node; 0 if only the node's memory limits the job."""
    shortfall: Shortfall | None = None
    """Reason why the job gets fewer tiers by default; None if it gets all."""

    @property
    def by_default(self) -> bool:
        """Return True if the job has no tiers in its spec and gets them by default."""
        return self.source is TierSource.DEFAULT


def effective_tiers(job: TrainingJob, defaults: CheckpointDefaults, known: Known) -> Effective:
    """Return the tiers that a job uses on its nodes."""
    wanted = job.spec.checkpoint.tiers
    if wanted.any:
        limit = in_bytes(wanted.local.memory) if wanted.local and wanted.local.memory else 0
        return Effective(_with_copies(wanted, len(known.nodes)), TierSource.SPEC, limit)
    if not gets_default(job, defaults):
        return Effective()
    limits = [one.limit for one in known.memory.values() if one.limit]
    stored = known.stored if known.stored and known.stored.source is TierSource.DEFAULT else None
    limit = min(limits, default=(stored.memory if stored else None) or defaults.most)
    if len(known.nodes) == 1:
        message = Reasons.DEFAULT_ONE_NODE.format(node=known.nodes[0])
        return _fitting(known, limit, copies=0, shortfall=Shortfall(Reasons.DEFAULT_ONE_NODE, message))
    if not known.nodes or not all(_memory(known, node).wanted for node in known.nodes):
        kept = stored is None or stored.copies > 0
        return Effective(BY_DEFAULT if kept else _LOCAL, TierSource.DEFAULT, limit)
    return _fitting(known, limit, copies=1)


def gets_default(job: TrainingJob, defaults: CheckpointDefaults) -> bool:
    """Return True if a job keeps checkpoints in memory by default."""
    chosen = job.spec.checkpoint.default or defaults.default
    return not job.spec.checkpoint.tiers.any and chosen is CheckpointDefault.MEMORY


def nominal(job: TrainingJob, defaults: CheckpointDefaults) -> Tiers:
    """Return the tiers that a job has before its nodes are known. The pods start with them."""
    return effective_tiers(job, defaults, Known()).tiers


def of(observed: Observed, status: TrainingJobStatus) -> Effective:
    """Return the tiers that the observed job uses in the incarnation of `status`."""
    return effective_tiers(observed.job, observed.defaults, known(observed, status))


def known(observed: Observed, status: TrainingJobStatus) -> Known:
    """Return the facts on which the default tiers of the observed job depend."""
    names = member_nodes(observed, status)
    found: dict[str, NodeMemory] = {}
    silent: set[str] = set()
    for view in observed.slots.values():
        if view.incarnation != status.incarnation or view.memory is None or view.node not in names:
            continue
        before = found.get(view.node, NodeMemory())
        if not view.memory.wanted:
            silent.add(view.node)
        found[view.node] = NodeMemory(before.wanted + view.memory.wanted, view.memory.limit)
    for node in silent:
        # The sum of a node counts only if all its pods have reported.
        found[node] = NodeMemory(0, found[node].limit)
    return Known(names, found, status.checkpoint.tiers if status.checkpoint else None)


def member_nodes(observed: Observed, status: TrainingJobStatus) -> list[str]:
    """Return the names of the incarnation's nodes; empty while one of its pods is missing or has no node.

    The names come from the pods. While an incarnation starts, the agents' reports arrive one by one, so
    they would name too few nodes.
    """
    if not status.formed:
        return []
    members = {slot.pod for slot in present(observed.job.model_copy(update={"status": status}))}
    uid = observed.job.metadata.uid
    placed = {pod.name: pod.node for pod in observed.pods if pod.owner_uid == uid and pod.node}
    return sorted({placed[name] for name in members}) if members <= placed.keys() else []


def shown(stored: CheckpointStatus | None, effective: Effective) -> CheckpointStatus | None:
    """Return `status.checkpoint` with the tiers that the job uses; None if it would be empty."""
    found = _shown_tiers(effective)
    if stored is None:
        return CheckpointStatus(tiers=found) if found is not None else None
    return stored.model_copy(update={"tiers": found})


def mebibytes(size: int) -> str:
    """Return a number of bytes in MiB, rounded down, as text."""
    return f"{size // MEBIBYTE} MiB"


_LOCAL = Tiers(local=LocalTier())


def _with_copies(wanted: Tiers, nodes: int) -> Tiers:
    """Return the tiers with at most as many copies as there are other nodes. `nodes`: 0 if not known."""
    if wanted.peer is None or not nodes or wanted.peer.copies < nodes:
        return wanted
    peer = wanted.peer.model_copy(update={"copies": nodes - 1}) if nodes > 1 else None
    return wanted.model_copy(update={"peer": peer})


def _fitting(known: Known, limit: int, copies: int, shortfall: Shortfall | None = None) -> Effective:
    """Return the default tiers that fit into the memory of all nodes."""
    missing = _missing(known, copies)
    if missing is None:
        return Effective(BY_DEFAULT if copies else _LOCAL, TierSource.DEFAULT, limit, shortfall)
    if not copies:
        found = Shortfall(Reasons.DEFAULT_NO_ROOM, Reasons.DEFAULT_NO_ROOM.format(**missing))
        return Effective(Tiers(), TierSource.DEFAULT, limit, found)
    found = Shortfall(Reasons.DEFAULT_NO_COPIES, Reasons.DEFAULT_NO_COPIES.format(**missing))
    return _fitting(known, limit, copies=0, shortfall=found)


def _missing(known: Known, copies: int) -> dict[str, str] | None:
    """Return the first node whose memory is too small, and why; None if all nodes have enough memory.

    A node needs the buffers of its own ranks, and as much for each node whose copies it keeps. It keeps those
    of at most `copies` nodes.
    """
    largest = max((_memory(known, node).wanted for node in known.nodes), default=0)
    for node in known.nodes:
        found = _memory(known, node)
        needed = found.wanted + copies * largest
        if found.limit and needed > found.limit:
            return {"node": node, "why": f"{needed} bytes are needed and the limit is {found.limit}"}
    return None


def _memory(known: Known, node: str) -> NodeMemory:
    return known.memory.get(node, NodeMemory())


def _shown_tiers(effective: Effective) -> EffectiveTiers | None:
    tiers = effective.tiers
    if effective.source is None or not tiers.any:
        return None
    return EffectiveTiers(
        source=effective.source,
        memory=effective.limit or None,
        copies=tiers.peer.copies if tiers.peer else 0,
        store=tiers.store or "",
    )
