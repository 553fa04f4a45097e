"""The part `large`: a job of a thousand pods, with and without topology keys."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from convoy_workloads.bench.figures import FOLDER, Figures, Metric
from e2e.bench.placement import racks
from e2e.bench.rig.jobs import ONE_LARGE, TRAINING_JOBS, training_job
from e2e.bench.rig.plane import OPERATOR_USER
from e2e.bench.rig.rig import Rig, running_rig
from e2e.bench.rig.rollout import rollout, running_since
from e2e.bench.rig.setup import Setup
from e2e.bench.scale.scenarios.common import ROLLOUT_SECONDS, SETTLE_SECONDS
from e2e.cluster.progress import Progress

NODES = 100
REPEATS = 5
_PLACEMENTS: dict[str, dict[str, Any]] = {
    "with topologyKeys": {"topologyKeys": list(racks.KEYS), "gang": "None"},
    "without placement": {},
}
_WITH, _WITHOUT = _PLACEMENTS
_STAGES = ("last pod created", "last pod bound", "all jobs Running")
_MAX_SLOWER = 1.1
"""Maximum ratio of the time with topology keys to the time without; above 1 because of the noise."""
_RECORDED = f"{ONE_LARGE}, uncapped: "
"""Start of the names of the rows of scale.json about the same job."""


def add(found: Figures, progress: Progress) -> None:
    """Measure the part and add its figures."""
    asyncio.run(_measure(found, progress))


async def _measure(found: Figures, progress: Progress) -> None:
    _add_recorded(found)
    async with running_rig(NODES, progress, 0.0, Setup(labels=racks.labels)) as rig, rig.operating(0.0):
        # The first job fills caches, and starts the watch of other owners' pods.
        await _rollout(rig, _WITH)
        for repeat in range(REPEATS):
            order = (_WITH, _WITHOUT) if repeat % 2 else (_WITHOUT, _WITH)
            times = {name: await _rollout(rig, name) for name in order}
            for stage in _STAGES:
                _add_stage(found, stage, times[_WITH][stage], times[_WITHOUT][stage])


async def _rollout(rig: Rig, name: str) -> dict[str, float | None]:
    """Create the job. Return the seconds until each stage."""
    rig.report(f"{ONE_LARGE} {name}")
    rig.log.restart()
    body = training_job(ONE_LARGE.names[0], ONE_LARGE.workers)
    body["spec"]["placement"] = _PLACEMENTS[name]
    await rig.api.create(TRAINING_JOBS, body)
    await rig.holds_in_time(lambda: bool(running_since(rig.entries)), ROLLOUT_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)
    found = rollout(rig.entries, ONE_LARGE, "trainingjobs", [OPERATOR_USER])
    await rig.clear()
    return dict(zip(_STAGES, (found.created, found.bound, found.running), strict=True))


def _add_stage(found: Figures, stage: str, ours: float | None, theirs: float | None) -> None:
    for name, value in ((_WITH, ours), (_WITHOUT, theirs)):
        found.add(Metric(_row(name, stage), "seconds", baseline=_row("in scale.json", stage)), value)
    target = _MAX_SLOWER if stage == _STAGES[0] else None
    metric = Metric(f"{ONE_LARGE}, {stage}: with topologyKeys over without", "ratio", target)
    found.add(metric, ours / theirs if ours and theirs else None)


def _row(name: str, stage: str) -> str:
    return f"{ONE_LARGE}, {stage}: {name}"


def _add_recorded(found: Figures) -> None:
    """Add the recorded figures of the scale bench, which created the same job without placement."""
    rows = {row["metric"]: row for row in json.loads((FOLDER / "scale.json").read_text())["rows"]}
    for stage in _STAGES:
        row = rows[_RECORDED + stage]
        found.add(Metric(_row("in scale.json", stage), "seconds", spread=row["spread"]), row["value"])
