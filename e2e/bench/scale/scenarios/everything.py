"""Measures rollouts and running jobs with all of Convoy's features in use.

The features are guard, checkpoints, telemetry, Prometheus, dashboard and viewers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from tests.integration.dashboard.viewers import Viewers

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig import dashboard_process
from e2e.bench.rig.dashboard_process import DashboardProcess
from e2e.bench.rig.guard_policy import guarded
from e2e.bench.rig.jobs import HUNDRED, ONE_LARGE, THOUSAND_SMALL
from e2e.bench.rig.operator_process import METRICS_PORT
from e2e.bench.rig.rig import Rig
from e2e.bench.scale.scenarios.common import Rate
from e2e.bench.scale.scenarios.growth import measure_rollout
from e2e.bench.scale.scenarios.steady import measure
from e2e.drive.monitoring import alerts, monitored
from e2e.drive.prometheus import prometheus
from e2e.install import NAMESPACE

T = TypeVar("T")
_VIEWERS = 10
"""Number of open dashboard pages."""
_EVERY = "30s"
"""Interval of metric scrapes (as in the chart) and of alert evaluations."""


@asynccontextmanager
async def everything_on(rig: Rig, words: str, figures: Figures) -> AsyncIterator[DashboardProcess]:
    """Run all features beside the operator. After the block, add a row with the number of open dashboard
    pages that lost their connection.
    """
    dashboard = DashboardProcess(rig.plane)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(guarded(rig))
        stack.push_async_callback(asyncio.to_thread, dashboard.stop)
        await dashboard.start(rig.api)
        rules = await asyncio.to_thread(_rules, rig)
        server = prometheus(rig.plane.host, _scrapes(rig), rules, _EVERY)
        await stack.enter_async_context(_in_thread(server))
        viewers = await stack.enter_async_context(_in_thread(Viewers(dashboard.url, _VIEWERS)))
        stack.callback(_set_reporting, rig, on=False)
        _set_reporting(rig, on=True)
        yield dashboard
        figures.add(Metric(f"{words}: pages that lost the dashboard", "pages", 0), viewers.lost)


@asynccontextmanager
async def _in_thread(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a context manager in another thread, so that the agents' heartbeats are not blocked."""
    entering = asyncio.create_task(asyncio.to_thread(context.__enter__))
    try:
        yield await asyncio.shield(entering)
    finally:
        # This task may be cancelled while the thread enters the context, so wait for the thread, then leave
        # the context.
        await asyncio.wait([entering])
        if entering.exception() is None:
            await asyncio.to_thread(context.__exit__, None, None, None)


def _set_reporting(rig: Rig, *, on: bool) -> None:
    """Turn telemetry of all ranks, and checkpoints of jobs created from then on, on or off."""
    rig.checkpoints = on
    for agent in rig.swarm.agents.values():
        agent.telemetry = on


def _scrapes(rig: Rig) -> list[dict[str, Any]]:
    ports = {"operator": METRICS_PORT, "dashboard": dashboard_process.METRICS_PORT}
    return [
        {
            "job_name": f"convoy-{name}",
            "scrape_interval": _EVERY,
            "static_configs": [
                {"targets": [f"{rig.plane.host}:{port}"], "labels": {"namespace": NAMESPACE, "pod": name}}
            ],
        }
        for name, port in ports.items()
    ]


def _rules(rig: Rig) -> list[dict[str, Any]]:
    """Return the groups of the chart's alert rules."""
    groups: list[dict[str, Any]] = alerts(monitored(rig.plane.cluster.binaries, {}))["spec"]["groups"]
    return groups


async def rollouts(rig: Rig, rate: Rate, figures: Figures) -> None:
    """Measure the rollout of each shape with all features on. The rows are compared with those without the
    features.
    """
    of = f"everything on, {rate.title}"
    async with rig.operating(rate.qps), everything_on(rig, of, figures):
        for shape in (ONE_LARGE, HUNDRED, THOUSAND_SMALL):
            words = f"{shape}, {rate.title}"
            await measure_rollout(rig, shape, f"everything on, {words}", words, rate, figures)


async def running_jobs(rig: Rig, rate: Rate, figures: Figures) -> None:
    """Measure a thousand running jobs with all features on. The rows are compared with those without the
    features.
    """
    words = f"{THOUSAND_SMALL} Running, {rate.title}"
    of = f"everything on, {words}"
    async with rig.operating(rate.qps), everything_on(rig, of, figures) as dashboard:
        await measure(rig, of, words, figures, dashboard)
