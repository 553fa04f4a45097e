"""Synthetic jobs with known faults: is the cause right, are the culprits, and what does a false verdict cost?

Parameters were frozen on seeds 0 to 9; what is told comes from seeds from 10 on.
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.faults import KINDS, Fault
from convoy_controllers.guard.findings import Finding
from convoy_controllers.guard.state import begin
from convoy_controllers.guard.synthetic import Job, play
from e2e.bench.figures import Figures, Metric
from e2e.cluster import machine
from e2e.cluster.progress import Progress

FIRST_SEED = 10
ONSET, WINDOWS = 25, 60
SECONDS = 1.0
"""Of a window: what node-hours are counted by."""


@dataclass(frozen=True)
class Life:
    """One job with one fault or none, and what was said of it."""

    scenario: str
    cause_right: bool
    first_right: bool
    """The culprits first accused are the right ones."""
    named: int
    """True culprits with a persistent verdict at the end."""
    culprits: int
    false: int
    """Persistent verdicts on healthy ranks' nodes."""
    node_hours: float


def scenarios(rng: np.random.Generator) -> dict[str, tuple[Job, list[Fault]]]:
    """By name; jobs of 64 to 256 ranks, whose culprits and sizes are drawn."""
    replicas = int(rng.choice([16, 32, 64]))
    plain = Job(stages=4, replicas=replicas, work=float(rng.choice([0.0, 0.15])))
    lanes = Job(stages=4, replicas=replicas // 2, lanes=2)
    nodes, racks = plain.size // plain.per_node, lanes.size // lanes.per_node // lanes.per_rack
    rank, node, rack = int(rng.integers(plain.size)), int(rng.integers(nodes)), int(rng.integers(racks))
    size, traffic = float(rng.uniform(0.08, 0.3)), float(rng.uniform(0.3, 1.0))

    def one(kind: str, *where: int, by: float = size) -> list[Fault]:
        return [Fault(kind, where, by, ONSET)]

    found = {
        "calm": (plain, []),
        "slow": (plain, one("slow", rank)),
        "two in one column": (plain, one("slow", rank, (rank + replicas) % plain.size)),
        "thermal": (plain, one("thermal", rank, by=2 * size)),
        "nic": (lanes, one("nic", node, by=traffic)),
        "storage": (plain, one("storage")),
        "loader": (plain, one("loader", rank)),
        "hog": (plain, one("hog", node)),
        "pauses": (plain, one("pauses", by=0.3)),
        "checkpoint": (plain, one("checkpoint", by=2.0)),
        "sequences": (Job(stages=4, replicas=replicas, work=0.2), []),
        "cap": (plain, one("cap")),
        "bursts": (plain, one("bursts", rank)),
        "lost telemetry": (plain, [*one("slow", rank), Fault("lost telemetry", (), 0.05)]),
    }
    if racks > 2:
        found["hot rack"] = (lanes, one("hot rack", rack))
    return found


_CAUSES = {
    "calm": "",
    "two in one column": "Compute",
    "lost telemetry": "Compute",
    "bursts": "",
}
_TRANSIENT = ("bursts",)
_SLIGHT = ("pauses",)
"""So rare that nothing need be told; but nothing else may be."""


def live(scenario: str, seed: int) -> Life:
    """Plays one job."""
    job, faults = scenarios(np.random.default_rng(seed))[scenario]
    layout, state = job.layout(), begin(job.layout())
    cause = _CAUSES.get(scenario, KINDS.get(scenario, ("", ""))[0])
    culprits = _culprits(scenario, faults, layout.node)
    first: set[int] | None = None
    findings: tuple[Finding, ...] = ()
    for table in play(job, faults, WINDOWS, seed):
        state, report = advance(state, table)
        findings = report.findings
        accused = {rank for finding in findings for rank in finding.ranks}
        if first is None and accused:
            first = accused
    # Work that differs costs something besides in every job that has it.
    told = {
        one.cause.value
        for one in findings
        if one.cause != "Imbalance" or not job.work or cause == "Imbalance"
    }
    persistent = {rank for one in findings if one.persistent for rank in one.ranks}
    true = set() if scenario in _TRANSIENT else culprits
    wrong = {int(node) for node in layout.node[sorted(persistent - true)]}
    return Life(
        scenario=scenario,
        cause_right=scenario in _TRANSIENT or told == ({cause} - {""}) or (not told and scenario in _SLIGHT),
        first_right=not culprits or (first is not None and first <= culprits),
        named=len(persistent & true),
        culprits=len(true),
        false=len(wrong),
        node_hours=len(np.unique(layout.node)) * WINDOWS * SECONDS / 3600,
    )


def _culprits(scenario: str, faults: list[Fault], node: np.ndarray) -> set[int]:
    for fault in faults:
        match KINDS[fault.kind][1]:
            case "ranks":
                return set(fault.where)
            case "nodes":
                return set(np.nonzero(np.isin(node, fault.where))[0].tolist())
    return set()


def bench(seeds: int, figures: Figures) -> None:
    """Plays all scenarios with that many seeds."""
    progress, lives = Progress(), list[Life]()
    names = [*scenarios(np.random.default_rng(0)), "hot rack"]
    tasks = [
        (name, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        for name in dict.fromkeys(names)
        if name in scenarios(np.random.default_rng(seed))
    ]
    with ProcessPoolExecutor(machine.cores()) as pool:
        for life in pool.map(_live, tasks, chunksize=4):
            lives.append(life)
            if len(lives) % 100 == 0:
                progress.say(f"{len(lives)} of {len(tasks)} jobs")
    _tell(lives, figures)


def _live(task: tuple[str, int]) -> Life:
    return live(*task)


def _tell(lives: list[Life], figures: Figures) -> None:
    with_culprits = [life for life in lives if life.culprits]
    named, false = sum(life.named for life in lives), sum(life.false for life in lives)
    hours = sum(life.node_hours for life in lives)
    add = figures.add
    add(
        _least("jobs with the right cause and no other", "share of jobs", 0.98),
        _mean([life.cause_right for life in lives]),
    )
    for name in sorted({life.scenario for life in lives}):
        mine = [life.cause_right for life in lives if life.scenario == name]
        add(_least(f"{name}: the right cause and no other", "share of jobs"), _mean(mine))
    first = [life.first_right for life in with_culprits]
    add(_least("jobs whose first accused are culprits", "share of jobs", 0.98), _mean(first))
    add(
        _least("persistent verdicts that are right", "share", 0.99),
        named / (named + false) if named else None,
    )
    add(
        _least("culprits with a persistent verdict", "share", 0.95),
        named / sum(life.culprits for life in lives),
    )
    add(Metric("nodes with a false persistent verdict", "nodes", kind="simulated"), false)
    add(Metric("node-hours of these jobs", "hours", kind="simulated"), hours)
    # Poisson, 95 %, one-sided: what none in so many hours allows to say.
    add(
        Metric("false verdicts, upper bound", "1/node-hour", 1 / 20_000, kind="simulated"),
        _upper(false) / hours,
    )


def _upper(count: int) -> float:
    return 3.0 if not count else count + 1.645 * math.sqrt(count) + 1.9


def _mean(values: list[bool]) -> float:
    return sum(values) / len(values)


def _least(name: str, unit: str, target: float | None = None) -> Metric:
    return Metric(name, unit, target, kind="simulated", least=True)
