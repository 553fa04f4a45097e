"""Rollout scenarios: many pods at once, and a small job beside a large one."""

from __future__ import annotations

import asyncio

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig.jobs import ONE_LARGE, TRAINING_JOBS, Shape, training_job
from e2e.bench.rig.plane import OPERATOR_USER
from e2e.bench.rig.rig import Rig
from e2e.bench.rig.rollout import rollout, running_since
from e2e.bench.scale.scenarios.common import SETTLE_SECONDS, Rate, bring_up, created

_SMALL = "small"


async def rollout_scenario(shape: Shape, rig: Rig, rate: Rate, figures: Figures) -> None:
    """Measure the rollout of all jobs of a shape."""
    async with rig.operating(rate.qps):
        words = f"{shape}, {rate.title}"
        await measure_rollout(rig, shape, words, f"JobSet {words}", rate, figures)
        peak = rig.operator.memory_mb(peak=True)
        figures.add(Metric(f"{words}: the operator's memory, at most", "MB"), peak)


async def measure_rollout(
    rig: Rig, shape: Shape, words: str, baseline: str, rate: Rate, figures: Figures
) -> None:
    """Measure a rollout by the running operator.

    Row names start with `words`. The rows with which they are compared have names that start with
    `baseline`.
    """
    cpu_before = rig.operator.spent()
    await bring_up(rig, shape)
    await asyncio.sleep(SETTLE_SECONDS)
    found = rollout(rig.entries, shape, "trainingjobs", [OPERATOR_USER])
    for what, value, unit, target in (
        ("last pod created", found.created, "seconds", rate.target(3.0, 12.0)),
        ("last pod bound", found.bound, "seconds", None),
        ("last pod up", found.up, "seconds", None),
        ("objects written", found.writes_per_pod, "per pod", 1.15),
        ("all jobs Running", found.running, "seconds", None),
    ):
        figures.add(Metric(f"{words}: {what}", unit, target, f"{baseline}: {what}"), value)
    # This row has no baseline, because the processor time depends on the operator's work before this rollout.
    figures.add(Metric(f"{words}: the operator's processor time", "seconds"), rig.operator.spent(cpu_before))
    await rig.clear()


async def small_beside_large(rig: Rig, rate: Rate, figures: Figures) -> None:
    """Measure a job of one replica, alone and while the thousand pods of another job are created."""
    async with rig.operating(rate.qps):
        for large in (False, True):
            await rig.wait_quiet()
            rig.log.restart()
            if large:
                await rig.create(ONE_LARGE)
                await rig.holds_in_time(lambda: created(rig.entries) >= ONE_LARGE.pods // 10, 30)
            await rig.api.create(TRAINING_JOBS, training_job(_SMALL, 1))
            await rig.holds_in_time(lambda: _SMALL in running_since(rig.entries), 60)
            found = rollout(
                [entry for entry in rig.entries if entry.name.split("-")[0] == _SMALL],
                Shape(1, 1),
                "trainingjobs",
                [OPERATOR_USER],
            )
            words = f"one replica {f'while {ONE_LARGE} is created' if large else 'alone'}, {rate.title}"
            figures.add(Metric(f"{words}: Running", "seconds", 1.0 if large else None), found.running)
            figures.add(Metric(f"{words}: of it, until its pod is created", "seconds"), found.created)
            # The scheduler and the kubelets determine this time, not Convoy, so it has no target.
            elsewhere = found.up - found.created if found.up and found.created else None
            figures.add(Metric(f"{words}: of it, until the created pod is up", "seconds"), elsewhere)
            await rig.clear()
