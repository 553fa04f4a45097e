"""Tests of the metrics of one job's recoveries, as the operator measures them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from convoy_controllers.cached import CachedObject, Pod
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob.timeline import RecoveryPhase
from convoy_controllers.views import PodView, RankView, SlotView
from convoy_crds.terms import ANNOTATION_BORN
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.metrics import Metrics
from convoy_operator.recovery_meter import RecoveryMeter

FORMED = {"internal": {"incarnation": {"membership": "m"}}}
"""Status of a job whose incarnation has formed."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Harness:
    """A recovery meter with one job. Times are seconds after `BEGIN`."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.cache = ClusterCache()
        self.time = 0.0
        self.slots: dict[str, SlotView] = {}
        self.version = 0
        self.meter = self.another()

    def another(self) -> RecoveryMeter:
        def slots(pods: tuple[PodView, ...]) -> Mapping[str, SlotView]:
            return {pod.uid: self.slots[pod.uid] for pod in pods if pod.uid in self.slots}

        return RecoveryMeter(self.metrics, self.cache, slots, lambda: self.at(self.time))

    @staticmethod
    def at(seconds: float) -> float:
        return BEGIN.timestamp() + seconds

    def job(
        self, phase: str, incarnation: int, total: int = 1, uid: str = "job", **status: Any
    ) -> CachedObject:
        self.version += 1
        raw = {
            "metadata": {"name": "job", "namespace": "ns"},
            "spec": {"checkpoint": {"tiers": {"local": {}}}},
            "status": {"phase": phase, "incarnation": incarnation, **status},
        }
        made = CachedObject("ns", "job", uid, self.version, raw)
        self.cache.jobs.upsert(made)
        return made

    def restarts(self, decided: float, fault_at: float = 0.0, **more: Any) -> None:
        """Store a status with a restart to incarnation 2."""
        last = {"reason": "RankKilled", "at": (BEGIN + timedelta(seconds=decided)).isoformat()}
        self.time = decided
        restarts = {"total": 1, "last": last}
        before = self.job("Running", 1, **more)
        plan = Plan(status={"restarts": restarts}, fault_at=self.at(fault_at) if fault_at else 0.0)
        self.meter.before_status_write(before, plan)
        self.job("Restarting", 2, restarts=restarts, **more)

    def pod(self, uid: str, born: int, node: str | None, owner: str = "job", namespace: str = "ns") -> None:
        self.version += 1
        view = PodView(
            f"pod-{uid}", uid, "Running", node, annotations={ANNOTATION_BORN: str(born)}, owner_uid=owner
        )
        self.cache.pods.upsert(Pod(namespace, self.version, "job", view))

    def rank(self, uid: str, incarnation: int, **moments: float) -> None:
        known = {name: self.at(moment) for name, moment in moments.items() if name != "restore_seconds"}
        facts: dict[str, Any] = {**moments, **known}
        self.slots[uid] = SlotView(uid, "n", True, incarnation, ranks=(RankView(0, "RUNNING", **facts),))

    def found(self) -> dict[str, tuple[float, float]]:
        """Return the number and the sum of the observations of each phase."""
        value = self.metrics.registry.get_sample_value
        both = {
            phase.value: (
                value("convoy_recovery_seconds_count", {"phase": phase}) or 0.0,
                value("convoy_recovery_seconds_sum", {"phase": phase}) or 0.0,
            )
            for phase in RecoveryPhase
        }
        return {phase: pair for phase, pair in both.items() if pair[0]}


def approx(**phases: float) -> dict[str, Any]:
    return {phase: (1, pytest.approx(seconds, abs=1e-5)) for phase, seconds in phases.items()}


def test_a_restart_in_place_has_no_scheduling_time() -> None:
    it = Harness()
    it.pod("u0", 1, "n0")
    it.restarts(10.25, fault_at=10.0)
    assert it.found() == approx(detect=0.25)
    it.pod("u0", 1, "n0")
    it.meter.after_reconcile(it.job("Restarting", 2))
    it.rank("u0", 2, started=10.5)
    it.meter.after_reconcile(it.job("Restarting", 2, **FORMED))
    assert it.found() == approx(detect=0.25), "not all ranks run yet"
    it.meter.after_reconcile(it.job("Running", 2, **FORMED))
    assert it.found() == approx(detect=0.25, start=0.25)
    it.rank("u0", 2, started=10.5, first_step=12.0, restore_seconds=1.0)
    for _ in range(2):
        it.meter.after_reconcile(it.job("Running", 2, **FORMED))
    assert it.found() == approx(detect=0.25, start=0.25, restore=1.0, first_step=0.5, total=2.0)
    assert len(it.meter) == 0


def test_a_replaced_pod_has_fencing_and_scheduling_times() -> None:
    it = Harness()
    it.pod("u0", 1, "n0")
    it.restarts(10.5, fault_at=4.5)
    it.time = 12.0
    it.pod("u1", 2, None)
    it.pod("forged", 2, None, namespace="elsewhere")
    it.time = 12.5
    it.pod("u1", 2, "n1")
    it.pod("forged", 2, "n1", namespace="elsewhere")
    it.time = 13.0
    it.pod("u1", 2, "n1")
    assert it.meter._open["job"].placings.keys() == {"u1"}, "anybody can set the job as an owner"
    it.rank("u0", 2, started=14.0, first_step=15.0)
    it.rank("u1", 2, started=14.25, first_step=15.0)
    it.meter.after_reconcile(it.job("Running", 2, **FORMED))
    assert it.found() == approx(detect=6, fence=1.5, schedule=0.5, start=1.75, first_step=0.75, total=10.5)


def test_a_leader_that_did_not_observe_the_fault_records_nothing() -> None:
    it = Harness()
    it.pod("u0", 1, "n0")
    it.restarts(10.5, fault_at=10.0)
    before, it.meter = it.found(), it.another()
    it.time = 12.0
    it.pod("u1", 2, "n1")
    it.rank("u1", 2, started=14.0, first_step=15.0)
    it.meter.after_reconcile(it.job("Running", 2, **FORMED))
    assert it.found() == before and len(it.meter) == 0


@pytest.mark.parametrize("phase", ["Suspending", "Suspended", "Failed", "Succeeded"])
def test_a_job_that_stops_before_a_step_is_dropped(phase: str) -> None:
    it = Harness()
    it.restarts(10.5, fault_at=10.0)
    it.meter.after_reconcile(it.job(phase, 2))
    assert len(it.meter) == 0 and it.found() == approx(detect=0.5)


def test_a_deleted_or_recreated_job_is_dropped() -> None:
    it = Harness()
    it.restarts(10.5, fault_at=10.0)
    it.cache.jobs.remove(it.job("Restarting", 2))
    assert len(it.meter) == 0
    it = Harness()
    it.restarts(10.5, fault_at=10.0)
    it.job("Pending", 0, uid="another")
    assert len(it.meter) == 0


def test_a_restart_counts_once_and_only_after_it_is_stored() -> None:
    it = Harness()
    before = it.job("Running", 1)
    last = {"reason": "RankKilled", "at": BEGIN.isoformat()}
    plan = Plan(status={"restarts": {"total": 1, "last": last}}, fault_at=it.at(-1))
    value = it.metrics.registry.get_sample_value
    killed = {"reason": "RankKilled", "counted": "true"}
    for _ in range(2):
        it.meter.before_status_write(before, plan)
        it.job("Running", 1, progress={"step": 4})
    assert value("convoy_restarts_total", killed) == 0
    for _ in range(2):
        it.job("Restarting", 2, restarts={"total": 1, "last": last})
    assert value("convoy_restarts_total", killed) == 1
    it.meter.before_status_write(before, plan)
    it.cache.jobs.remove(before)
    it.job("Restarting", 2, restarts={"total": 1, "last": last}, uid="another")
    assert value("convoy_restarts_total", killed) == 1


def test_a_restart_is_counted_with_its_lost_steps() -> None:
    it = Harness()
    saved = {"incarnation": 1, "step": 30, "tier": "local", "time": BEGIN.isoformat()}
    it.restarts(100.0, fault_at=90.0, progress={"step": 42}, checkpoint=saved)
    value = it.metrics.registry.get_sample_value
    assert value("convoy_restarts_total", {"reason": "RankKilled", "counted": "true"}) == 1
    assert value("convoy_restart_lost_steps_sum") == 12
    assert value("convoy_restart_checkpoint_age_seconds_sum") == pytest.approx(90)
