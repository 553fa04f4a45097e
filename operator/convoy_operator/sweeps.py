"""Health sweeps beside their controller: orders that no sweep waits for, and counts of verdicts."""

from __future__ import annotations

import asyncio

import structlog

from convoy_controllers.cached import Parent
from convoy_controllers.healthsweep.observed import Stand
from convoy_controllers.healthsweep.participant import prefix
from convoy_controllers.reader import Reader
from convoy_crds import healthsweep
from convoy_operator.hub.sweeps import Sweeps
from convoy_operator.metrics import Metrics
from convoy_operator.world import World

log = structlog.get_logger(__name__)

TIDY_SECONDS = 2.0
"""Seconds between two searches for orders that no sweep waits for."""


class SweepTidier:
    """Cancels and drops the orders that belong to no sweep that runs. The leader's alone."""

    def __init__(self, reader: Reader, sweeps: Sweeps) -> None:
        self._reader = reader
        self._sweeps = sweeps

    async def run(self) -> None:
        """Tidy again and again until cancelled."""
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            self.tidy()

    def tidy(self) -> None:
        """Cancel and drop orders once."""
        sweeps = self._reader.all(healthsweep.KIND)
        running = tuple(f"{prefix(one)}." for one in sweeps if one.status.completion_time is None)
        for node, order, told in self._sweeps.all():
            if order.startswith(running):
                continue
            if told.stand is Stand.RUNNING:
                self._sweeps.cancel(node, order)
            else:
                self._sweeps.forget(node, order)


class SweepMeter:
    """Counts the verdicts that this operator has stored."""

    def __init__(self, world: World, metrics: Metrics) -> None:
        self._metrics = metrics
        world.objects(healthsweep.KIND).listen(self._changed)

    def _changed(self, before: Parent | None, after: Parent | None, own: bool) -> None:
        if not own or after is None:
            return
        judged = {one["node"] for one in _verdicts(before)} if before is not None else set()
        for one in _verdicts(after):
            if one["node"] not in judged:
                self._metrics.guard_sweeps.labels(one["verdict"]).inc()
                log.info("swept", node=one["node"], verdict=one["verdict"], message=one.get("message", ""))


def _verdicts(sweep: Parent) -> list[dict[str, str]]:
    return [one for one in sweep.status.get("nodes") or () if one.get("verdict")]
