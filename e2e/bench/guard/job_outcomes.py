"""The verdicts of all rules on one synthetic job with one fault or none."""

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
"""Length of a window. Node-hours and delays are counted in windows."""
SETTLED = 8
"""Windows before the accusations of other rules count."""
LARGE = 1024
"""Most ranks for which other rules are evaluated. They would take too long on larger jobs."""
SIZES = ((16, 0.35), (32, 0.3), (64, 0.2), (256, 0.1), (1024, 0.05))
"""Replicas of each of four stages, and their probabilities: jobs have 64 to 4,096 ranks."""
CAUSES = {
    "calm": "",
    "two in one column": "Compute",
    "lost telemetry": "Compute",
    "bursts": "",
    "half as fast": "Compute",
}
"""Expected causes of the scenarios that are not named after their fault."""
TRANSIENT = ("bursts",)
"""Scenarios with a transient fault. A lasting verdict on anyone is wrong in them."""
_SLIGHT = ("pauses",)
"""Scenarios with a fault so rare that a job without findings is right, too."""
_ARGUABLE = ("hot rack",)
"""Scenarios left out of the comparison of rules: in a hot rack, accusing any node of the rack is
defensible.
"""
UNCONFIRMED = "no persistence"


@dataclass(frozen=True)
class Accused:
    """Numbers of nodes that a rule has accused at any time."""

    guilty: int
    """Accused nodes with a culprit."""
    healthy: int


@dataclass(frozen=True)
class JobOutcome:
    """The outcome of one job."""

    scenario: str
    seed: int
    ranks: int
    guilty: int
    """Number of nodes with culprits."""
    node_hours: float
    """Node-hours in which a lasting verdict was possible."""
    cause_right: bool
    """True if the findings at the end have the expected cause and no other."""
    first_right: bool
    """True if the first accused ranks are culprits and nobody was accused before the onset."""
    delay: float | None
    """Seconds from the onset to the first accusation of a culprit. None if there was none."""
    lasting: Accused
    """Nodes with a lasting verdict of any cause. Only such verdicts may lead to action."""
    others: dict[str, Accused] = field(default_factory=dict)
    """Nodes accused by each rule, in jobs without culprits or with culprits that compute slowly."""


def scenarios(rng: np.random.Generator) -> dict[str, tuple[Job, list[Fault]]]:
    """Return the scenarios by name. Culprits and sizes are random."""
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
    """Play one job and return its outcome."""
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
    """Return ablations, which accuse only on persistent findings, and others' rules, which accuse at once."""
    ours = {
        "no curve over stages": detectors.convoy(detectors.without_curve(layout), persistent=True),
        "no strata": detectors.convoy(detectors.without_strata(layout), persistent=True),
    }
    return ours | {name: make() for name, make in detectors.OTHERS.items()}


def _reported(findings: Iterable[Finding], job: Job, scenario: str) -> set[str]:
    """Return the reported causes.

    Leave out Imbalance if the job's work is uneven and the scenario is about another fault.
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
