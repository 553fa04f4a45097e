"""The parts about gangs: on the cluster without gates, and with the gates of 1.36 and 1.37 on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.placement.gangs import apis
from e2e.bench.placement.gangs.arrivals import Result, measure
from e2e.bench.placement.gangs.backends import (
    CONVOY,
    JOBS,
    JOBSET,
    NATIVE,
    NONE,
    ROOM,
    SIMULATED,
    Backend,
    Controller,
    gates,
)
from e2e.bench.rig.rig import Rig, running_rig
from e2e.bench.rig.setup import Setup
from e2e.bench.scale.jobset import LIMITS, JobSet
from e2e.cluster import versions
from e2e.cluster.progress import Progress

REPEATS = 3
Run = tuple[Controller, Backend]


def without_gates(found: Figures, progress: Progress) -> None:
    """Measure None and the simulated schedulers."""
    runs = [(controller, backend) for backend in (*SIMULATED, NONE) for controller in (CONVOY, JOBSET)]
    with _kubernetes(versions.DEFAULT_MINOR):
        asyncio.run(_measure(found, progress, runs, Setup(cpus=1)))


def native(minor: str, found: Figures, progress: Progress) -> None:
    """Measure Kubernetes' own gangs of a minor version, beside None on the same cluster."""
    runs = [(CONVOY, NATIVE[minor]), (JOBSET, NATIVE[minor]), (CONVOY, NONE)]
    with _kubernetes(minor):
        asyncio.run(_measure(found, progress, runs, Setup(flags=gates(minor), cpus=1), f", {minor}"))


@contextmanager
def _kubernetes(minor: str) -> Iterator[None]:
    """Choose the minor version of the rig's programs."""
    before = os.environ.get(versions.CHOICE)
    os.environ[versions.CHOICE] = minor
    try:
        yield
    finally:
        del os.environ[versions.CHOICE]
        if before is not None:
            os.environ[versions.CHOICE] = before


async def _measure(
    found: Figures, progress: Progress, runs: Sequence[Run], setup: Setup, of_none: str = ""
) -> None:
    """Run all combinations in turns. Each repeat starts with another one."""
    async with running_rig(ROOM, progress, 0.0, setup) as rig:
        await asyncio.to_thread(rig.plane.apply, [apis.coscheduling(), apis.volcano()])
        baseline = JobSet(rig, progress)
        await baseline.install()
        async with rig.operating(0.0, long_lease=True):
            for repeat in range(REPEATS):
                first = repeat % len(runs)
                results = {}
                for controller, backend in (*runs[first:], *runs[:first]):
                    title = _title(controller, backend, of_none)
                    progress.report(f"repeat {repeat + 1}: {title}")
                    result = await _run(rig, baseline, controller, backend)
                    progress.report(f"{title}: {result}")
                    results[controller.title, backend.title] = result
                for controller, backend in runs:
                    _add(found, controller, backend, results, of_none)


async def _run(rig: Rig, baseline: JobSet, controller: Controller, backend: Backend) -> Result:
    if controller is CONVOY:
        return await measure(rig, controller, backend)
    await baseline.start(LIMITS[0])
    try:
        return await measure(rig, controller, backend)
    finally:
        await asyncio.to_thread(baseline.stop)


def _title(controller: Controller, backend: Backend, of_none: str) -> str:
    return f"{controller.title}, {backend.title}{of_none if backend is NONE else ''}"


def _add(
    found: Figures,
    controller: Controller,
    backend: Backend,
    results: dict[tuple[str, str], Result],
    of_none: str,
) -> None:
    """Add the rows of one run."""
    ours, title, kind = (
        results[controller.title, backend.title],
        _title(controller, backend, of_none),
        backend.kind,
    )
    convoys = controller is CONVOY
    ended = Metric(
        f"{title}: jobs that ended, of {JOBS}", "jobs", JOBS if convoys else None, kind=kind, aim="equal"
    )
    found.add(ended, ours.ended)
    all_ended = "until all jobs have ended"
    other = _title(JOBSET, backend, of_none)
    beside = f"{other}: {all_ended}" if convoys else ""
    found.add(Metric(f"{title}: {all_ended}", "seconds", baseline=beside, kind=kind), ours.seconds)
    bound = backend.bound_seconds if convoys else None
    partial = Metric(f"{title}: longest time of a pod in an incomplete gang", "seconds", bound, kind=kind)
    found.add(partial, ours.longest_partial)
    if convoys and backend is not NONE:
        left = Metric(f"{title}: PodGroups left after the jobs", "objects", 0, kind=kind, aim="equal")
        found.add(left, ours.groups_left)
    for against in (NONE, backend) if convoys and backend is not NONE else ():
        theirs = results.get(((CONVOY if against is NONE else JOBSET).title, against.title))
        name = _title(CONVOY, against, of_none) if against is NONE else other
        if theirs is not None:
            ratio = ours.seconds / theirs.seconds if ours.seconds and theirs.seconds else None
            found.add(Metric(f"{title}: time over that of {name}", "ratio", kind=kind), ratio)
