"""Current facts that decide about a node's health, in addition to the stored status."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealth, PaceRecord, Provenance, Verdict


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The online detector's current suspicion against a node. It has lasted without interruption since
    `since`.

    There is no suspicion for ranks that wait for others, for slow stages, or if all nodes are slow.
    """

    job: str
    """Namespace and name of the job: `namespace/name`."""
    since: datetime
    seen: datetime
    slowdown: float
    """Time relative to the peers: 1.1 means 10 % longer."""
    loss: float
    """GPU-seconds that the job has lost since `since`."""
    cause: str = ""
    message: str = ""
    gain: float = 0.0
    """Seconds that each step would save without the slow node."""
    beside: tuple[str, ...] = ()
    """Other nodes that the job accuses at the same time."""
    ranks: tuple[int, ...] = ()
    """Ranks on this node for which the job's other ranks wait."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The verdict of one HealthSweep on this hardware."""

    name: str
    at: datetime
    verdict: Verdict
    message: str = ""
    provenance: Provenance | None = None
    since: datetime | None = None
    """Time at which the sweep started, if known. All its measurements are later."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about the node that has the hardware now."""

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
    """Number of pods of jobs on the node. Pods of DaemonSets do not count."""
    jobs: tuple[str, ...] = ()
    """Jobs of these pods, each as `namespace/name`."""
    gpus: int = 1
    """Number of accelerators of these jobs on all nodes. All of them stand still during a swap."""
    unswappable: tuple[str, ...] = ()
    """Jobs on the node that may not be swapped: they forbid a swap, or they would start from the beginning.
    """


@dataclass(frozen=True, slots=True)
class HardwareFacts:
    """Current facts about one piece of hardware."""

    node: NodeFacts | None = None
    """The node that has the hardware; None if no node has it."""
    suspicions: tuple[Suspicion, ...] = ()
    sweep: SweepResult | None = None
    """Verdict of the sweep that the status names. Without such a verdict: the last conclusive verdict of
    any sweep.
    """
    saved: datetime | None = None
    """The earliest of the times at which the jobs on the node last saved their state. None if one of these
    jobs has never saved, or if there are no jobs.
    """
    unsaved: float = 0.0
    """GPU-seconds of work that a swap now would lose."""
    repaired: datetime | None = None
    """Time at which the owner of a repair last reported the repair as done."""
    recovered: float | None = None
    """Share of the predicted gain that the jobs have reached since the last action; None while unknown."""
    paces: tuple[PaceRecord, ...] = ()
    """Speeds of the jobs that accuse the hardware now. They are stored with a swap."""
    swap_cost: float | None = None
    """Measured GPU-seconds of a swap of the node's jobs; None before the first measurement."""
    noticed: tuple[Suspicion, ...] = ()
    """Hints of jobs. The cause may be the node or something else. A hint does not count as evidence."""
    followed: frozenset[str] = frozenset()
    """Jobs that the last action swapped and whose ranks are equally slow on their new nodes."""

    @property
    def idle(self) -> bool:
        """Return True if no pod of a job is on the node."""
        return self.node is None or self.node.pods == 0

    @property
    def agent_connected(self) -> bool:
        """Return True if the node exists and its agent is connected."""
        return self.node is not None and self.node.agent_connected


@dataclass(frozen=True, slots=True)
class Member:
    """One piece of hardware: its stored NodeHealth and the current facts."""

    health: NodeHealth
    facts: HardwareFacts = field(default_factory=HardwareFacts)

    @property
    def name(self) -> str:
        """Return the name of the hardware, which is also the name of its NodeHealth."""
        return self.health.metadata.name


@dataclass(frozen=True, slots=True)
class Fleet:
    """A policy and the hardware that it applies to."""

    policy: GuardPolicy
    members: tuple[Member, ...]
