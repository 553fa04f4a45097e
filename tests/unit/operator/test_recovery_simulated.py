"""Tests that compare the operator's measurements of simulated recoveries with the true times."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from convoy_controllers.cached import CachedObject, Pod
from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import ClusterEvent, FirstStep, PlanMade, StatusStored
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.program import Program
from convoy_controllers.testing.builders import make_engine, make_job
from convoy_controllers.trainingjob.timeline import RecoveryPhase
from convoy_controllers.views import PodView
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.metrics import Metrics
from convoy_operator.recovery_meter import RecoveryMeter

OWN_IMAGE = {"spec": {"containers": [{"image": "mine", "command": ["python", "train.py"]}]}}
STRICT = {"engine": None, "roles": [{"name": "worker", "replicas": 2, "template": OWN_IMAGE}]}


class Watched:
    """A simulated cluster with one job, and the recovery meter of its operator."""

    def __init__(self, **spec: Any) -> None:
        machines = [Machine(f"node-{number}", capacity=1) for number in range(4)]
        self.cluster = Cluster(machines, engines=[make_engine()])
        self.faults = Faults(self.cluster)
        self.metrics = Metrics()
        self.cache = ClusterCache()
        self.versions = itertools.count(1)
        self.seen: PlanMade | None = None
        self.steps: list[float] = []
        self.meter = RecoveryMeter(self.metrics, self.cache, self.slots, lambda: self.cluster.kernel.now)
        self.cluster.listeners.append(self.record)
        self.cluster.operator.lead()
        self.cluster.submit(make_job(**spec), Program())

    def node(self) -> str:
        """Return the node of the job's second worker."""
        return self.cluster.api.pods["job-worker-1"].node or ""

    def slots(self, pods: tuple[PodView, ...]) -> Any:
        return self.seen.observed.slots if self.seen else {}

    def parent(self, job: TrainingJob) -> CachedObject:
        one, version = job.metadata, str(next(self.versions))
        metadata = {"name": one.name, "namespace": one.namespace, "uid": one.uid, "resourceVersion": version}
        parent = views.cached_object({**job.to_dict(), "metadata": metadata})
        self.cache.jobs.upsert(parent)
        return parent

    def record(self, event: ClusterEvent) -> None:
        match event:
            case PlanMade():
                self.seen = event
                self.pods(event.observed.pods)
                self.meter.after_reconcile(self.parent(event.observed.job))
                self.meter.before_status_write(self.parent(event.observed.job), event.plan)
            case StatusStored():
                self.parent(event.after)
            case FirstStep():
                self.steps.append(self.cluster.kernel.now)

    def pods(self, found: tuple[PodView, ...]) -> None:
        deleted = [pod for pod in self.cache.pods if pod.uid not in {view.uid for view in found}]
        for pod in deleted:
            self.cache.pods.remove(pod)
        for view in found:
            self.cache.pods.upsert(Pod("default", next(self.versions), "job", view))

    def phases(self) -> dict[str, float]:
        """Return the observed seconds of each phase. Each phase must be observed only once."""
        value = self.metrics.registry.get_sample_value
        found = {}
        for phase in RecoveryPhase:
            count = value("convoy_recovery_seconds_count", {"phase": phase})
            if count:
                assert count == 1, phase
                found[phase.value] = value("convoy_recovery_seconds_sum", {"phase": phase}) or 0.0
        return found


IN_PLACE = {"detect", "start", "first_step", "total"}
REPLACED = IN_PLACE | {"fence", "schedule"}


@pytest.mark.parametrize(
    ("strike", "spec", "phases"),
    [
        (lambda it: it.faults.kill_rank("job", 1), {}, IN_PLACE),
        (lambda it: it.faults.end_rank("job", 0, 1), {}, IN_PLACE),
        (lambda it: it.faults.hang_rank("job", 1), {"recovery": {"hangSeconds": 30}}, IN_PLACE),
        (lambda it: it.faults.kill_rank("job", 1), {"recovery": {"inPlace": False}}, REPLACED),
        (lambda it: it.faults.kill_node(it.node()), {}, REPLACED),
        (lambda it: it.faults.kill_node(it.node()), STRICT, REPLACED),
    ],
    ids=["rank killed", "rank failed", "rank hung", "all pods anew", "node lost", "node lost, Strict"],
)
def test_measured_recovery_times_match_the_simulation(
    strike: Callable[[Any], None], spec: dict[str, Any], phases: set[str]
) -> None:
    it = Watched(**spec)
    it.cluster.run(20)
    assert len(it.steps) == 1 and not it.phases(), "the first start is not a recovery"
    struck = it.cluster.kernel.now
    strike(it)
    it.cluster.run(120)
    assert len(it.steps) == 2
    found = it.phases()
    assert found.keys() == phases
    # The tolerance cannot be smaller: the operator knows the time of a node's failure only from its agent's
    # last message, and the time of a hang only from the last step.
    assert found["total"] == pytest.approx(it.steps[1] - struck, abs=1.1)
    parts = sum(seconds for phase, seconds in found.items() if phase != "total")
    assert parts == pytest.approx(found["total"]), found
    assert len(it.meter) == 0


def test_an_early_second_fault_delays_the_restart() -> None:
    it = Watched()
    it.cluster.run(20)
    it.faults.kill_rank("job", 1)
    it.cluster.run(20)
    before = it.phases()
    assert before.keys() == IN_PLACE
    it.metrics = it.meter._metrics = Metrics()
    it.faults.kill_rank("job", 0)
    it.cluster.run(20)
    found = it.phases()
    assert found.keys() == IN_PLACE | {"back_off"}
    assert found["back_off"] == pytest.approx(1.0)
    assert found["start"] == pytest.approx(before["start"], abs=0.2), "the pause does not count as start"
