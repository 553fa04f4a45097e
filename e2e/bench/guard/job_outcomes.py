"""Plays one synthetic job, with one fault or none, and counts the nodes that each rule accuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from convoy_controllers.guard.channel_state import Rules
from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.faults import KINDS, Fault
from convoy_controllers.guard.findings import Finding
from convoy_controllers.guard.state import initial_state
from convoy_controllers.guard.synthetic import Job, play
from convoy_controllers.guard.telemetry import Layout
from e2e.bench.guard import detectors
from e2e.bench.guard.detectors import Detector

ONSET, WINDOWS = 25, 60
SECONDS = 1.0
"""Seconds of a telemetry window. Delays and node-hours are computed from numbers of windows."""
SETTLED = 8
"""Number of windows at the start of a job in which accusations of other rules do not count."""
LARGE = 1024
"""Maximum number of ranks for which other rules are evaluated. They take too long on larger jobs."""
SIZES = ((16, 0.35), (32, 0.3), (64, 0.2), (256, 0.1), (1024, 0.05))
"""Sizes of jobs: number of replicas, and probability of this size. With four stages, jobs have 64 to 4,096
ranks.
"""
CAUSES = {
    "calm": "",
    "two in one column": "Compute",
    "lost telemetry": "Compute",
    "bursts": "",
    "half as fast": "Compute",
}
"""Expected cause by scenario, for scenarios that are not named after a kind of fault. Empty if no cause is
expected.
"""
TRANSIENT = ("bursts",)
"""Scenarios whose fault is transient, so that a persistent verdict on any node is wrong."""
_SLIGHT = ("pauses",)
"""Scenarios in which each rank has the fault in only about 2 % of the steps. No finding at the end of the
job is also counted as right.
"""
_ARGUABLE = ("hot rack",)
"""Scenarios that the comparison of rules leaves out. In a hot rack, one may rightly accuse any node of the
rack.
"""
UNCONFIRMED = "no persistence"


@dataclass(frozen=True)
class Accused:
    """Counts of the nodes that a rule has accused during a job."""

    guilty: int
    """Number of accused nodes that host a culprit, which is a rank with a fault."""
    healthy: int


@dataclass(frozen=True)
class JobOutcome:
    """Verdicts of Convoy and of other rules on one job."""

    scenario: str
    seed: int
    ranks: int
    guilty: int
    """Number of nodes that host a culprit."""
    node_hours: float
    """Node-hours of the job, without the first windows, in which no verdict can be persistent yet."""
    cause_right: bool
    """True if the findings at the end of the job have the expected cause and no other cause."""
    first_right: bool
    """True if no rank was accused before the onset and the first accused ranks are culprits."""
    delay: float | None
    """Seconds from the onset to the first accusation of a culprit. None if no culprit was accused."""
    lasting: Accused
    """Counts of the nodes with a persistent verdict of any cause. Only persistent verdicts may lead to
    action.
    """
    others: dict[str, Accused] = field(default_factory=dict)
    """Counts of accused nodes by rule; empty if the rules cannot be compared on this job.

    Rules are compared on jobs without culprits and on jobs whose culprits compute slowly.
    """


def scenarios(rng: np.random.Generator) -> dict[str, tuple[Job, list[Fault]]]:
    """Return job and faults of each scenario by name. Culprits and sizes of faults are random."""
    replicas = int(rng.choice([size for size, _ in SIZES], p=[often for _, often in SIZES]))
    plain = Job(stages=4, replicas=replicas, work=float(rng.choice([0.0, 0.15])))
    lanes = Job(stages=4, replicas=replicas // 2, lanes=2)
    nodes, racks = plain.size // plain.per_node, lanes.size // lanes.per_node // lanes.per_rack
    rank, node, rack = int(rng.integers(plain.size)), int(rng.integers(nodes)), int(rng.integers(racks))
    size, traffic = float(rng.uniform(0.08, 0.3)), float(rng.uniform(0.3, 1.0))
    large = float(rng.uniform(0.5, 1.4))

    def one(kind: str, *where: int, by: float = size) -> list[Fault]:
        return [Fault(kind, where, by, ONSET)]

    found = {
        "calm": (plain, []),
        "slow": (plain, one("slow", rank)),
        "half as fast": (plain, one("slow", rank, by=large)),
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


def play_job(scenario: str, seed: int) -> JobOutcome:
    """Play one job and return the verdicts on it."""
    job, faults = scenarios(np.random.default_rng(seed))[scenario]
    layout, state = job.layout(), initial_state(job.layout())
    culprits = _culprits(faults, layout)
    rules = _rules(layout) if job.size <= LARGE else {}
    accused: dict[str, set[int]] = {name: set() for name in rules}
    ever_accused, persistent = set[int](), set[int]()
    first: set[int] | None = None
    early = False
    found_at: int | None = None
    findings: tuple[Finding, ...] = ()
    for window, table in enumerate(play(job, faults, WINDOWS, seed), start=1):
        state, report = advance(state, table)
        findings = report.findings
        now = {rank for one in findings for rank in one.ranks}
        first = now if first is None and now else first
        early |= window < ONSET and bool(now)
        found_at = window if found_at is None and window >= ONSET and now & culprits else found_at
        ever_accused |= now
        persistent |= {rank for one in findings if one.persistent for rank in one.ranks}
        for name, detector in rules.items():
            named = detector(table)
            accused[name] |= named if window > SETTLED else set()
    reported = _reported(findings, job, scenario)
    cause = CAUSES.get(scenario, KINDS.get(scenario, ("", ""))[0])
    right = scenario in TRANSIENT or reported == {cause} - {""} or (not reported and scenario in _SLIGHT)
    true = set() if scenario in TRANSIENT else culprits
    comparable = job.size <= LARGE and scenario not in _ARGUABLE
    comparable &= not culprits or KINDS[faults[0].kind][0] in ("Compute", "Thermal")
    return JobOutcome(
        scenario=scenario,
        seed=seed,
        ranks=job.size,
        guilty=len(_nodes(true, layout)),
        node_hours=len(np.unique(layout.node)) * (WINDOWS - Rules().lasting) * SECONDS / 3600,
        cause_right=right,
        first_right=not early and (not culprits or (first is not None and first <= culprits)),
        delay=(found_at - ONSET + 1) * SECONDS if found_at is not None else None,
        lasting=_accused(persistent, true, layout),
        others={
            name: _accused(ranks, true, layout)
            for name, ranks in {"": persistent, UNCONFIRMED: ever_accused, **accused}.items()
            if comparable
        },
    )


def _rules(layout: Layout) -> dict[str, Detector]:
    """Return the detectors to compare with Convoy's, by name.

    Convoy's detectors without one of its methods accuse only on persistent findings. Other rules accuse at
    once.
    """
    ours = {
        "no curve over stages": detectors.convoy(detectors.without_curve(layout), persistent=True),
        "no strata": detectors.convoy(detectors.without_strata(layout), persistent=True),
    }
    return ours | {name: make() for name, make in detectors.OTHERS.items()}


def _reported(findings: Iterable[Finding], job: Job, scenario: str) -> set[str]:
    """Return the causes of the findings.

    Imbalance is left out if the job's work is uneven and the scenario tests another fault.
    """
    plain = not job.work or scenario == "sequences"
    return {one.cause.value for one in findings if one.cause != "Imbalance" or plain}


def _accused(ranks: set[int], true: set[int], layout: Layout) -> Accused:
    accused, guilty = _nodes(ranks, layout), _nodes(true, layout)
    return Accused(len(accused & guilty), len(accused - guilty))


def _nodes(ranks: set[int], layout: Layout) -> set[int]:
    return set(layout.node[sorted(ranks)].tolist())


def _culprits(faults: list[Fault], layout: Layout) -> set[int]:
    for fault in faults:
        match KINDS[fault.kind][1]:
            case "ranks":
                return set(fault.where)
            case "nodes":
                return set(np.nonzero(np.isin(layout.node, fault.where))[0].tolist())
    return set()
