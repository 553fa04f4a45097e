"""Scrapes the serving pods of this node whose programs do not report their requests over the pod's socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from convoy_agents import metrics
from convoy_agents.pods.state import PodState
from convoy_agents.traffic.fetch import FetchError, fetch
from convoy_agents.traffic.scrape import ScrapeError, read
from convoy_agents.wire import hub_pb2

SCRAPE_SECONDS = 5.0
"""Seconds between two scrapes of a pod."""
AT_ONCE = 8
"""Maximum number of concurrent scrapes."""

log = structlog.get_logger()


class Scraper:
    """Scrapes each serving pod periodically."""

    def __init__(
        self, pods: Callable[[], Iterable[PodState]], found: Callable[[hub_pb2.PodTraffic], None]
    ) -> None:
        """`pods` returns the pods of this node. `found` stores the totals of a pod."""
        self._pods = pods
        self._found = found
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._failing: dict[str, str] = {}
        """The newest error of each pod whose last scrape failed, by uid."""

    async def run(self) -> None:
        """Scrape until cancelled."""
        while True:
            await self.scrape_all()
            await asyncio.sleep(SCRAPE_SECONDS)

    async def scrape_all(self) -> None:
        """Scrape each pod whose ranks run, once."""
        due = [pod for pod in self._pods() if scraped(pod)]
        self._failing = {uid: why for uid, why in self._failing.items() if uid in {pod.uid for pod in due}}
        await asyncio.gather(*map(self._scrape, due))

    async def _scrape(self, pod: PodState) -> None:
        plan = pod.assignment
        if plan is None or plan.scrape is None:
            return
        async with self._turns:
            try:
                text = await fetch(plan.scrape.address, plan.scrape.port, plan.scrape.path)
                # The parser works on up to 1 MiB, so it must not block the event loop.
                totals = await asyncio.to_thread(read, text, pod.uid, plan.incarnation)
            except (FetchError, ScrapeError) as error:
                self._fail(pod, str(error))
                return
        self._failing.pop(pod.uid, None)
        metrics.SCRAPES.labels("done").inc()
        if any(one.uid == pod.uid for one in self._pods()):  # The pod may have left the node meanwhile.
            self._found(totals)

    def _fail(self, pod: PodState, why: str) -> None:
        metrics.SCRAPES.labels("failed").inc()
        if self._failing.get(pod.uid) != why:
            self._failing[pod.uid] = why
            job = pod.assignment.job if pod.assignment else ""
            log.warning("metrics of a serving pod not read", pod_uid=pod.uid, job=job, why=why)


def scraped(pod: PodState) -> bool:
    """Return True if the pod's program runs, and its metrics must be read."""
    plan = pod.assignment
    if plan is None or plan.scrape is None or not pod.connected:
        return False
    rank = pod.ranks.get(plan.rank_offset)
    return rank is not None and rank.update.state == "RUNNING"
