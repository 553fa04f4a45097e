"""Measures the study of learned controllers: the engine `orchestration` with its default parameters."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.experiment_analysis.file_state import write_files
from convoy_workloads.engines.orchestration.arms import LAG
from convoy_workloads.engines.orchestration.claim_rules import ClaimAnswer
from convoy_workloads.engines.orchestration.params import Params
from convoy_workloads.engines.orchestration.study import Study

FOLDER = Path("build/bench/study")
"""Folder of the study's files, below the checkout."""
LIMIT_SECONDS = 1200.0
"""Largest duration on two free processor cores."""
OWN_ADDITION = "untuned"
"""Claim that is not in the publication's abstract."""
ANSWERED = (ClaimAnswer.SEEN, ClaimAnswer.NOT_SEEN)


def study(found: Figures) -> None:
    """Add the rows of the part."""
    started = time.monotonic()
    before = _processor_seconds()
    made = Study(Params())
    for _ in made.work():
        pass
    spent = Spent(time.monotonic() - started, _processor_seconds() - before)
    files = made.files()
    write_files(FOLDER, files)
    add_rows(found, json.loads(files["study.json"]), spent)


def _processor_seconds() -> float:
    """Return the processor time of this process and of its ended children."""
    return math.fsum(os.times()[:4])


@dataclass(frozen=True)
class Spent:
    """The cost of the study."""

    seconds: float
    processor_seconds: float


def add_rows(found: Figures, document: Mapping[str, Any], spent: Spent) -> None:
    """Add the rows that follow from the contents of `study.json` and from the cost of the study."""
    results = list(document["experiments"].values())
    runs = f"{len(results)} experiments, {document['runs']} runs, 2 processes"
    found.add(
        Metric("learned controllers: time of the study", "s", LIMIT_SECONDS, spread=runs), spent.seconds
    )
    found.add(
        Metric("learned controllers: processor time of the study", "s", 2 * LIMIT_SECONDS, spread=runs),
        spent.processor_seconds,
    )
    _add_controls(found, results)
    _add_verdicts(found, results)
    _add_claims(found, document["claims"])
    _add_lag(found, document["lagAdvantage"])


def _add_share(found: Figures, name: str, part: int, whole: int, target: float | None = None) -> None:
    metric = Metric(
        f"learned controllers: {name}",
        "share",
        target,
        kind="simulated",
        higher_is_better=True,
        spread=f"{part} of {whole}",
    )
    found.add(metric, part / whole if whole else None)


def _add_controls(found: Figures, results: Sequence[Mapping[str, Any]]) -> None:
    passed = [one["passed"] for result in results for one in result["controls"]]
    _add_share(found, "controls that passed", sum(passed), len(passed), 1.0)


def _add_verdicts(found: Figures, results: Sequence[Mapping[str, Any]]) -> None:
    verdicts = [one["verdict"] for result in results for one in result["hypotheses"]]
    for verdict in ("Supported", "Contradicted", "Undecided", "ComparatorCollapsed"):
        _add_share(found, f"predictions {verdict}", verdicts.count(verdict), len(verdicts))


def _add_claims(found: Figures, claims: Sequence[Mapping[str, Any]]) -> None:
    """Add the share of the abstract's claims with an answer, and each answer. The target is an answer to all
    claims but the one about the published artefact, which the study does not have.
    """
    abstract = [one for one in claims if one["name"] != OWN_ADDITION]
    answered = sum(one["answer"] in ANSWERED for one in abstract)
    target = math.floor(1000 * (len(abstract) - 1) / len(abstract)) / 1000
    _add_share(found, "claims of the abstract that are answered", answered, len(abstract), target)
    for one in claims:
        name = f"learned controllers, claims (1: seen here, 0: not seen): {one['name']}"
        metric = Metric(name, "", kind="simulated", spread=one["reason"])
        if one["answer"] in ANSWERED:
            found.add(metric, float(one["answer"] == ClaimAnswer.SEEN))
        else:
            found.add_unmeasured(metric, f"{one['answer']}: {one['reason']}")


def _add_lag(found: Figures, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add the advantage over each comparator at the registered lag, and the share of it that is left. The
    report of the study has all lags.
    """
    for row in rows:
        if row["lag"] != LAG:
            continue
        name = f"learned autoscaler under a lag of {LAG:g} s, {row['figure']}"
        for arm, one in row["advantage"].items():
            _add_estimate(found, f"{name}: advantage over the comparator {arm}", one)
        for arm, one in row["shareLeft"].items():
            _add_estimate(found, f"{name}: share of the advantage that is left against {arm}", one)


def _add_estimate(found: Figures, name: str, one: Mapping[str, float] | None) -> None:
    if one is None:
        metric = Metric(name, "", kind="simulated")
        found.add_unmeasured(metric, "no advantage over the own comparator is shown")
        return
    interval = f"interval {one['low']:.3g} to {one['high']:.3g}"
    found.add(Metric(name, "", kind="simulated", spread=interval), one["value"])
