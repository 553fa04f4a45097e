"""Compares ways to guard a fleet with slow machines: Convoy's guard, another rule, and no guard.

An eighth of the machines is slow. Each way is one arm of the comparison. All arms have the same machines,
faults and jobs at the same times.

Convoy sweeps machines before their first use, watches jobs, and has drained machines repaired. The other
rule is that of NVIDIA's Resiliency Extension: it accuses a rank if the fastest rank's median is below 0.75
of the accused rank's. A node that it accuses is cordoned at once and never comes back.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from convoy_controllers.guard.faults import Fault
from convoy_controllers.guard.synthetic import Job, play
from convoy_controllers.simulate.guard.guarded_fleet import GuardedFleet, Setup
from convoy_controllers.simulate.guard.hardware_faults import FleetFaults, HardwareFault
from convoy_controllers.simulate.guard.trained_job import RESTART_SECONDS
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.guard.detectors import Detector, nvrx
from e2e.bench.guard.intervals import mean_interval
from e2e.cluster import machine
from e2e.cluster.progress import Progress

FIRST_SEED = 10
MAX_SEEDS = 20
MACHINES, BAD, BAD_LATER = 32, 3, 1
"""Number of machines in the fleet. BAD of them are slow from the start, BAD_LATER become slow in the first
runs.
"""
RUNS, COUNTED = 16, 8
"""Number of job runs on a fleet. Only the results of the last COUNTED runs are compared."""
JOB = Job(stages=2, replicas=16, per_node=2, seconds=20.0, work=0.1, last_stage=1.2)
NODES = JOB.size // JOB.per_node
ENOUGH = 8
"""Number of the first window of an incarnation in which accusations of other rules count."""
SWEEP_MINUTES, RUN_MINUTES = 240.0, 30.0
"""Minutes of the sweep before the first run, and minutes of each run."""
_KINDS = ("slow", "slow", "thermal", "pcie", "hog")
"""Kinds of machine faults to choose from. A slow data loader is missing because it is a fault of a job."""
POLICY = {
    "onJoin": "Gate",
    "sweeps": {"atOncePercent": 15},
    "budgets": {"fleetPercentPerHour": 10, "quarantinedPercent": 25, "poolPercent": 10, "jobInterval": "10m"},
}


@dataclass(frozen=True)
class ArmResult:
    """Throughput and lost machines of one arm: one way to guard the fleet."""

    step_seconds: tuple[float, ...]
    """Median seconds of a step in each run."""
    steps_per_hour: float
    """Steps per hour in the last COUNTED runs."""
    healthy_removed: int
    """Number of healthy machines that were taken out of service."""


def faults(seed: int) -> tuple[HardwareFault, ...]:
    """Return the faults of the fleet with this seed."""
    rng = random.Random(seed)
    bad = rng.sample(range(MACHINES), BAD + BAD_LATER)
    found = []
    for at, number in enumerate(bad):
        begins = 0.0 if at < BAD else SWEEP_MINUTES + RUN_MINUTES * (at - BAD) + 8
        size = rng.uniform(0.1, 1.4)
        found.append(HardwareFault(rng.choice(_KINDS), (number,), size, begins))
    return tuple(found)


def guarded(seed: int, **policy: Any) -> ArmResult:
    """Run the fleet with Convoy's guard. Fields in `policy` replace those of the GuardPolicy."""
    whole = POLICY | policy
    setup = Setup(faults(seed), JOB, spares=MACHINES - NODES, new_hardware=True, policy=whole, every=120.0)
    world, rng = GuardedFleet(setup, seed), _placement_rng(seed)
    world.run(SWEEP_MINUTES * 60, 300.0)
    step_seconds: list[list[float]] = []
    for number in range(RUNS):
        training = world.launch(sorted(rng.sample(world.free(NODES), NODES)), seed * 100 + number)
        world.run_with_job(RUN_MINUTES)
        step_seconds.append([wall for _, wall in training.steps])
        world.finish()
        world.run(60.0, 60.0)
    bad = {f"hw{number}" for fault in setup.faults for number in fault.where}
    return _arm_result(step_seconds, len(set(world.drained) - bad))


def unguarded(seed: int, make: Callable[[], Detector] | None = None, no_faults: bool = False) -> ArmResult:
    """Run the fleet without Convoy.

    `make` returns a new detector for each incarnation. While there are spare nodes, the nodes that it
    accuses are cordoned. With `no_faults` all machines are healthy.
    """
    fleet_faults, rng, cordoned = (
        FleetFaults(() if no_faults else faults(seed)),
        _placement_rng(seed),
        set[int](),
    )
    step_seconds = []
    for number in range(RUNS):
        free = [one for one in range(MACHINES) if one not in cordoned]
        run = _Run(
            fleet_faults,
            sorted(rng.sample(free, NODES)),
            SWEEP_MINUTES + number * (RUN_MINUTES + 1),
            cordoned,
        )
        while run.seconds < RUN_MINUTES * 60:
            run.incarnation((seed * 100 + number) * 1000 + len(cordoned), make() if make else None)
        step_seconds.append(run.step_seconds)
    bad = {number for fault in fleet_faults.faults for number in fault.where}
    return _arm_result(step_seconds, len(cordoned - bad))


