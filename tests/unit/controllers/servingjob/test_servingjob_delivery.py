"""Tests of the delivery of models to pods: orders, the wait of the ranks, and failures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controllers.servingjob.servers import Servers, make_store, make_trained

from convoy_controllers.commands import DeliverModel
from convoy_controllers.views import ModelSource

FAILURES = {
    "NOT_FOUND": "ModelNotFound",
    "DIGEST_MISMATCH": "ModelDigestMismatch",
    "STORE_UNREACHABLE": "ModelStoreUnreachable",
    "NOT_STORED": "ModelNotStored",
    "IN_JOURNAL": "ModelInJournal",
}


def serving(**spec: object) -> Servers:
    """Return a job that follows the newest generation, which is step 10."""
    source = {"job": "train", "store": "s3", "follow": True}
    servers = Servers(model={"checkpoint": source}, **spec)
    servers.store, servers.source = make_store(), make_trained(10)
    return servers


def fails(servers: Servers, step: int, kind: str = "DIGEST_MISMATCH") -> None:
    servers.model = lambda order: (kind, "the cause.") if order.source.step == step else ("", "")


def test_every_pod_gets_one_order_before_its_ranks_start() -> None:
    servers = serving().settle()
    source = ModelSource("default", "uid-train", "s3", 1, 10)
    assert [one.source for one in servers.delivered] == [source] * 2
    assert {one.pod_uid for one in servers.delivered} == {one.pod_uid for one in servers.assigned}
    assert all(one.node for one in servers.delivered)


def test_a_rank_waits_as_long_as_its_model_is_read() -> None:
    servers = serving(replicas=1)
    servers.model = lambda order: ("LOADING", "")  # Replaced below: a delivery that has not ended.
    servers.step()
    servers.run(2)
    (uid,) = servers.slots
    view = servers.slots[uid]
    assert view.model is not None
    servers.slots[uid] = replace(view, model=replace(view.model, failure=""))
    servers.run(3)
    assert not servers.assigned
    message = next(one.message for one in servers.job.status.conditions if one.type == "Available")
    assert "llm-worker-0-0 waits until node node-0 has read its model from 's3'" in message
    servers.slots[uid] = replace(view, model=replace(view.model, failure="", ready=True))
    servers.settle()
    assert servers.job.status.ready == "1/1"


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failed_delivery_is_named_and_starts_no_rank(kind: str) -> None:
    servers = serving(replicas=1)
    fails(servers, 10, kind)
    servers.settle()
    condition = next(one for one in servers.job.status.conditions if one.type == "ModelReady")
    assert (condition.status, condition.reason) == ("False", FAILURES[kind])
    assert "llm-worker-0-0" in condition.message and "node-0" in condition.message
    assert "the cause" in condition.message and ".." not in condition.message
    assert servers.job.status.reason == FAILURES[kind]
    assert servers.events.count(FAILURES[kind]) == 1
    assert not servers.assigned and not servers.record().times, "nothing crashes, so nothing restarts"


def test_a_message_about_a_deleted_job_shows_how_to_find_its_checkpoints() -> None:
    checkpoint = {"uid": "uid-gone", "store": "s3", "step": 7}
    servers = Servers(model={"checkpoint": checkpoint}, replicas=1)
    servers.store = make_store()
    fails(servers, 7, "NOT_FOUND")
    servers.settle()
    message = next(one.message for one in servers.job.status.conditions if one.type == "ModelReady")
    assert "convoy checkpoint ls NAME --store s3 --uid uid-gone" in message


def test_a_failed_delivery_halts_the_rollout_and_the_older_replicas_serve() -> None:
    servers = serving().settle().wait(700)
    fails(servers, 20)
    servers.source = make_trained(20)
    servers.run(20)
    assert servers.condition["Progressing"] == ("False", "RevisionFailed")
    assert servers.condition["ModelReady"] == ("False", "ModelDigestMismatch")
    message = next(one.message for one in servers.job.status.conditions if one.type == "Progressing")
    assert "the cause" in message and "convoy rollout undo llm" in message
    assert servers.serving == 2 and servers.condition["Available"][0] == "True"
    orders = [one for one in servers.delivered if one.source.step == 20]
    assert len(orders) == 1, "the agent tries again by itself"


def test_a_rollout_goes_on_when_the_delivery_succeeds_after_all() -> None:
    servers = serving().settle().wait(700)
    fails(servers, 20, "STORE_UNREACHABLE")
    servers.source = make_trained(20)
    servers.run(10)
    assert servers.condition["Progressing"] == ("False", "RevisionFailed")
    servers.model = lambda order: ("", "")
    servers.retry_deliveries().settle()
    assert servers.condition["Progressing"] == ("True", "RolloutComplete")
    assert servers.condition["ModelReady"] == ("True", "ModelChosen")
    assert servers.job.status.ready == "2/2"


def test_a_still_newer_generation_repairs_a_failed_delivery() -> None:
    servers = serving().settle().wait(700)
    fails(servers, 20)
    servers.source = make_trained(20)
    servers.run(10)
    servers.wait(700).source = make_trained(30)
    servers.settle()
    model = servers.job.status.model
    assert model is not None and model.step == 30
    assert servers.condition["ModelReady"] == ("True", "ModelChosen")
    assert servers.job.status.ready == "2/2"


def test_a_namespace_that_lost_the_store_gets_no_more_models_from_it() -> None:
    servers = serving(replicas=1).settle()
    servers.stores = []
    servers.delivered.clear()
    servers._remove("llm-worker-0-0")
    servers.run(5)
    assert not servers.delivered
    assert servers.condition["ModelReady"] == ("False", "ModelMissing")
    assert "spec.allowedNamespaces" in next(
        one.message for one in servers.job.status.conditions if one.type == "ModelReady"
    )
    servers.stores = ["s3"]
    servers.settle()
    assert servers.job.status.ready == "1/1" and len(servers.delivered) == 1


def test_progress_of_a_download_extends_the_deadline_of_the_rollout() -> None:
    servers = serving(rollout={"progressDeadlineSeconds": 60}).settle().wait(700)
    servers.source = make_trained(20)
    loading = True

    def model(order: DeliverModel) -> tuple[str, str]:
        return ("LOADING", "") if order.source.step == 20 and loading else ("", "")

    servers.model = model
    for _ in range(20):
        servers.run(1, 10)
        for uid, view in servers.slots.items():
            if view.model is not None and not view.model.ready:
                at = servers.now.timestamp()
                servers.slots[uid] = replace(view, model=replace(view.model, failure="", progress=at))
    assert servers.condition["Progressing"] == ("True", "RollingOut")
    servers.run(10, 10)
    assert servers.condition["Progressing"] == ("False", "ProgressDeadlineExceeded")
    message = next(one.message for one in servers.job.status.conditions if one.type == "Progressing")
    assert "waits until node" in message
    loading = False
    servers.retry_deliveries().settle()
    assert servers.job.status.ready == "2/2"
