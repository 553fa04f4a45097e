"""Faults of simulated hardware: their effects on a job, and on health sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from convoy_controllers.guard.faults import KINDS, Fault
from convoy_controllers.guard.synthetic import Job

MEASURES: Mapping[str, str] = {
    "slow": "gemm",
    "drift": "gemm",
    "bursts": "gemm",
    "thermal": "gemm",
    "nvlink": "nvlink",
    "pcie": "pcie",
    "hog": "launch",
    "nic": "pairs",
    "link": "pairs",
    "uplink": "pairs",
    "crowd": "groups",
    "corrupt": "hash",
}
"""The sweep test that detects each kind of fault. A kind without a test is not a fault of a node."""
METRICS = ("gemm", "nvlink", "pcie", "launch")
"""Metrics of a single node. One without a criterion of its own fails by the criterion of `gemm`."""
SEEN_BY_JOBS_AS = {"pcie": "loader"}
"""Fault kinds that look like another kind to a job: slow copies to the device look like a slow loader."""
INVISIBLE_TO_JOBS = ("corrupt", "lie")
"""Fault kinds that do not slow down a job."""


@dataclass(frozen=True)
class HardwareFault:
    """One fault that exists from minute `begins` to minute `ends`."""

    kind: str
    """A fault kind of synthetic jobs, or one of three further kinds.

    pcie: slow copies to the device. corrupt: wrong results at full speed. lie: only the telemetry is slow.
    """
    where: tuple[int, ...] = ()
    """Numbers of the faulty hardware or racks. Empty if the fault affects everything."""
    size: float = 0.2
    begins: float = 8.0
    ends: float = float("inf")
    ranks: tuple[int, ...] = (0,)
    """Local ranks that have the fault on each faulty node, if the kind affects single ranks."""
    period: int = 60
    repairable: bool = True
    """True if a repair removes the fault."""

    def active(self, minute: float) -> bool:
        """Return True if the fault exists in this minute."""
        return self.begins <= minute < self.ends

    def of_single_nodes(self) -> bool:
        """Return True if single nodes have the fault, so that a swap helps."""
        return bool(self.where) and KINDS.get(self.kind_in_job, ("", "ranks"))[1] != "racks"

    @property
    def kind_in_job(self) -> str:
        """The kind of fault that a job sees."""
        return SEEN_BY_JOBS_AS.get(self.kind, self.kind)


@dataclass
class FleetFaults:
    """All faults of a fleet, and the repairs that removed some of them."""

    faults: Sequence[HardwareFault]
    repaired: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of fault number and hardware number."""

    def of_node(self, hardware: int, minute: float) -> list[HardwareFault]:
        """Return the active faults of one node."""
        return [
            fault
            for number, fault in enumerate(self.faults)
            if fault.active(minute)
            and fault.of_single_nodes()
            and hardware in fault.where
            and (number, hardware) not in self.repaired
        ]

    def repair(self, hardware: int) -> None:
        """Remove all repairable faults from one node."""
        for number, fault in enumerate(self.faults):
            if fault.repairable:
                self.repaired.add((number, hardware))

    def of_job(
        self, job: Job, nodes: Sequence[int], minute: float, window: int, ages: dict[int, int]
    ) -> list[Fault]:
        """Return the faults that a job on these nodes has in the window of this number.

        `ages` is updated: the number of windows since the job first had each fault, by fault number.
        """
        found = []
        for number, fault in enumerate(self.faults):
            if fault.kind in INVISIBLE_TO_JOBS or not fault.active(minute):
                continue
            where = self._where(number, fault, job, nodes)
            if where is None:
                continue
            ages[number] = ages.get(number, -1) + 1
            onset = window - ages[number]
            found.append(Fault(fault.kind_in_job, where, fault.size, onset, period=fault.period))
        return found

    def false_slowdowns(self, job: Job, nodes: Sequence[int], minute: float) -> dict[int, float]:
        """Return, by rank, the slowdown that exists only in the telemetry."""
        found = {}
        for number, fault in enumerate(self.faults):
            if fault.kind == "lie" and fault.active(minute):
                for rank in self._where(number, fault, job, nodes) or ():
                    found[rank] = fault.size
        return found

    def _where(
        self, number: int, fault: HardwareFault, job: Job, nodes: Sequence[int]
    ) -> tuple[int, ...] | None:
        """Return the job's own numbers of the faulty nodes or ranks; None if the job is not affected."""
        if not fault.of_single_nodes():
            return fault.where
        at = {hardware: place for place, hardware in enumerate(nodes)}
        places = [at[one] for one in fault.where if one in at and (number, one) not in self.repaired]
        if not places or (fault.kind == "link" and len(places) < 2):
            return None
        if KINDS.get(fault.kind_in_job, ("", "ranks"))[1] == "nodes":
            return tuple(places)
        return tuple(place * job.per_node + rank for place in places for rank in fault.ranks)
