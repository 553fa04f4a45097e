"""The input of every decision about a SpotPool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from convoy_controllers.cached import Node
from convoy_controllers.spotpool.notice import Notice
from convoy_crds.spot_prices import PriceTrace
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import ProvisionalCost, SpotCost


@dataclass(frozen=True, slots=True)
class PoolPod:
    """A pod of the pool that still needs its node."""

    namespace: str
    name: str
    uid: str
    job: str
    role: str
    node: str
    created: float = 0.0
    """Unix seconds at which the pod was created."""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A role of a job that wants to place pods on the pool's nodes."""

    namespace: str
    job: str
    role: str
    wanted: int
    """Number of pods of the role."""
    since: datetime
    """Time at which the job was created. Older jobs come first."""
    trainer_nodes: tuple[str, ...] = ()
    """Nodes of the pool on which the job's own process group runs, outside the pool."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return namespace, job and role."""
        return self.namespace, self.job, self.role


@dataclass(frozen=True, slots=True)
class TraceLookup:
    """The result of reading the ConfigMap of a price trace."""

    trace: PriceTrace = field(default_factory=PriceTrace)
    as_of: float | None = None
    """Unix seconds of the ConfigMap's annotation; None if it has none."""
    error: str = ""
    """Reason why the trace cannot be read; empty if it was read."""


@dataclass(frozen=True, slots=True)
class Account:
    """The cost up to a time that may be newer than the stored status."""

    cost: SpotCost
    provisional: Sequence[ProvisionalCost] = ()
    """Parts of the cost that count at the on-demand price for now, in order of time."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the pool, its nodes, and the pods on them."""

    pool: SpotPool
    nodes: tuple[Node, ...] = ()
    """Nodes that belong to the pool."""
    on_demand: tuple[Node, ...] = ()
    """Nodes of the fallback that run pods of the pool, and that are no spot nodes of any pool."""
    other_payers: Mapping[str, int] = field(default_factory=dict)
    """Number of other pools that pay for an on-demand node, by uid of the node."""
    existing: frozenset[str] = frozenset()
    """Uids of all Nodes of the cluster."""
    pods: tuple[PoolPod, ...] = ()
    """Pods of the pool on these nodes."""
    notices: tuple[Notice, ...] = ()
    """Notices of agents that hold at present. The Nodes themselves carry further ones."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Ready nodes of the pool whose agents do not read the metadata service, with the reason."""
    claims: tuple[Claim, ...] = ()
    trace: TraceLookup | None = None
    """The price trace; None for a pool without a trace, and until the operator has read it."""
    overlaps: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes that the pool selects but that belong to another pool, by name of that pool."""
    fallback_overlaps: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes that the fallback selects but that are spot nodes of another pool, by its name."""
    account: Account | None = None
    """The account of the newest executed plan; None after a start of the operator."""

    def share(self, uid: str) -> float:
        """Return the share of an on-demand node's cost that this pool pays."""
        return 1 / (1 + self.other_payers.get(uid, 0))
