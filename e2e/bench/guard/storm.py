"""Half of a fleet is accused at once, for what all of it shares: who is drained, and who does not return?

First end to end: half of a job's nodes are slowed down together, as by a power cap. Then as if the detector
had been deceived: half of the fleet is accused while other nodes are in repair, and the operator dies at
random within every second look. Last, it dies after each number of writes again and again while a node goes
through everything.
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
MINUTES = 40.0
"""Length of a storm that a job sees."""
HOURS = 6.0
"""Length of a storm that the detector is deceived into."""
WRITES = range(6)
"""Numbers of writes after which the operator dies."""
_BACK = (State.UNVERIFIED, State.QUALIFIED, State.PROBATION, State.CONDEMNED)
_POLICY = {
    "mode": "Act",
    "repair": {"ladder": [{"action": "Reset", "owner": "agent", "timeout": "2h"}]},
    "budgets": {"poolPercent": 10, "fleetPercentPerHour": 10},
}


@dataclass(frozen=True)
class Storm:
    """The outcome of one storm."""

    kind: str
    drains: int = 0
    """Drains that began while it lasted."""
    recovering: int = 0
    """Nodes that were on their way back as it began."""
    lost: int = 0
    """Recovering nodes that were not back in service within the storm and a day."""
    broken: str = ""
    """A promise that was not kept: budgets, breaker or taints."""
    leaked: int = 0
    """Nodes in service that carry a taint of ours at the end."""
    others: int = 0
    """Drains under the rule of others."""
    opened: bool = False


def seen(seed: int) -> Storm:
    """End to end: half of a job's nodes are slow at once."""
    chance = random.Random(seed)
    half = tuple(sorted(chance.sample(range(16), 8)))
    fault = HardwareFault("slow", half, chance.uniform(0.3, 0.6), ranks=(0, 1))
    world = GuardedFleet(Setup((fault,)), seed)
    world.run_with_job(MINUTES)
    detector, accused, faults = nvrx(), set[int](), list[Fault]()
    for window, table in enumerate(play(SIXTEEN_NODES, faults, 40, seed), start=1):
        faults[:] = FleetFaults((fault,)).of_job(SIXTEEN_NODES, list(range(16)), 60.0, window, {})
        accused |= {rank // SIXTEEN_NODES.per_node for rank in detector(table)}
    return Storm("seen", len(world.drained), others=len(accused), leaked=_leaked(world))


def deceived(seed: int) -> Storm:
    """The detector accuses half of the fleet while some are repaired; the operator dies now and then."""
    chance = random.Random(seed)
    world = SimulatedFleet(_POLICY, NODES, seed=seed)
    names = list(world.hardware)
    recovering = chance.sample(names, RECOVERING)
    broken, opened, before = "", False, 0
    try:
        for name in recovering:
            one = world.hardware[name]
            one.job, one.bad, one.accused_since = f"ns/{name}", True, world.kernel.time
        while any(world.state(name) not in (State.REPAIRING, State.PROBATION) for name in recovering):
            world.run(60, every=60)
        for name in recovering:
            world.hardware[name].accused_since = None
        before = len(world.drains)
        for name in chance.sample([name for name in names if name not in recovering], NODES // 2):
            one = world.hardware[name]
            one.job, one.accused_since = "ns/wide", world.kernel.time
            one.bad = chance.random() < 0.3
        while _storms(world, chance, HOURS):
            opened |= world.guard_policy().status.breaker.state is BreakerState.OPEN
    except InvariantViolation as error:
        broken = str(error)
    drains = len(world.drains) - before
    for one in world.hardware.values():
        one.accused_since, one.bad = None, False
    if not broken:
        world.run(26 * 3600, every=900)
    lost = sum(1 for name in recovering if world.state(name) not in _BACK)
    return Storm("deceived", drains, RECOVERING, lost, broken, _leaked(world), opened=opened)


def _storms(world: SimulatedFleet, chance: random.Random, hours: float) -> bool:
    """Two minutes of it; False at its end, which is counted from the first accusation."""
    if chance.random() < 0.5:
        world.reconcile(crash_after=chance.randrange(14))
    world.run(120, every=120)
    began = min(one.accused_since for one in world.hardware.values() if one.accused_since is not None)
    return (world.kernel.time - began).total_seconds() < hours * 3600


def dies(writes: int) -> Storm:
    """A node goes through everything, and the operator dies after so many writes of every second look."""
    world, broken = SimulatedFleet(_POLICY, 3, seed=writes), ""
    one = world.hardware["hw0"]
    one.job, one.bad, one.accused_since = "ns/j", True, world.kernel.time
    seen: Counter[State] = Counter()
    try:
        for number in range(60 * 30):
            world.kernel.run(world.kernel.now + 60)
            world.reconcile(crash_after=writes if number % 2 == 0 else None)
            seen[world.state("hw0")] += 1
            if world.state("hw0") is State.PROBATION:
                one.accused_since = None
    except InvariantViolation as error:
        broken = str(error)
    back = world.state("hw0") is State.QUALIFIED and State.DRAINING in seen and State.REPAIRING in seen
    return Storm("dies", 0, 1, 0 if back else 1, broken, _leaked(world))


def _leaked(world: SimulatedFleet) -> int:
    """Nodes that carry a taint of ours though they are in service; suspects and those under test apart."""
    in_service = (State.UNVERIFIED, State.QUALIFIED, State.PROBATION)
    return sum(
        any(taint["key"] in TAINTS for taint in one.taints)
        for name, one in world.hardware.items()
        if world.state(name) in in_service and world.health(name).status.sweep is None
    )


def bench(seeds: int, figures: Figures) -> None:
    """All of them."""
    progress = Progress()
    tasks = [(kind, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds) for kind in ("seen", "deceived")]
    tasks += [("dies", writes) for writes in WRITES]
    with ProcessPoolExecutor(machine.cores()) as pool:
        storms = list(pool.map(_storm, tasks))
    progress.report(f"{len(storms)} storms")
    add_rows(storms, figures)


_KINDS = {"seen": seen, "deceived": deceived, "dies": dies}


def _storm(task: tuple[str, int]) -> Storm:
    kind, number = task
    return _KINDS[kind](number)


def add_rows(storms: list[Storm], figures: Figures) -> None:
    """Rows."""
    whole = [one for one in storms if one.kind == "seen"]
    lied = [one for one in storms if one.kind == "deceived"]

    def add(
        name: str, unit: str, counts: list[int], of: int, target: float | None = 0, base: str = ""
    ) -> None:
        spread = count_with_bound(sum(counts), of)
        figures.add(Metric(f"storm: {name}", unit, target, base, "simulated", spread=spread), sum(counts))

    rule = "half of a job slow at once, nodes that min-reference 0.75 accuses"
    add(rule, "nodes", [one.others for one in whole], len(whole) * 8, None)
    add(
        "half of a job slow at once, drains",
        "nodes",
        [one.drains for one in whole],
        len(whole),
        base=f"storm: {rule}",
    )
    add(
        "half of a fleet accused, drains while the breaker may be open",
        "nodes",
        [one.drains for one in lied],
        len(lied),
    )
    add(
        "half of a fleet accused, breakers that did not open",
        "storms",
        [int(not one.opened) for one in lied],
        len(lied),
    )
    recovering = sum(one.recovering for one in storms)
    add("nodes on their way back that did not return", "nodes", [one.lost for one in storms], recovering)
    add(
        "budgets, breakers and taints not as promised",
        "storms",
        [int(bool(one.broken)) for one in storms],
        len(storms),
    )
    add("taints left on nodes in service", "nodes", [one.leaked for one in storms], len(storms))
