"""Plays storms: half of a fleet is accused at once.

The bench counts the nodes that are drained in error and the nodes that never return to service.

- Slow half: half of a job's nodes become slow together, as by a power cap. This storm also simulates the job
  and the detector that accuses its nodes.
- False accusations: half of the fleet is accused without cause while other nodes are in repair. Half of the
  reconciles are preceded by an extra reconcile that crashes.
- Crashes: one node goes through all states. Every second reconcile crashes after a fixed number of writes.
"""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from convoy_controllers.guard.faults import Fault
from convoy_controllers.guard.synthetic import play
from convoy_controllers.simulate.fleet import SimulatedFleet
from convoy_controllers.simulate.guard.guarded_fleet import SIXTEEN_NODES, GuardedFleet, Setup
from convoy_controllers.simulate.guard.hardware_faults import FleetFaults, HardwareFault
from convoy_controllers.simulate.violation import InvariantViolation
from convoy_crds.guardpolicy import BreakerState
from convoy_crds.nodehealth import State
from convoy_crds.terms import TAINTS
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.guard.detectors import nvrx
from e2e.bench.guard.intervals import count_with_bound
from e2e.cluster import machine
from e2e.cluster.progress import Progress

FIRST_SEED = 10
NODES, RECOVERING = 24, 2
SLOW_HALF_MINUTES = 40.0
"""Minutes of a storm with slow nodes."""
FALSE_ACCUSATION_HOURS = 6.0
"""Hours of a storm of false accusations."""
WRITES = range(6)
"""Numbers of API writes after which a reconcile crashes, one storm for each."""
_BACK = (State.UNVERIFIED, State.QUALIFIED, State.PROBATION, State.CONDEMNED)
_POLICY = {
    "mode": "Act",
    "repair": {"ladder": [{"action": "Reset", "owner": "agent", "timeout": "2h"}]},
    "budgets": {"poolPercent": 10, "fleetPercentPerHour": 10},
}


@dataclass(frozen=True)
class Storm:
    """Counts of one storm."""

    kind: str
    drains: int = 0
    """Number of drains that began during the storm."""
    recovering: int = 0
    """Number of nodes that were returning to service when the storm began."""
    lost: int = 0
    """Number of recovering nodes that are not back in service at the end, about a day later."""
    violation: str = ""
    """Message of the violated guarantee about budgets, breaker or taints; empty if none was violated."""
    leftover_taints: int = 0
    """Number of nodes in service that still have one of Convoy's taints at the end."""
    accused_by_nvrx: int = 0
    """Number of nodes that the rule of NVIDIA's Resiliency Extension accuses."""
    opened: bool = False


