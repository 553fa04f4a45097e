"""The parts of the bench. Each one tunes the arms that it needs, unless that is already done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.orchestration.work import MapAll
from convoy_workloads.engines.spotlight.arms import (
    ARMS,
    CONTROL,
    EXPLORED,
    IDEAS,
    SHAM,
    SPOTLIGHT,
    STRONGEST,
    StudyArm,
)
from e2e.bench.spotlight.comparison import (
    COST,
    KIND,
    TIME,
    Measure,
    add_figures,
    add_ratios,
    interval,
    ratio,
)
from e2e.bench.spotlight.live import live
from e2e.bench.spotlight.runs import Found, RunTask, Store, TuningTask, merged

WEAK_TIME, WEAK_COST = 1.9, 1.3
"""Least ratios that are expected against the weak baselines."""
TUNING_SEEDS = 900_000
"""First seed of the tuning windows. No run of the comparison has one of these seeds."""
TEST_SEEDS = 2_000_000
"""First seed of the comparison. Nobody has chosen anything by a run with one of these seeds."""
RATIOS = (1, 2, 4, 6)
"""Costs of training on a sample, as multiples of the cost of sampling it."""
TUNED_RATIO = 3
SAMPLE_SECONDS = 2.0
LONG_REQUESTS: Mapping[str, Any] = {
    "cluster": {"sampleSeconds": 120, "trainSeconds": 360, "nodeUpHours": 0.7, "nodeDownHours": 0.2},
    "leaseSeconds": 60,
    "steps": 12,
    "evaluateEvery": 12,
    "target": 1.0,
    "limitHours": 500,
}
"""Settings under which samples last long and nodes are often lost. No run reaches the target."""
SWEPT = (SPOTLIGHT, "on-demand", "fresh-pods", STRONGEST)


@dataclass(frozen=True, slots=True)
class Size:
    """The extent of the bench."""

    seeds: int
    trials: int
    """Trials of the tuning of each arm."""
    tuning_seeds: int
    params: Mapping[str, Any]
    """Parameters that all arms share."""

    @property
    def test_seeds(self) -> range:
        """Return the seeds of the comparison."""
        return range(TEST_SEEDS, TEST_SEEDS + self.seeds)


@dataclass(frozen=True)
class Study:
    """The arms with their tuned parameters, and the results so far."""

    size: Size
    store: Store
    map_all: MapAll

    def tuned(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the tuned parameters of arms."""
        return {one["arm"]: one["params"] for one in self._tunings(names)}

    def edges(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return the tuned parameters of arms that are at the edge of their range."""
        return {one["arm"]: one["atEdge"] for one in self._tunings(names)}

    def compare(
        self, names: Sequence[str], changes: Mapping[str, Any] | None = None
    ) -> dict[str, list[Found]]:
        """Return the runs of arms on all seeds, with `changes` of their parameters after the tuning."""
        params = self.tuned(names)
        seeds = self.size.test_seeds
        tasks = [RunTask(merged(params[name], changes or {}), seed) for name in names for seed in seeds]
        found = iter(self.store.runs(tasks, self.map_all))
        return {name: [next(found) for _ in seeds] for name in names}

    def _tunings(self, names: Sequence[str]) -> list[dict[str, Any]]:
        seeds = tuple(range(TUNING_SEEDS, TUNING_SEEDS + self.size.tuning_seeds))
        tasks = [
            TuningTask(arm, merged(self.size.params, arm.params), self.size.trials, seeds)
            for arm in map(_arm, names)
        ]
        return self.store.tunings(tasks, self.map_all)


def baselines(study: Study, found: Figures) -> None:
    """Compare the engine with each baseline."""
    arms = [
        one for one in ARMS if not one.name.startswith("minus-") and one.name not in (CONTROL, SHAM, "oracle")
    ]
    runs = study.compare([one.name for one in arms])
    for name, several in runs.items():
        add_figures(found, name, several)
    targets = {(TIME.figure, one.name): WEAK_TIME for one in arms if one.weak}
    targets |= {(COST.figure, one.name): WEAK_COST for one in arms if one.weak}
    targets |= {
        (TIME.figure, "fresh-pods"): 1.0,
        (TIME.figure, STRONGEST): 1.0,
        (COST.figure, STRONGEST): 1.0,
    }
    others = {name: several for name, several in runs.items() if name != SPOTLIGHT}
    add_ratios(found, runs[SPOTLIGHT], others, targets)
    _add_edges(study, found, list(runs))


def ablations(study: Study, found: Figures) -> None:
    """Compare the engine with itself without one mechanism, and with an oracle."""
    names = [one.name for one in ARMS if one.name.startswith("minus-")]
    runs = study.compare([SPOTLIGHT, *names, "oracle"])
    for name, several in runs.items():
        if name != SPOTLIGHT:
            add_figures(found, name, several)
    others = {name: several for name, several in runs.items() if name != SPOTLIGHT}
    add_ratios(found, runs[SPOTLIGHT], others, {})
    _add_edges(study, found, list(others))


def ideas(study: Study, found: Figures) -> None:
    """Compare ideas with the strongest baseline, as it is and with the same change."""
    runs = study.compare([STRONGEST, EXPLORED, *(one.name for one in IDEAS)])
    for name, several in runs.items():
        if name not in (STRONGEST, EXPLORED):
            add_figures(found, name, several)
    strongest = {STRONGEST: runs[STRONGEST]}
    for name, several in runs.items():
        if not name.startswith(EXPLORED):
            continue
        other = name.replace(EXPLORED, STRONGEST)
        add_ratios(found, several, strongest | {other: runs[other]}, {}, engine_name=name)
    _add_edges(study, found, [one.name for one in IDEAS])


def ratios(study: Study, found: Figures) -> None:
    """Compare at several costs of the training. The parameters are those of the tuning at 3:1."""
    for cost in RATIOS:
        # An iteration lasts longer, and so does the limit.
        changes = {
            "cluster": {"sampleSeconds": SAMPLE_SECONDS, "trainSeconds": cost * SAMPLE_SECONDS},
            "limitHours": study.size.params["limitHours"] * max(1, cost / TUNED_RATIO),
        }
        runs = study.compare(SWEPT, changes)
        others = {name: several for name, several in runs.items() if name != SPOTLIGHT}
        add_ratios(
            found,
            runs[SPOTLIGHT],
            others,
            {},
            prefix=f"train to rollout {cost} to 1, tuned at {TUNED_RATIO} to 1: ",
        )


def long_requests(study: Study, found: Figures) -> None:
    """Compare the mechanisms of the workers, apart from the learning: samples that last a minute on a pair of
    nodes, and nodes that are often lost.
    """
    arms = [_arm(name) for name in (SPOTLIGHT, "minus-warm-regroup", "minus-elastic", "minus-pull", "oracle")]
    seeds = study.size.test_seeds
    params = {one.name: merged(merged(study.size.params, one.params), LONG_REQUESTS) for one in arms}
    tasks = [RunTask(params[one.name], seed) for one in arms for seed in seeds]
    results = iter(study.store.runs(tasks, study.map_all))
    runs = {one.name: [next(results) for _ in seeds] for one in arms}
    prefix = "requests of a minute: "
    for name, several in runs.items():
        for figure, title, unit in (
            ("hoursToTarget", f"time of {LONG_REQUESTS['steps']} iterations", "h"),
            ("exploredSeeds", "explored seeds in an iteration", "seeds"),
            ("lostSpotRatio", "lost share of spot time", "ratio"),
            ("regroupSpotRatio", "share of spot time in regroups", "ratio"),
        ):
            metric = Metric(f"{prefix}{name}, {title}", unit, kind=KIND)
            for one in several:
                found.add(metric, one.figures[figure])
    for measure in (Measure("hoursToTarget", "time"), Measure("exploredSeeds", "explored seeds")):
        for name in (one.name for one in arms if one.name != SPOTLIGHT):
            metric = Metric(
                f"{prefix}{measure.name}, {name} / spotlight",
                "times",
                kind=KIND,
                spread=f"{interval(measure, runs[SPOTLIGHT], runs[name])}, {study.size.seeds} seeds",
            )
            found.add(metric, ratio(measure, runs[SPOTLIGHT], runs[name]))


def controls(study: Study, found: Figures) -> None:
    """Check that the gain is lost without the mechanism, and that each node-hour is in the bill."""
    runs = study.compare([SPOTLIGHT, CONTROL, SHAM, "on-demand"])
    for arm, without in ((CONTROL, "exploring"), (SHAM, "a choice among the explored seeds")):
        gain = _mean(runs["on-demand"], "iterationsToTarget") / _mean(runs[arm], "iterationsToTarget")
        name = f"negative control: without {without}, iterations of on-demand / {arm}, away from 1"
        found.add(Metric(name, "ratio", 0.1, kind=KIND), abs(gain - 1))
    residual = max(one.figures["residual"] for several in runs.values() for one in several)
    name = "equality: largest cost without a label, or difference from the price of the trace"
    found.add(Metric(name, "on-demand hours", 1e-6, kind=KIND), residual)


def _add_edges(study: Study, found: Figures, names: Sequence[str]) -> None:
    """Add the number of tuned parameters at the edge of their range: a better value may lie outside."""
    edges = {name: paths for name, paths in study.edges(names).items() if paths}
    words = "; ".join(f"{name}: {', '.join(paths)}" for name, paths in edges.items())
    found.add(
        Metric(
            "tuned parameters at the edge of their range", "parameters", kind=KIND, spread=words or "none"
        ),
        sum(map(len, edges.values())),
    )


def _arm(name: str) -> StudyArm:
    return next(one for one in (*ARMS, *IDEAS) if one.name == name)


def _mean(runs: Sequence[Found], figure: str) -> float:
    return sum(one.figures[figure] for one in runs) / len(runs)


PARTS: Mapping[str, Callable[[Study, Figures], None]] = {
    "baselines": baselines,
    "ablations": ablations,
    "ideas": ideas,
    "ratios": ratios,
    "requests": long_requests,
    "controls": controls,
    "live": lambda _, found: live(found),
}
"""Functions that measure a part and add its figures, by name of the part."""
SIZES: Mapping[str, Size] = {
    "small": Size(
        seeds=3,
        trials=2,
        tuning_seeds=1,
        params={
            "problem": {
                "kind": "ring",
                "prompts": 8,
                "modes": 6,
                "width": 48,
                "pretrainingSteps": 300,
                "pretrainingBatch": 256,
            },
            "promptsPerIteration": 4,
            "learningRate": 1e-2,
            "sequenceParallel": [2, 4],
            "target": 0.25,
            "steps": 3000,
            "limitHours": 1.5,
            "checkHours": 0.3,
            "checkSpend": 1.5,
        },
    ),
    "full": Size(
        seeds=10,
        trials=12,
        tuning_seeds=2,
        params={"sequenceParallel": [2, 4], "steps": 3000, "target": 0.5, "limitHours": 28},
    ),
}
