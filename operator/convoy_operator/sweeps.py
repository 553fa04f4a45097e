"""Two parts of health sweeps outside their controller: garbage collection of orders, and counters of
verdicts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from convoy_controllers.cached import CachedObject
from convoy_controllers.healthsweep.observed import OrderState
from convoy_controllers.healthsweep.participant import prefix
from convoy_controllers.plan import Plan
from convoy_controllers.reader import Reader
from convoy_crds import healthsweep
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.hub.sweeps import Sweeps
from convoy_operator.metrics import Metrics

log = structlog.get_logger(__name__)

COLLECT_SECONDS = 2.0
"""Seconds between two garbage collections of orders."""


class OrderGarbageCollector:
    """Cancels the orders of sweeps that have ended or were deleted, and drops the reports on these orders.
    Only the leader runs it.
    """

    def __init__(self, reader: Reader, sweeps: Sweeps) -> None:
        self._reader = reader
        self._sweeps = sweeps

    async def run(self) -> None:
        """Collect the garbage periodically until cancelled."""
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            try:
                self.collect()
            except Exception:
                log.exception("garbage collection of sweep orders failed, will retry")

    def collect(self) -> None:
        """Find all orders whose sweep no longer runs. Cancel those that an agent still executes. Drop the
        reports on the others.
        """
        sweeps = self._reader.all(healthsweep.KIND)
        running = tuple(f"{prefix(one)}." for one in sweeps if one.status.completion_time is None)
        for node, order, report in self._sweeps.all():
            if order.startswith(running):
                continue
            if report.state is OrderState.RUNNING:
                self._sweeps.cancel(node, order)
            else:
                self._sweeps.drop_report(node, order)


class SweepMeter:
    """Counts this operator's verdicts on nodes. A verdict is counted when the status that contains the
    verdict is stored.
    """

    def __init__(self, cache: ClusterCache, metrics: Metrics) -> None:
        self._metrics = metrics
        self._pending: dict[str, frozenset[str]] = {}
        """Names of the nodes whose verdicts are being stored, by uid of the sweep."""
        cache.objects(healthsweep.KIND).listen(self._changed)

    def before_status_write(self, sweep: CachedObject, plan: Plan) -> None:
        """Remember the new verdicts of a plan whose status is about to be stored. This must come before the
        write, because the watch may report the stored status before the response arrives.
        """
        known = {one["node"] for one in _verdicts(sweep.status)}
        fresh = frozenset(one["node"] for one in _verdicts(plan.status or {})) - known
        if fresh:
            self._pending[sweep.uid] = fresh

    def after_reconcile(self, sweep: CachedObject) -> None:
        """Do nothing, because verdicts are counted when the stored status arrives in the cache."""

    def _changed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._pending.pop(before.uid, None)
        if after is None or not (waiting := self._pending.get(after.uid)):
            return
        stored = [one for one in _verdicts(after.status) if one["node"] in waiting]
        for one in stored:
            self._metrics.guard_sweeps.labels(one["verdict"]).inc()
            log.info(
                "health sweep judged a node",
                node=one["node"],
                verdict=one["verdict"],
                message=one.get("message", ""),
            )
        if stored:
            del self._pending[after.uid]


def _verdicts(status: Mapping[str, Any]) -> list[Mapping[str, str]]:
    return [one for one in status.get("nodes") or () if one.get("verdict")]