class _Run:
    """A run of a job without Convoy."""

    def __init__(
        self, fleet_faults: FleetFaults, nodes: list[int], begins: float, cordoned: set[int]
    ) -> None:
        self.seconds = 0.0
        self.step_seconds: list[float] = []
        self._fleet_faults, self._nodes, self._begins, self._cordoned = fleet_faults, nodes, begins, cordoned
        self._ages: dict[int, int] = {}

    def incarnation(self, seed: int, detector: Detector | None) -> None:
        """Run one incarnation of the job, until a node is replaced or RUN_MINUTES of the run have passed."""
        faults: list[Fault] = []
        for window, table in enumerate(play(JOB, faults, 1 << 40, seed), start=1):
            self.step_seconds.append(float(table.wall.max()))
            self.seconds += self.step_seconds[-1]
            if self.seconds >= RUN_MINUTES * 60:
                return
            accused = detector(table) if detector is not None else set[int]()
            if window >= ENOUGH and self._replaced({self._nodes[rank // JOB.per_node] for rank in accused}):
                self.seconds += RESTART_SECONDS
                return
            minute = self._begins + self.seconds / 60
            # play() reads `faults` again before it makes each table, so these faults apply from the next
            # table on.
            faults[:] = self._fleet_faults.of_job(JOB, self._nodes, minute, window + 1, self._ages)

    def _replaced(self, accused: set[int]) -> bool:
        """Cordon the accused nodes and replace each by a spare. Return True if any node was replaced."""
        before = len(self._cordoned)
        for one in sorted(accused):
            in_use = {*self._cordoned, *self._nodes}
            spare = next((other for other in range(MACHINES) if other not in in_use), None)
            if spare is not None:
                self._cordoned.add(one)
                self._nodes = [spare if other == one else other for other in self._nodes]
        return len(self._cordoned) > before


def _placement_rng(seed: int) -> random.Random:
    return random.Random(seed + 1)


def _arm_result(step_seconds: list[list[float]], healthy_removed: int) -> ArmResult:
    counted = step_seconds[-COUNTED:]
    hours = COUNTED * RUN_MINUTES / 60
    middles = tuple(statistics.median(one) for one in step_seconds)
    return ArmResult(middles, sum(map(len, counted)) / hours, healthy_removed)


NO_FAULTS = "no machine bad"
ARMS: dict[str, Callable[[int], ArmResult]] = {
    "Convoy": guarded,
    "no guard": unguarded,
    NO_FAULTS: lambda seed: unguarded(seed, no_faults=True),
    "min-reference 0.75, acted on": lambda seed: unguarded(seed, nvrx),
    "Convoy without its loss rule": lambda seed: guarded(seed, drain={"swapCost": "1s"}),
    "Convoy without sweeps": lambda seed: guarded(seed, onJoin="Accept", sweeps=None),
}


def bench(seeds: int, figures: Figures) -> None:
    """Run all arms with the same seeds, and add their rows."""
    progress = Progress()
    count = min(seeds, MAX_SEEDS)
    found: dict[str, list[ArmResult]] = {arm: [] for arm in ARMS}
    tasks = [(arm, seed) for seed in range(FIRST_SEED, FIRST_SEED + count) for arm in ARMS]
    with ProcessPoolExecutor(machine.cores()) as pool:
        for (arm, _), result in zip(tasks, pool.map(_run_task, tasks), strict=True):
            found[arm].append(result)
            progress.report(f"{sum(map(len, found.values()))} of {len(tasks)} fleets")
    add_rows(found, figures)


def _run_task(task: tuple[str, int]) -> ArmResult:
    arm, seed = task
    return ARMS[arm](seed)


def add_rows(found: dict[str, list[ArmResult]], figures: Figures) -> None:
    """Add the rows of all arms: the throughput in comparison with no guard, the variation between runs, and
    the healthy machines that were taken out of service.
    """
    for arm, results in found.items():
        ours = arm == "Convoy"
        if arm != "no guard":
            gains = [
                one.steps_per_hour / none.steps_per_hour
                for one, none in zip(results, found["no guard"], strict=True)
            ]
            name = f"bad fleet, {arm}: throughput against no guard"
            target = 1.5 if ours else None
            metric = Metric(
                name, "times", target, kind="simulated", higher_is_better=True, spread=mean_interval(gains)
            )
            figures.add(metric, statistics.fmean(gains))
            _add_recovered_share(arm, found, figures)
        spreads = [_variation(one.step_seconds[-COUNTED:]) for one in results]
        name = f"bad fleet, {arm}: steps of one run to another's"
        baseline = "bad fleet, no guard: steps of one run to another's" if ours else ""
        metric = Metric(
            name,
            "coefficient of variation",
            0.01 if ours else None,
            baseline,
            "simulated",
            spread=mean_interval(spreads),
        )
        figures.add(metric, statistics.fmean(spreads))
        healthy_removed = [float(one.healthy_removed) for one in results]
        name = f"bad fleet, {arm}: healthy nodes taken out of service"
        figures.add(
            Metric(
                name,
                "nodes a season",
                0 if ours else None,
                kind="simulated",
                spread=mean_interval(healthy_removed),
            ),
            statistics.fmean(healthy_removed),
        )


def _add_recovered_share(arm: str, found: dict[str, list[ArmResult]], figures: Figures) -> None:
    """Add the row of the throughput that an arm recovers.

    The value is a fraction of the throughput that slow machines cost an unguarded fleet. 1 means that the
    arm recovers all of it.
    """
    if arm == NO_FAULTS:
        return
    rows = zip(found[arm], found["no guard"], found[NO_FAULTS], strict=True)
    shares = [
        (one.steps_per_hour - none.steps_per_hour) / (no_faults.steps_per_hour - none.steps_per_hour)
        for one, none, no_faults in rows
    ]
    name = f"bad fleet, {arm}: of what bad machines cost, won back"
    metric = Metric(name, "share", kind="simulated", higher_is_better=True, spread=mean_interval(shares))
    figures.add(metric, statistics.fmean(shares))


def _variation(values: tuple[float, ...]) -> float:
    return statistics.stdev(values) / statistics.fmean(values)
