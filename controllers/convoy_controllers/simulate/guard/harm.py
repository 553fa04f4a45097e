"""What is wrong with simulated hardware: what a job on it feels, and what tests of it would measure."""

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
"""By kind of harm, the test that sees it; a kind that is not here is no fault of a node."""
METRICS = ("gemm", "nvlink", "pcie", "launch")
"""Of a node alone; those without a criterion of their own fail as `gemm` does."""
FELT_AS = {"pcie": "loader"}
"""Copies to the device that take longer hold the step up as a slow loader does."""
UNFELT = ("corrupt", "lie")
"""A job that has it runs as fast as before."""


@dataclass(frozen=True)
class Harm:
    """One thing that is wrong, from minute `begins` to `ends`."""

    kind: str
    """As faults of synthetic jobs; besides: pcie; corrupt, which computes wrongly and as fast; lie, where the
    telemetry alone is slow.
    """
    where: tuple[int, ...] = ()
    """Numbers of hardware, or of racks; empty where it is everybody's."""
    size: float = 0.2
    begins: float = 8.0
    ends: float = float("inf")
    ranks: tuple[int, ...] = (0,)
    """Of each piece of hardware, those that have it, where ranks do."""
    period: int = 60
    mends: bool = True
    """Whether a repair is of any use."""

    def lasts(self, minute: float) -> bool:
        """Whether it is there."""
        return self.begins <= minute < self.ends

    def of_hardware(self) -> bool:
        """Whether single machines have it, which may be swapped."""
        return bool(self.where) and KINDS.get(self.felt, ("", "ranks"))[1] != "racks"

    @property
    def felt(self) -> str:
        """The fault that a job sees."""
        return FELT_AS.get(self.kind, self.kind)


@dataclass
class Ills:
    """All harms of a fleet, and from which hardware repairs have taken them."""

    harms: Sequence[Harm]
    mended: set[tuple[int, int]] = field(default_factory=set)
    """Harm and hardware, by number."""

    def of(self, hardware: int, minute: float) -> list[Harm]:
        """Those that this machine has now."""
        return [
            harm
            for number, harm in enumerate(self.harms)
            if harm.lasts(minute)
            and harm.of_hardware()
            and hardware in harm.where
            and (number, hardware) not in self.mended
        ]

    def mend(self, hardware: int) -> None:
        """A repair is done."""
        for number, harm in enumerate(self.harms):
            if harm.mends:
                self.mended.add((number, hardware))

    def felt(
        self, job: Job, nodes: Sequence[int], minute: float, window: int, ages: dict[int, int]
    ) -> list[Fault]:
        """What a job on these machines feels in its window of that number. `ages`: windows since each harm
        was first felt, which are counted here.
        """
        found = []
        for number, harm in enumerate(self.harms):
            if harm.kind in UNFELT or not harm.lasts(minute):
                continue
            where = self._where(number, harm, job, nodes)
            if where is None:
                continue
            ages[number] = ages.get(number, -1) + 1
            fault = Fault(harm.felt, where, harm.size, window - ages[number], period=harm.period)
            found.append(fault)
        return found

    def lies(self, job: Job, nodes: Sequence[int], minute: float) -> dict[int, float]:
        """By rank, how much slower the telemetry makes it."""
        found = {}
        for number, harm in enumerate(self.harms):
            if harm.kind == "lie" and harm.lasts(minute):
                for rank in self._where(number, harm, job, nodes) or ():
                    found[rank] = harm.size
        return found

    def _where(self, number: int, harm: Harm, job: Job, nodes: Sequence[int]) -> tuple[int, ...] | None:
        """In the job's own numbers; None: it has nothing of it."""
        if not harm.of_hardware():
            return harm.where
        at = {hardware: place for place, hardware in enumerate(nodes)}
        places = [at[one] for one in harm.where if one in at and (number, one) not in self.mended]
        if not places or (harm.kind == "link" and len(places) < 2):
            return None
        if KINDS.get(harm.felt, ("", "ranks"))[1] == "nodes":
            return tuple(places)
        return tuple(place * job.per_node + rank for place in places for rank in harm.ranks)