def play_slow_half(seed: int) -> Storm:
    """Play a storm in which half of a job's nodes become slow at once. It also simulates the job and the
    detector.
    """
    chance = random.Random(seed)
    half = tuple(sorted(chance.sample(range(16), 8)))
    fault = HardwareFault("slow", half, chance.uniform(0.3, 0.6), ranks=(0, 1))
    fleet = GuardedFleet(Setup((fault,)), seed)
    fleet.run_with_job(SLOW_HALF_MINUTES)
    detector, accused, faults = nvrx(), set[int](), list[Fault]()
    for window, table in enumerate(play(SIXTEEN_NODES, faults, 40, seed), start=1):
        faults[:] = FleetFaults((fault,)).of_job(SIXTEEN_NODES, list(range(16)), 60.0, window, {})
        accused |= {rank // SIXTEEN_NODES.per_node for rank in detector(table)}
    return Storm(
        "slow half",
        len(fleet.drained),
        accused_by_nvrx=len(accused),
        leftover_taints=_count_leftover_taints(fleet),
    )


def play_false_accusations(seed: int) -> Storm:
    """Play a storm in which half of the fleet is falsely accused while some nodes are in repair."""
    chance = random.Random(seed)
    fleet = SimulatedFleet(_POLICY, NODES, seed=seed)
    names = list(fleet.hardware)
    recovering = chance.sample(names, RECOVERING)
    violation, opened, before = "", False, 0
    try:
        for name in recovering:
            one = fleet.hardware[name]
            one.job, one.bad, one.accused_since = f"ns/{name}", True, fleet.kernel.time
        while any(fleet.state(name) not in (State.REPAIRING, State.PROBATION) for name in recovering):
            fleet.run(60, every=60)
        for name in recovering:
            fleet.hardware[name].accused_since = None
        before = len(fleet.drains)
        for name in chance.sample([name for name in names if name not in recovering], NODES // 2):
            one = fleet.hardware[name]
            one.job, one.accused_since = "ns/wide", fleet.kernel.time
            one.bad = chance.random() < 0.3
        while _continue_storm(fleet, chance, FALSE_ACCUSATION_HOURS):
            opened |= fleet.guard_policy().status.breaker.state is BreakerState.OPEN
    except InvariantViolation as error:
        violation = str(error)
    drains = len(fleet.drains) - before
    for one in fleet.hardware.values():
        one.accused_since, one.bad = None, False
    if not violation:
        fleet.run(26 * 3600, every=900)
    lost = sum(1 for name in recovering if fleet.state(name) not in _BACK)
    return Storm(
        "false accusations", drains, RECOVERING, lost, violation, _count_leftover_taints(fleet), opened=opened
    )


def _continue_storm(fleet: SimulatedFleet, chance: random.Random, hours: float) -> bool:
    """Run the storm for two more minutes. Return False if `hours` have passed since the first accusation."""
    if chance.random() < 0.5:
        fleet.reconcile(crash_after=chance.randrange(14))
    fleet.run(120, every=120)
    began = min(one.accused_since for one in fleet.hardware.values() if one.accused_since is not None)
    return (fleet.kernel.time - began).total_seconds() < hours * 3600


def play_operator_crashes(writes: int) -> Storm:
    """Take a node through all states while every second reconcile crashes after `writes` API writes."""
    fleet, violation = SimulatedFleet(_POLICY, 3, seed=writes), ""
    one = fleet.hardware["hw0"]
    one.job, one.bad, one.accused_since = "ns/j", True, fleet.kernel.time
    states: Counter[State] = Counter()
    try:
        for number in range(60 * 30):
            fleet.kernel.run(fleet.kernel.now + 60)
            fleet.reconcile(crash_after=writes if number % 2 == 0 else None)
            states[fleet.state("hw0")] += 1
            if fleet.state("hw0") is State.PROBATION:
                one.accused_since = None
    except InvariantViolation as error:
        violation = str(error)
    back = fleet.state("hw0") is State.QUALIFIED and State.DRAINING in states and State.REPAIRING in states
    return Storm("crashes", 0, 1, 0 if back else 1, violation, _count_leftover_taints(fleet))


def _count_leftover_taints(fleet: SimulatedFleet) -> int:
    """Return the number of nodes in service, outside a sweep, that have one of Convoy's taints."""
    in_service = (State.UNVERIFIED, State.QUALIFIED, State.PROBATION)
    return sum(
        any(taint["key"] in TAINTS for taint in one.taints)
        for name, one in fleet.hardware.items()
        if fleet.state(name) in in_service and fleet.health(name).status.sweep is None
    )


def bench(seeds: int, figures: Figures) -> None:
    """Play all storms and add the rows of their counts."""
    progress = Progress()
    tasks = [
        (kind, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        for kind in ("slow half", "false accusations")
    ]
    tasks += [("crashes", writes) for writes in WRITES]
    with ProcessPoolExecutor(machine.cores()) as pool:
        storms = list(pool.map(_storm, tasks))
    progress.report(f"{len(storms)} storms are finished")
    add_rows(storms, figures)


_KINDS = {
    "slow half": play_slow_half,
    "false accusations": play_false_accusations,
    "crashes": play_operator_crashes,
}


def _storm(task: tuple[str, int]) -> Storm:
    kind, number = task
    return _KINDS[kind](number)


def add_rows(storms: list[Storm], figures: Figures) -> None:
    """Add the rows of the counts of all storms."""
    slow_half = [one for one in storms if one.kind == "slow half"]
    accused_wrongly = [one for one in storms if one.kind == "false accusations"]

    def add(
        name: str, unit: str, counts: list[int], of: int, target: float | None = 0, base: str = ""
    ) -> None:
        spread = count_with_bound(sum(counts), of)
        figures.add(Metric(f"storm: {name}", unit, target, base, "simulated", spread=spread), sum(counts))

    rule = "half of a job slow at once, nodes that min-reference 0.75 accuses"
    add(rule, "nodes", [one.accused_by_nvrx for one in slow_half], len(slow_half) * 8, None)
    add(
        "half of a job slow at once, drains",
        "nodes",
        [one.drains for one in slow_half],
        len(slow_half),
        base=f"storm: {rule}",
    )
    add(
        "half of a fleet accused, drains while the breaker may be open",
        "nodes",
        [one.drains for one in accused_wrongly],
        len(accused_wrongly),
    )
    add(
        "half of a fleet accused, breakers that did not open",
        "storms",
        [int(not one.opened) for one in accused_wrongly],
        len(accused_wrongly),
    )
    recovering = sum(one.recovering for one in storms)
    add("nodes on their way back that did not return", "nodes", [one.lost for one in storms], recovering)
    add(
        "budgets, breakers and taints not as promised",
        "storms",
        [int(bool(one.violation)) for one in storms],
        len(storms),
    )
    add("taints left on nodes in service", "nodes", [one.leftover_taints for one in storms], len(storms))
