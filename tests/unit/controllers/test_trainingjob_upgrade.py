"""Tests of jobs whose pods and status come from an earlier operator. The status has no layout, and the pods
have no container name and another intent hash.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_crds.terms import ANNOTATION_CONTAINER, ANNOTATION_INTENT
from convoy_crds.trainingjob_status import Phase

SAVES = {"tiers": {"local": {}}}


def inherited(**spec: Any) -> ToyCluster:
    """Return a running job as an earlier operator left it."""
    cluster = ToyCluster(make_job(**{"checkpoint": SAVES, **spec}), make_engine()).settle().train(5).settle()
    cluster.job.status.internal.layout = ""
    age(cluster)
    return cluster


def age(cluster: ToyCluster) -> None:
    """Give the pods the annotations that an earlier operator wrote."""
    for name, pod in list(cluster.pods.items()):
        annotations = {key: value for key, value in pod.annotations.items() if key != ANNOTATION_CONTAINER}
        cluster.pod(name, annotations={**annotations, ANNOTATION_INTENT: "earlier"})


def made(cluster: ToyCluster, since: int) -> tuple[int, int]:
    """Return the number of pods created, and of pods deleted, since the plan with number `since`."""
    plans = cluster.plans[since:]
    return sum(len(one.manifests) for one in plans), sum(len(one.deletions) for one in plans)


ELASTIC = [{"name": "worker", "replicas": 3, "minReplicas": 1}]


@pytest.mark.parametrize("spec", [{}, {"roles": ELASTIC}, {"recovery": {"fencing": "Strict"}}])
def test_running_job_continues(spec: dict[str, Any]) -> None:
    cluster = inherited(**spec)
    before, plans = cluster.uids, len(cluster.plans)
    for step in (6, 7):
        cluster.wait(60).train(step).settle()
    assert made(cluster, plans) == (0, 0)
    assert (cluster.uids, cluster.job.status.phase, cluster.job.status.incarnation) == (
        before,
        Phase.RUNNING,
        1,
    )
    assert cluster.job.status.restarts.total == 0
    cluster.exit_all().settle()
    assert cluster.job.status.phase is Phase.SUCCEEDED


def test_next_restart_recreates_the_pods_once() -> None:
    cluster = inherited()
    plans = len(cluster.plans)
    cluster.exit(1, 1).settle()
    assert cluster.job.status.phase is Phase.RUNNING
    assert made(cluster, plans) == (2, 2)
    plans = len(cluster.plans)
    cluster.train(20).wait(60).exit(1, 1).settle()
    assert made(cluster, plans) == (0, 0), "from then on ranks restart in their pods"


def test_inherited_job_is_suspended_and_resumed() -> None:
    cluster = inherited().spec(suspend=True).settle()
    assert cluster.job.status.phase is Phase.SUSPENDED and not cluster.pods
    cluster.spec(suspend=False).settle()
    assert cluster.job.status.phase is Phase.RUNNING and cluster.job.status.internal.layout


def test_waiting_job_recreates_its_pods_once() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.schedulable = False
    cluster.settle()
    cluster.job.status.internal.layout = ""
    age(cluster)
    plans = len(cluster.plans)
    cluster.settle()
    assert made(cluster, plans) == (2, 2) and cluster.job.status.internal.layout
