"""Tests of the program that `helm test` runs. It trains a small job and deletes the job at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from convoy_controllers.resources import TRAINING_JOBS
from convoy_controllers.trainingjob.pods import pod
from convoy_crds.layout import slots
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import errors
from convoy_operator.chart_test import NAME, Failed, delete_job, describe, manifest, outcome, train
from convoy_operator.gateway import Object

from .conftest import FakeApi

POD = {"imagePullSecrets": [{"name": "pull"}], "tolerations": [{"operator": "Exists"}]}
BODY = manifest("sys", "gpt", {"steps": 20}, POD)
RUNNING = {"phase": "Running"}
COMPLETE = {"phase": "Succeeded", "conditions": [{"type": "Complete", "status": "True"}]}
FAILED = {
    "phase": "Failed",
    "conditions": [
        {"type": "Complete", "status": "False"},
        {"type": "Failed", "status": "True", "reason": "RestartsUsedUp", "message": "three faults"},
    ],
}
PENDING = {"phase": "Pending", "reason": "WaitingForAgent", "message": "no node has one"}


class Cluster(FakeApi):
    """An API server with an operator. Each read of the job moves the job to its next state."""

    def __init__(self, life: Sequence[Object] = (), stays: bool = False) -> None:
        super().__init__()
        self.life = list(life)
        self.stays = stays
        """True if a deleted job continues to exist."""

    async def get(self, resource: Any, namespace: str | None, name: str) -> Object:
        key = (resource.plural, namespace or "", name)
        if self.life and key in self.objects:
            self.objects[key]["status"] = self.life[0]
            self.life = self.life[1:] or self.life
        return await super().get(resource, namespace, name)

    async def delete(self, resource: Any, namespace: str | None, name: str, **how: Any) -> Object:
        if self.stays:
            self.calls.append(("delete", resource.plural, name))
            self.objects[resource.plural, namespace or "", name]["metadata"]["deletionTimestamp"] = "now"
            return {}
        return await super().delete(resource, namespace, name, **how)


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({}, None),
        (RUNNING, None),
        (PENDING, None),
        (COMPLETE, ""),
        (FAILED, "the job failed: RestartsUsedUp: three faults"),
    ],
)
def test_the_outcome_of_a_job_is_derived_from_its_status(status: Object, found: str | None) -> None:
    assert outcome({"status": status}) == found


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "the operator has not set its status yet"),
        (RUNNING, "Running"),
        (PENDING, "Pending: WaitingForAgent: no node has one"),
    ],
)
def test_the_state_of_a_job_is_described(status: Object | None, words: str) -> None:
    assert describe({"status": status}) == words


def test_the_test_job_is_valid() -> None:
    job = TrainingJob.model_validate({**BODY, "metadata": {**BODY["metadata"], "uid": "u"}})
    assert job.spec.ttl_seconds_after_finished
    (slot,) = slots(job)
    worker = pod(job, None, slot)["spec"]
    assert {name: worker[name] for name in POD} == POD
    assert [container["name"] for container in worker["containers"]] == ["worker"]


def test_a_successful_job_is_reported_and_deleted(virtual: Callable[..., Any]) -> None:
    cluster, reports = Cluster([PENDING, RUNNING, RUNNING, COMPLETE]), []
    virtual(train(cluster, BODY, 300, reports.append))
    assert reports[0] == "the operator has not set its status yet"
    assert reports[-1] == "Complete" and reports.count("Running") == 1
    assert cluster.objects == {} and cluster.count("create") == 1


@pytest.mark.parametrize(
    ("life", "words"),
    [
        ([RUNNING, FAILED], "the job failed: RestartsUsedUp"),
        ([PENDING], "did not end within 270 s; Pending: WaitingForAgent: no node has one"),
        ([], "did not end within 270 s; the operator has not set its status yet"),
    ],
)
def test_an_unsuccessful_job_is_deleted(virtual: Callable[..., Any], life: list[Object], words: str) -> None:
    cluster = Cluster(life)
    with pytest.raises(Failed, match=words):
        virtual(train(cluster, BODY, 300, lambda line: None))
    assert cluster.objects == {}


def test_a_job_of_an_earlier_test_is_deleted_first(virtual: Callable[..., Any]) -> None:
    cluster = Cluster([COMPLETE])
    cluster.put(TRAINING_JOBS, {"metadata": {"name": NAME}}, "sys")
    virtual(train(cluster, BODY, 300, lambda line: None))
    verbs = [verb for verb, _, _ in cluster.calls if verb in ("delete", "create")]
    assert verbs == ["delete", "create", "delete"]


def test_the_wait_for_a_deletion_is_limited(
    virtual: Callable[..., Any],
) -> None:
    cluster = Cluster(stays=True)
    cluster.put(TRAINING_JOBS, {"metadata": {"name": NAME}}, "sys")
    with pytest.raises(Failed, match="left by an earlier test is not deleted yet"):
        virtual(train(cluster, BODY, 300, lambda line: None))
    assert (cluster.count("create"), cluster.count("delete")) == (0, 1)
    ends = Cluster([RUNNING, COMPLETE], stays=True)
    virtual(train(ends, BODY, 300, lambda line: None))
    assert ends.count("delete") == 1


def test_a_job_deleted_by_others_is_a_failure(virtual: Callable[..., Any]) -> None:
    cluster = Cluster()
    cluster.fail = lambda verb, plural, name: (
        errors.NotFound(404, "gone") if verb == "get" and cluster.count("create") else None
    )
    with pytest.raises(Failed, match="another client deleted the job"):
        virtual(train(cluster, BODY, 300, lambda line: None))


def test_without_rights_a_deletion_raises_forbidden(virtual: Callable[..., Any]) -> None:
    cluster = Cluster()
    cluster.fail = lambda verb, plural, name: errors.Forbidden(403, "no")
    with pytest.raises(errors.Forbidden):
        virtual(delete_job(cluster, "sys"))
