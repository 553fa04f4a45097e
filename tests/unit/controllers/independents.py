"""Helpers for tests of Independent roles on the toy cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_crds.trainingjob_independent import IndependentStatus

WORKER = {"name": "worker", "replicas": 2}
ROLLOUT = {"name": "rollout", "replicas": 3, "membership": "Independent"}
FIRST = "job-rollout-0"


def make_cluster(rollout: dict[str, Any] | None = None, **spec: Any) -> ToyCluster:
    """Return a cluster whose job of two workers and three Independent rollout pods runs."""
    job = make_job(roles=[WORKER, {**ROLLOUT, **(rollout or {})}], **spec)
    return ToyCluster(job, make_engine()).settle()


def end(toy: ToyCluster, pod: str = FIRST, code: int = 1, **facts: Any) -> ToyCluster:
    """Let the agent of an Independent pod report that its program has ended."""
    uid = toy.pods[pod].uid
    view = toy.views[uid]
    ended = {"state": "EXITED", "exit_code": code, "ended": toy.now.timestamp(), **facts}
    toy.views[uid] = replace(view, ranks=tuple(replace(rank, **ended) for rank in view.ranks))
    return toy


def restart(toy: ToyCluster) -> ToyCluster:
    """Let the back-off of all slots pass."""
    return toy.settle().wait(61.0).settle()


def counts(toy: ToyCluster) -> IndependentStatus:
    """Return the counts of the Independent role."""
    found = toy.job.status.roles[1].independent
    assert found is not None
    return found


def group(toy: ToyCluster) -> tuple[Any, ...]:
    """Return the facts about the process group that no Independent pod may change."""
    status = toy.job.status
    uids = {name: pod.uid for name, pod in toy.pods.items() if name.startswith("job-worker-")}
    return status.phase, status.ready, status.incarnation, status.restarts, uids


def incarnation(toy: ToyCluster, pod: str = FIRST) -> int:
    """Return the incarnation that the agent of an Independent pod has."""
    return toy.views[toy.pods[pod].uid].incarnation
