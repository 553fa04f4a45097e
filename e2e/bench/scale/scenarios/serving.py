"""Measures a thousand ServingJobs: their start, their load at rest, decisions about single jobs, and a
rollout.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

from convoy_crds.terms import LABEL_JOB
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig import etcd
from e2e.bench.rig.jobs import PODS, SERVING_JOBS, THOUSAND_SERVERS
from e2e.bench.rig.rig import Rig
from e2e.bench.rig.servers import complete_since, reactions
from e2e.bench.scale.scenarios.common import ROLLOUT_SECONDS, SETTLE_SECONDS, Rate, created, ours

_REST_SECONDS, _IDLE_SECONDS = 15.0, 60.0
_SAMPLES = 40
"""Number of jobs in which a single change is measured."""
_PAUSE_SECONDS = 0.25
"""Seconds between two of these changes."""
_REACTION_SECONDS = 30.0
_ROLLED = 100
"""Number of jobs that roll to another revision at the same time."""
_MEMORY_MB = 500.0


async def serving(rig: Rig, rate: Rate, figures: Figures) -> None:
    """Measure a thousand ServingJobs with three replicas each."""
    words = f"{THOUSAND_SERVERS} ServingJobs, {rate.title}"
    async with rig.operating(rate.qps):
        up = await _start(rig, words, rate, figures)
        await _rest(rig, words, figures, up=up)
        names = THOUSAND_SERVERS.names
        replicas = THOUSAND_SERVERS.workers + 1
        await _decisions(
            rig,
            f"{words}: one is scaled up: until its pod is created",
            names[:_SAMPLES],
            lambda name: rig.api.patch(f"{SERVING_JOBS}/{name}", {"spec": {"replicas": replicas}}),
            figures,
        )
        await _decisions(
            rig,
            f"{words}: a pod is deleted: until another is created",
            names[_SAMPLES : 2 * _SAMPLES],
            lambda name: _delete_a_pod(rig, name),
            figures,
        )
        await _roll(rig, words, names[-_ROLLED:], figures)
        await rig.clear()


async def _start(rig: Rig, words: str, rate: Rate, figures: Figures) -> bool:
    """Measure the time and the writes until all jobs serve. Return True if they did."""
    shape = THOUSAND_SERVERS
    await rig.wait_quiet()
    rig.log.restart()
    began = time.time()
    await rig.create_servers(shape)
    up = await rig.holds_in_time(lambda: len(complete_since(rig.entries)) >= shape.jobs, 3 * ROLLOUT_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)
    entries = rig.entries
    done = max(complete_since(entries).values(), default=began) - began
    figures.add(
        Metric(f"{words}: all serve", "seconds", rate.target(120, 240)),
        done if up else None,
    )
    figures.add(
        Metric(f"{words}: objects written", "per pod"), len(ours(entries)) / shape.pods if up else None
    )
    figures.add(Metric(f"{words}: pods beyond the replicas", "pods", 0), created(entries) - shape.pods)
    return up


async def _rest(rig: Rig, words: str, figures: Figures, *, up: bool) -> None:
    """Measure the writes at rest, and the memory and processors that the operator needs."""
    await asyncio.sleep(_REST_SECONDS)
    rig.log.restart()
    cpu_before, began = rig.operator.spent(), time.monotonic()
    await asyncio.sleep(_IDLE_SECONDS)
    idle, used = len(ours(rig.entries)), rig.operator.spent(cpu_before)
    seconds = time.monotonic() - began
    for what, unit, value, target in (
        (f"objects written in {_IDLE_SECONDS:g} s at rest", "objects", float(idle), 0.0),
        ("the operator's processors at rest", "cores", used / seconds if used is not None else None, 0.2),
        ("the operator's memory", "MB", rig.operator.memory_mb(), _MEMORY_MB),
        ("the operator's memory, at most", "MB", rig.operator.memory_mb(peak=True), _MEMORY_MB),
    ):
        figures.add(Metric(f"{words}: {what}", unit, target), value if up else None)
    stored = await asyncio.to_thread(etcd.sizes, rig.plane.cluster, etcd.SERVING_JOBS)
    figures.add(
        Metric(f"{words}: bytes in etcd, of the job itself", "bytes per job"),
        sum(stored) / THOUSAND_SERVERS.jobs if up else None,
    )


async def _decisions(
    rig: Rig,
    what: str,
    names: Sequence[str],
    change: Callable[[str], Awaitable[object]],
    figures: Figures,
) -> None:
    """Change one job after the other, and measure how long the operator takes to react."""
    rig.log.restart()
    causes: dict[str, float] = {}
    for name in names:
        causes[name] = time.time()
        await change(name)
        await asyncio.sleep(_PAUSE_SECONDS)
    whole = await rig.holds_in_time(
        lambda: len(reactions(rig.entries, causes)) >= len(names), _REACTION_SECONDS
    )
    found = reactions(rig.entries, causes)
    for which, value, target in (
        ("median", statistics.median(found) if found else None, 0.3),
        ("slowest", max(found, default=None), 1.0),
    ):
        figures.add(Metric(f"{what}, {which}", "seconds", target), value if whole else None)


async def _delete_a_pod(rig: Rig, job: str) -> None:
    pods = (await rig.api.get(PODS, labelSelector=f"{LABEL_JOB}={job}"))["items"]
    await rig.api.delete(f"{PODS}/{pods[0]['metadata']['name']}")


async def _roll(rig: Rig, words: str, names: Sequence[str], figures: Figures) -> None:
    """Roll some of the jobs to another revision at the same time."""
    rig.log.restart()
    began = time.time()
    role = {"name": "server", "engine": {"name": "lm", "params": {"queue": 32}}}
    await rig.each_server(names, {"roles": [role]})
    whole = await rig.holds_in_time(
        lambda: set(names) <= complete_since(rig.entries).keys(), 2 * ROLLOUT_SECONDS
    )
    entries = rig.entries
    done = max((complete_since(entries).get(name, began) for name in names), default=began) - began
    pods = len(names) * THOUSAND_SERVERS.workers
    of = f"{words}: {len(names)} of them roll to another revision"
    figures.add(Metric(f"{of}, all complete", "seconds"), done if whole else None)
    figures.add(Metric(f"{of}, objects written", "per pod"), len(ours(entries)) / pods if whole else None)
