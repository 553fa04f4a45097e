"""Replays public traces. The first replay is unmodified. Each further replay slows down another healthy
rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.findings import Cause
from convoy_controllers.guard.state import State, initial_state
from convoy_controllers.testing.traces import Trace, read
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.guard import detectors
from e2e.bench.guard.detectors import Detector
from e2e.cluster import files

FOLDER = files.CHECKOUT / "tests" / "data" / "straggler"
ONSET, WITHIN = 20, 12
"""Step after which a rank is slowed, and number of slowed steps that are replayed."""
_CASES = (
    ("AR", 1.05, 4, None),
    ("AR", 1.1, 4, 0.99),
    ("SE", 1.05, 12, None),
    ("SE", 1.1, 12, 0.9),
    ("SE", 1.2, 4, 1.0),
)
"""Cases: trace, slowdown factor, maximum steps until the slow rank is accused, and target.

The target is the minimum fraction of slowed ranks that the detector accuses in time; None for no target.
"""


def bench(figures: Figures) -> None:
    """Replay the traces unmodified and with slowed ranks, and add the rows."""
    unmodified(figures)
    with_slowed_ranks(figures)


def unmodified(figures: Figures) -> None:
    """Add rows of the ranks accused in the trace AR, where one worker is slow, and in SE, where none is."""
    for name, culprits in (("AR", {0}), ("SE", set[int]())):
        trace = read(FOLDER / f"{name}.npz")
        state, causes, accused, first = initial_state(trace.layout), set[Cause](), set[int](), None
        for table in trace.tables():
            state, report = advance(state, table)
            causes |= {finding.cause for finding in report.findings}
            accused |= {rank for finding in report.findings for rank in finding.ranks}
            if first is None and accused:
                first = table.first
        if culprits:
            figures.add(_metric(f"{name}: the slow worker is named at", "steps", 4), first)
        right = {Cause.COMPUTE} if culprits else {Cause.IMBALANCE}
        figures.add(_metric(f"{name}: causes told that are not the case", "causes", 0), len(causes ^ right))
        figures.add(_metric(f"{name}: healthy ranks accused", "ranks", 0), len(accused - culprits))
        rules = {
            "no strata": detectors.convoy(detectors.without_strata(trace.layout)),
            "no curve over stages": detectors.convoy(detectors.without_curve(trace.layout)),
        } | {rule: make() for rule, make in detectors.OTHERS.items()}
        for rule, detector in rules.items():
            found: set[int] = set().union(*(detector(table) for table in trace.tables()))
            figures.add(_metric(f"{name}, {rule}: healthy ranks accused", "ranks"), len(found - culprits))
            figures.add(_metric(f"{name}, {rule}: culprits missed", "ranks"), len(culprits - found))


def with_slowed_ranks(figures: Figures) -> None:
    """Replay the traces once for each rank, with this rank slowed from step ONSET on. Add rows with the
    fraction of slowed ranks that are accused in time.
    """
    for name, factor, within, target in _CASES:
        trace = read(FOLDER / f"{name}.npz")
        trace = trace.without_slowness(0, 0) if name == "AR" else trace
        words = f"{name}, one rank {factor - 1:.0%} slower"
        for rule, make_detector in _detectors(trace).items():
            score = _score(trace, factor, make_detector)
            goal = target if not rule else None
            label = f"{words}{', ' + rule if rule else ''}: named within {within} steps"
            share = sum(delay is not None and delay <= within for delay in score.delays) / len(score.delays)
            figures.add(Metric(label, "share of ranks", goal, higher_is_better=True), share)
            figures.add(_metric(f"{label}, others accused", "ranks", None if rule else 0), score.others)


@dataclass(frozen=True)
class _Score:
    delays: list[int | None]
    """Number of steps from the onset to the accusation, for each rank. The step of the onset counts as 1."""
    others: int


def _detectors(trace: Trace) -> dict[str, Callable[[], Detector]]:
    """Return, by rule, a function that makes a detector that has already processed the steps before the
    onset.
    """

    def warmed_up(state: State) -> Callable[[], Detector]:
        for table in trace.tables()[:ONSET]:
            state, _ = advance(state, table)
        return lambda: detectors.convoy(state)

    def rule(make: Callable[[], Detector]) -> Callable[[], Detector]:
        def fresh() -> Detector:
            detector = make()
            for table in trace.tables()[ONSET - 8 : ONSET]:
                detector(table)
            return detector

        return fresh

    ours = {
        "": warmed_up(initial_state(trace.layout)),
        "no curve over stages": warmed_up(detectors.without_curve(trace.layout)),
    }
    return ours | {name: rule(make) for name, make in detectors.OTHERS.items()}


def _score(trace: Trace, factor: float, make_detector: Callable[[], Detector]) -> _Score:
    delays: list[int | None] = []
    others: set[tuple[int, int]] = set()
    _, stages, replicas, _, _ = trace.compute.shape
    for stage in range(stages):
        for replica in range(replicas):
            rank, detector, delay = trace.rank(stage, replica), make_detector(), None
            tables = trace.slowed(stage, replica, factor, ONSET).tables()[ONSET : ONSET + WITHIN]
            for number, table in enumerate(tables, start=1):
                accused = detector(table)
                others |= {(rank, other) for other in accused if other != rank}
                if delay is None and rank in accused:
                    delay = number
            delays.append(delay)
    return _Score(delays, len(others))


def _metric(name: str, unit: str, target: float | None = None) -> Metric:
    return Metric(name, unit, target)
