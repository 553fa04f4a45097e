"""Independent roles: their pods come and go without any effect on the process group."""

from __future__ import annotations

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_crds.trainingjob_status import Phase

WORKER = {"name": "worker", "replicas": 2}
ROLLOUT = {"name": "rollout", "replicas": 3, "membership": "Independent"}


def cluster(**rollout: object) -> ToyCluster:
    job = make_job(roles=[WORKER, {**ROLLOUT, **rollout}])
    return ToyCluster(job, make_engine()).settle()


def test_pods_start_after_the_group() -> None:
    toy = cluster()
    assert toy.job.status.phase is Phase.RUNNING
    assert (toy.job.status.ready, toy.job.status.independent) == ("2/2", "3/3")
    assert toy.condition["IndependentReady"] == ("True", "IndependentRunning")
