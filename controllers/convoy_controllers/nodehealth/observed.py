"""All that a decision about a node's health may look at besides what is stored of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealth, PaceRecord, Provenance, Verdict


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What the online detector holds against a node now, and has without a break. Victims, whole stages and
    what all nodes share are none.
    """

    job: str
    """namespace/name."""
    since: datetime
    seen: datetime
    slowdown: float
    """1.1 for a tenth slower than its peers."""
    loss: float
    """GPU-seconds that it has cost the job since."""
    cause: str = ""
    message: str = ""
    gain: float = 0.0
    """Seconds by which a step would be shorter without it."""
    beside: tuple[str, ...] = ()
    """Other nodes that the job accuses at the same time."""
    ranks: tuple[int, ...] = ()
    """Of the job, those on this node that keep the others waiting."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The verdict of one HealthSweep on this node."""

    name: str
    at: datetime
    verdict: Verdict
    message: str = ""
    provenance: Provenance | None = None
    since: datetime | None = None
    """When it was begun, if that is known: nothing was measured before."""


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
    """Whether its agent is heard."""
    schedulable: bool = True
    """Whether it is ready, and nobody has cordoned it."""
    pods: int = 0
    """Pods that would have to leave, those of DaemonSets not counted."""
    jobs: tuple[str, ...] = ()
    """Of these pods, by namespace/name."""
    gpus: int = 1
    """Accelerators of these jobs, on all their nodes: what stands still while one node is moved."""
    unswappable: tuple[str, ...] = ()
    """Of these jobs, those that may not be moved: as they ask, or since they would begin anew."""


@dataclass(frozen=True, slots=True)
class HardwareFacts:
    """What is so at the moment."""

    node: NodeFacts | None = None
    """None while no node has the hardware."""
    suspicions: tuple[Suspicion, ...] = ()
    sweep: SweepResult | None = None
    """Of the sweep that the status names, once it has a verdict; where it names none, the last there was."""
    saved: datetime | None = None
    """By when all jobs on the node have saved their state; None for never, or for no job."""
    unsaved: float = 0.0
    """GPU-seconds of work that moving now would lose."""
    repaired: datetime | None = None
    """When the owner of a repair last said that it is done."""
    recovered: float | None = None
    """Share of the predicted gain that its jobs have shown since the last action; None while unknown."""
    paces: tuple[PaceRecord, ...] = ()
    """Of jobs that accuse it now: what is remembered when they are moved."""
    swap_cost: float | None = None
    """GPU-seconds that moving the node's jobs costs, as measured; None before it was."""
    noticed: tuple[Suspicion, ...] = ()
    """What jobs see of it that may lie in it and need not: nothing is held against it for that."""
    followed: frozenset[str] = frozenset()
    """Jobs of the last action whose ranks are as slow elsewhere."""

    @property
    def idle(self) -> bool:
        """Whether nothing on it would have to leave."""
        return self.node is None or self.node.pods == 0

    @property
    def agent_connected(self) -> bool:
        """Whether it is there, and its agent is heard."""
        return self.node is not None and self.node.agent_connected


@dataclass(frozen=True, slots=True)
class Member:
    """One piece of hardware: what is stored of it, and what is so."""

    health: NodeHealth
    facts: HardwareFacts = field(default_factory=HardwareFacts)

    @property
    def name(self) -> str:
        """Of its NodeHealth."""
        return self.health.metadata.name


@dataclass(frozen=True, slots=True)
class Fleet:
    """A policy and the hardware that it is for."""

    policy: GuardPolicy
    members: tuple[Member, ...]
