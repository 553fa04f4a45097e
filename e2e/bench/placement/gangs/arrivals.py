"""Lets all jobs of one controller arrive at once, and waits until they have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from e2e.bench.placement.gangs.backends import CONVOY, JOBS, PODS_PER_JOB, Backend, Controller, pod_group
from e2e.bench.placement.gangs.feed import PodFeed
from e2e.bench.placement.gangs.stand_in import StandIn
from e2e.bench.placement.gangs.work import Work
from e2e.bench.rig.api import Object, each
from e2e.bench.rig.rig import Rig

CLEAN_SECONDS = 30.0
"""Maximum seconds until the garbage collector has deleted the PodGroups of deleted jobs."""
LIMIT_SECONDS = 420.0
"""Maximum seconds until all jobs have ended."""
STALL_SECONDS = 45.0
"""Seconds without any change of a pod after which the jobs are deadlocked. A pause of the backend None is
shorter.
"""
_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Result:
    """The arrival of all jobs under one controller and backend."""

    ended: int
    """Number of jobs that succeeded."""
    seconds: float | None
    """Seconds until all jobs had succeeded; None if some did not."""
    longest_partial: float
    """Longest time in seconds that a pod held a node while its gang was incomplete."""
    groups_left: int = 0
    """Number of PodGroups that outlived the deleted jobs."""


async def measure(rig: Rig, controller: Controller, backend: Backend) -> Result:
    """Create all jobs at once. Return when they have ended, or when nothing changes any more."""
    names = [f"gang-{index:02}" for index in range(JOBS)]
    try:
        async with _running(rig, controller, backend) as (feed, work, stand_in):
            if controller is not CONVOY and backend.group_path:
                await each(names, lambda name: rig.api.create(backend.group_path, pod_group(backend, name)))
            began = time.monotonic()
            await each(names, lambda name: rig.api.create(controller.path, controller.body(backend, name)))
            ended, took = await _until_ended(rig, controller, feed, began)
            held = stand_in.longest_hold if stand_in else 0.0
            longest = max(held, work.partial.longest)
        await rig.clear()
        left = await _groups_left(rig, backend) if controller is CONVOY else 0
        return Result(ended, took if ended == JOBS else None, longest, left)
    finally:
        await rig.clear()
        if backend.group_path:
            await rig.api.delete(backend.group_path)


async def _groups_left(rig: Rig, backend: Backend) -> int:
    """Return the number of PodGroups that still exist after CLEAN_SECONDS."""
    deadline = time.monotonic() + CLEAN_SECONDS
    left = 0
    while backend.group_path:
        left = len((await rig.api.get(backend.group_path))["items"])
        if not left or time.monotonic() > deadline:
            break
        await asyncio.sleep(_POLL_SECONDS)
    return left


@asynccontextmanager
async def _running(
    rig: Rig, controller: Controller, backend: Backend
) -> AsyncIterator[tuple[PodFeed, Work, StandIn | None]]:
    """Run the fake work, and the simulated scheduler if the backend has one."""
    feed = PodFeed(rig.api)

    def gang_of(pod: Object) -> str:
        return str((pod["metadata"].get("labels") or {}).get(controller.label, ""))

    def runs(pod: Object) -> bool:
        return controller is not CONVOY or _has_ranks(rig, pod)

    work = Work(rig.api, feed, PODS_PER_JOB, gang_of, runs)
    room = dict.fromkeys(rig.plane.nodes, 1)
    stand_in = StandIn(rig.api, feed, room, backend.flavour) if backend.flavour else None
    tasks = [asyncio.create_task(one.run()) for one in (feed, work, stand_in) if one is not None]
    try:
        yield feed, work, stand_in
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _has_ranks(rig: Rig, pod: Object) -> bool:
    """Return True if the pod's fake ranks run: its agent has an assignment for it."""
    agent = rig.swarm.agents.get(pod["spec"].get("nodeName", ""))
    known = agent.pods.get(pod["metadata"]["uid"]) if agent is not None else None
    return known is not None and known.incarnation > 0


async def _until_ended(rig: Rig, controller: Controller, feed: PodFeed, began: float) -> tuple[int, float]:
    """Return the number of jobs that succeeded, and the seconds until the last of them did."""
    changes, changed_at, ended, took = -1, began, 0, 0.0
    while True:
        items = (await rig.api.get(controller.path))["items"]
        now = time.monotonic()
        if (count := sum(map(controller.ended, items))) > ended:
            ended, took = count, now - began
        if feed.changes != changes:
            changes, changed_at = feed.changes, now
        if ended == JOBS or now - began > LIMIT_SECONDS or now - changed_at > STALL_SECONDS:
            return ended, took
        await asyncio.sleep(_POLL_SECONDS)
