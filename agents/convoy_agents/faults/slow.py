"""SlowRank and SlowNode: a lower processor quota for the containers of a pod, or of all the Experiment's pods
on the node.

The quota is the processor time that the container used before the fault, divided by the factor. So a program
that computes all the time takes this factor longer. Measured magnitude: used processor time per second before
the fault, divided by that during the fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from convoy_agents.faults.error import FaultError, TargetGone
from convoy_agents.faults.fault import Fault, Target
from convoy_agents.faults.pod_processes import Container, containers, ranks_container
from convoy_crds.perturbations import PerturbationKind

BASELINE_SECONDS = 2.0
"""Seconds for which the processor time is measured before the fault."""
MEASURE_SECONDS = 1.0
"""Shortest time of the fault after which its magnitude is measured."""
MIN_CORES = 0.02
"""Processors that a container must use at least. Otherwise a lower quota would not slow it."""


class Slow(Fault):
    """A processor quota that makes a program slower by a factor."""

    def start(self, target: Target) -> None:
        """Begin to measure the processor time before the fault."""
        if self.order.kind == PerturbationKind.SLOW_RANK and target.processes > 1:
            raise FaultError(
                f"the pod has {target.processes} ranks in one container: SlowRank needs "
                "processesPerReplica: 1"
            )
        self._began = self.around.clock()
        self._cores = 0.0
        """Number of processors to which each container is limited; 0 until there is a limit."""
        self._baseline = 0.0
        self._used = self._measured_seconds = 0.0
        self._last = self._usage(self._containers(target))
        self._last_at = self._began

    def keep(self, target: Target) -> None:
        """Measure the processor time. After BASELINE_SECONDS, limit all containers that are not limited."""
        now = self.around.clock()
        if not self._cores and now - self._began < BASELINE_SECONDS:
            return
        try:
            found = self._containers(target)
        except FaultError:
            if not self.active:
                raise
            return  # The ranks restart. Their container may be another one afterwards.
        usage = self._usage(found)
        busiest = max((usage[path] - self._last[path] for path in usage if path in self._last), default=0.0)
        elapsed, self._last, self._last_at = now - self._last_at, usage, now
        if not self._cores:
            self._baseline = busiest / elapsed if elapsed > 0 else 0.0
            if self._baseline < MIN_CORES:
                raise FaultError(
                    f"the pod uses {self._baseline:.3f} processors, too few to slow it: start the fault later"
                )
            self._cores = self._baseline / self.order.magnitude
        else:
            self._used, self._measured_seconds = self._used + busiest, self._measured_seconds + elapsed
            if self._measured_seconds >= MEASURE_SECONDS and self._used > 0:
                self.record.achieved = self._baseline / (self._used / self._measured_seconds)
        self._limit(found)

    def undo(self) -> None:
        """Restore the quotas of all containers that still exist."""
        for path, quota in self.record.undo.get("quotas", {}).items():
            Container(self.around.node, path).set_quota(quota)

    def _limit(self, found: Iterable[Container]) -> None:
        quotas = self.record.undo.setdefault("quotas", {})
        if self.order.magnitude == 1:  # Not even peaks may be cut off.
            self.active = True
            return
        for one in found:
            if one.path not in quotas:
                with contextlib.suppress(TargetGone):
                    quotas[one.path] = one.quota()
                    self.save()
                    one.limit_cores(self._cores)
                    self.active = True

    def _containers(self, target: Target) -> list[Container]:
        if self.order.kind == PerturbationKind.SLOW_RANK:
            return [ranks_container(self.around.node, target.pod_uid)]
        found: list[Container] = []
        for uid in target.members:
            with contextlib.suppress(TargetGone):  # The pod has just started or ended.
                found += containers(self.around.node, uid)
        return found

    @staticmethod
    def _usage(found: Iterable[Container]) -> dict[str, float]:
        usage = {}
        for one in found:
            with contextlib.suppress(TargetGone):
                usage[one.path] = one.cpu_seconds()
        return usage
