"""Measures the load of a thousand running jobs on the operator and on etcd."""

from __future__ import annotations

import asyncio
import time

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig import etcd
from e2e.bench.rig.audit import busiest
from e2e.bench.rig.dashboard_process import DashboardProcess
from e2e.bench.rig.jobs import THOUSAND_SMALL
from e2e.bench.rig.rig import Rig
from e2e.bench.scale.scenarios.common import ROLLOUT_SECONDS, Rate, bring_up, ours

_IDLE_SECONDS = 60.0
_REST_SECONDS = 15.0
_FIRST_SECONDS = 30.0
_WRITES_PER_SECOND = 5.0
_WINDOW = 10.0


async def steady(rig: Rig, rate: Rate, figures: Figures) -> None:
    """Measure the operator's memory, and its writes first without progress of any job and then with
    progress of all.
    """
    async with rig.operating(rate.qps):
        await measure(rig, f"{THOUSAND_SMALL} Running, {rate.title}", "", figures)


async def measure(
    rig: Rig, words: str, baseline: str, figures: Figures, dashboard: DashboardProcess | None = None
) -> None:
    """Measure a thousand running jobs under the running operator.

    Row names start with `words`. The rows with which they are compared have names that start with
    `baseline`.
    """
    up = await bring_up(rig, THOUSAND_SMALL, 2 * ROLLOUT_SECONDS)

    def add(what: str, unit: str, value: float | None, target: float | None = None) -> None:
        metric = Metric(f"{words}: {what}", unit, target, f"{baseline}: {what}" if baseline else "")
        figures.add(metric, value if up else None)

    await asyncio.sleep(_REST_SECONDS)
    rig.log.restart()
    await asyncio.sleep(_IDLE_SECONDS)
    idle = len(ours(rig.entries))
    add(f"objects written in {_IDLE_SECONDS:g} s without progress", "objects", idle, 0)
    rig.swarm.training = True
    rig.log.restart()
    await asyncio.sleep(_FIRST_SECONDS)
    # The operator writes each job's first progress at once, so these writes are counted separately.
    add(
        f"objects written in the first {_FIRST_SECONDS:g} s of progress",
        "objects",
        len(ours(rig.entries)),
    )
    rig.log.restart()
    cpu_before, began = rig.operator.spent(), time.monotonic()
    dashboard_before = dashboard.spent() if dashboard else None
    # In this time the operator writes the progress of each job once. A shorter measurement could miss a
    # burst.
    await asyncio.sleep(max(10.0, THOUSAND_SMALL.jobs / _WRITES_PER_SECOND) + _WINDOW)
    written, seconds = ours(rig.entries), time.monotonic() - began
    cpu_used = rig.operator.spent(cpu_before)
    dashboard_cpu = dashboard.spent(dashboard_before) if dashboard else None
    busiest_rate = busiest((entry.answered for entry in written), _WINDOW) / _WINDOW
    add("writes while all progress", "per second", len(written) / seconds, _WRITES_PER_SECOND)
    add(f"writes while all progress, busiest {_WINDOW:g} s", "per second", busiest_rate, _WRITES_PER_SECOND)
    add("the operator's processors while all progress", "cores", cpu_used / seconds if cpu_used else None)
    if dashboard:
        add(
            "the dashboard's processors while all progress",
            "cores",
            dashboard_cpu / seconds if dashboard_cpu else None,
        )
        add("the dashboard's memory, at most", "MB", dashboard.memory_mb(peak=True))
    add("the operator's memory", "MB", rig.operator.memory_mb(), 300)
    add("the operator's memory, at most", "MB", rig.operator.memory_mb(peak=True), 300)
    for owner, prefix in (("of the job itself", etcd.JOBS), ("of its pods", etcd.PODS)):
        stored = await asyncio.to_thread(etcd.sizes, rig.plane.cluster, prefix)
        add(f"bytes in etcd, {owner}", "bytes per job", sum(stored) / THOUSAND_SMALL.jobs)
    rig.swarm.training = False
    await rig.clear()
