"""Inputs of a decision about a node's health, in addition to the stored status."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealth, PaceRecord, Provenance, Verdict


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The online detector's current, uninterrupted suspicion against a node.

    Victims, whole stages and slowness that all nodes share are no suspicions.
    """

    job: str
    """namespace/name."""
    since: datetime
    seen: datetime
    slowdown: float
    """Time relative to the peers: 1.1 is a tenth slower."""
    loss: float
    """GPU-seconds that the job has lost since then."""
    cause: str = ""
    message: str = ""
    gain: float = 0.0
    """Seconds that a step would save without the slow node."""
    beside: tuple[str, ...] = ()
    """Other nodes that the job accuses at the same time."""
    ranks: tuple[int, ...] = ()
    """Ranks of the job on this node that make the others wait."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Verdict of one HealthSweep on this hardware."""

    name: str
    at: datetime
    verdict: Verdict
    message: str = ""
    provenance: Provenance | None = None
    since: datetime | None = None
    """When the sweep started, if known. All its measurements are later."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The node that has the hardware now."""

    name: str
    uid: str
    created: datetime
    rack: str = ""
    driver: str = ""
    boot_id: str = ""
    agent_connected: bool = True
    """True while the hub receives heartbeats of the node's agent."""
    schedulable: bool = True
    """True if the node is ready and not cordoned."""
    pods: int = 0
    """Pods of jobs; pods of DaemonSets do not count."""
    jobs: tuple[str, ...] = ()
    """namespace/name of the jobs of these pods."""
    gpus: int = 1
    """Accelerators of these jobs on all their nodes: they stand still during a swap."""
    unswappable: tuple[str, ...] = ()
    """Those of the jobs that may not be swapped: they forbid it, or would start from the beginning."""


@dataclass(frozen=True, slots=True)
class HardwareFacts:
    """Current facts about one piece of hardware."""

    node: NodeFacts | None = None
    """None while no node has the hardware."""
    suspicions: tuple[Suspicion, ...] = ()
    sweep: SweepResult | None = None
    """Verdict of the sweep that the status names, once there is one; without such a sweep, the last verdict
    of any.
    """
    saved: datetime | None = None
    """Time by which all jobs on the node have saved their state; None if one never has, or without jobs."""
    unsaved: float = 0.0
    """GPU-seconds of work that a swap now would lose."""
    repaired: datetime | None = None
    """When the owner of a repair last reported it as done."""
    recovered: float | None = None
    """Share of the predicted gain that its jobs have shown since the last action; None while unknown."""
    paces: tuple[PaceRecord, ...] = ()
    """Speed of the jobs that accuse it now, to be stored with a swap."""
    swap_cost: float | None = None
    """Measured GPU-seconds of a swap of the node's jobs; None before the first measurement."""
    noticed: tuple[Suspicion, ...] = ()
    """Hints of jobs that may be the node's fault or not. They do not count as evidence."""
    followed: frozenset[str] = frozenset()
    """Jobs of the last action whose ranks are equally slow elsewhere."""

    @property
    def idle(self) -> bool:
        """Return True if no pod of a job is on it."""
        return self.node is None or self.node.pods == 0

    @property
    def agent_connected(self) -> bool:
        """Return True if the node exists and its agent is connected."""
        return self.node is not None and self.node.agent_connected


@dataclass(frozen=True, slots=True)
class Member:
    """One piece of hardware: its stored NodeHealth, and the current facts."""

    health: NodeHealth
    facts: HardwareFacts = field(default_factory=HardwareFacts)

    @property
    def name(self) -> str:
        """Name of its NodeHealth."""
        return self.health.metadata.name


@dataclass(frozen=True, slots=True)
class Fleet:
    """A policy and the hardware that it applies to."""

    policy: GuardPolicy
    members: tuple[Member, ...]
