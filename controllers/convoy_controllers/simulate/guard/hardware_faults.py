"""Faults of simulated hardware, and their effects on a job and on health sweeps."""

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
"""Sweep test that detects a fault, by kind of fault. Kinds without a test are not faults of a node."""
METRICS = ("gemm", "nvlink", "pcie", "launch")
"""Metrics that are measured on a single node. A metric without its own criterion has that of `gemm`."""
SEEN_BY_JOBS_AS = {"pcie": "loader"}
"""Kinds of faults that look like another kind to a job. Slow copies to the device look like a slow loader."""
INVISIBLE_TO_JOBS = ("corrupt", "lie")
"""Kinds of faults that do not slow a job down."""


@dataclass(frozen=True)
class HardwareFault:
    """A fault that is active from minute `begins` to minute `ends`."""

    kind: str
    """A kind of fault of synthetic jobs, or one of these:

    - `pcie`: copies to the device are slow.
    - `corrupt`: results are wrong, at full speed.
    - `lie`: the hardware is healthy, but its telemetry shows it as slow.
    """
    where: tuple[int, ...] = ()
    """Ids of the faulty machines (0 is hw0) or racks. If empty, the fault affects everything."""
    size: float = 0.2
    begins: float = 8.0
    ends: float = float("inf")
    ranks: tuple[int, ...] = (0,)
    """Local ranks that have the fault on each faulty machine. Used only by kinds that affect single ranks."""
    period: int = 60
    repairable: bool = True
    """True if a repair removes the fault."""

    def active(self, minute: float) -> bool:
        """Return True if the fault is active in this minute."""
        return self.begins <= minute < self.ends

    def of_single_nodes(self) -> bool:
        """Return True if the fault affects single nodes, so that a swap helps."""
        return bool(self.where) and KINDS.get(self.kind_in_job, ("", "ranks"))[1] != "racks"

    @property
    def kind_in_job(self) -> str:
        """Kind of the fault as a job sees it."""
        return SEEN_BY_JOBS_AS.get(self.kind, self.kind)


@dataclass
class FleetFaults:
    """All faults of a fleet, and the repairs that have removed some of them."""

    faults: Sequence[HardwareFault]
    repaired: set[tuple[int, int]] = field(default_factory=set)
    """Repairs, as pairs of fault number and machine number."""

    def of_node(self, hardware: int, minute: float) -> list[HardwareFault]:
        """Return the active faults of one machine."""
        return [
            fault
            for number, fault in enumerate(self.faults)
            if fault.active(minute)
            and fault.of_single_nodes()
            and hardware in fault.where
            and (number, hardware) not in self.repaired
        ]

    def repair(self, hardware: int) -> None:
        """Remove all repairable faults from one machine."""
        for number, fault in enumerate(self.faults):
            if fault.repairable:
                self.repaired.add((number, hardware))

    def of_job(
        self, job: Job, nodes: Sequence[int], minute: float, window: int, ages: dict[int, int]
    ) -> list[Fault]:
        """Return the faults that a job on these nodes has in window number `window`.

        `ages` counts, for each fault, the windows since the job first had the fault. Its keys are positions
        in `faults`. This method updates it.
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
        """Return, by rank, slowdowns that exist only in the telemetry."""
        found = {}
        for number, fault in enumerate(self.faults):
            if fault.kind == "lie" and fault.active(minute):
                for rank in self._where(number, fault, job, nodes) or ():
                    found[rank] = fault.size
        return found

    def _where(
        self, number: int, fault: HardwareFault, job: Job, nodes: Sequence[int]
    ) -> tuple[int, ...] | None:
        """Return the positions of the faulty nodes or ranks within the job. Return None if the fault does
        not affect the job.
        """
        if not fault.of_single_nodes():
            return fault.where
        at = {hardware: place for place, hardware in enumerate(nodes)}
        places = [at[one] for one in fault.where if one in at and (number, one) not in self.repaired]
        if not places or (fault.kind == "link" and len(places) < 2):
            return None
        if KINDS.get(fault.kind_in_job, ("", "ranks"))[1] == "nodes":
            return tuple(places)
        return tuple(place * job.per_node + rank for place in places for rank in fault.ranks)
