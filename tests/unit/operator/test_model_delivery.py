"""Tests of orders to deliver models: their messages, the agents' reports, and the stores that agents need."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.hub_agents import report
from tests.unit.operator.store_hub import Harness

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.commands import DeliverModel
from convoy_controllers.resources import CONTROLLER_REVISIONS
from convoy_controllers.views import ModelSource, ModelView
from convoy_crds.servingjob import KIND
from convoy_operator import views
from convoy_operator.hub import messages

from .conftest import FakeApi

SOURCE = ModelSource("default", "uid-train", "s3", 2, 40)
WIRE = wire.ModelSource(namespace="default", job_uid="uid-train", store="s3", incarnation=2, step=40)


@pytest.fixture
async def it(api: FakeApi) -> Harness:
    return Harness(api)


def serve(it: Harness, node: str, namespace: str = "default") -> None:
    """Add a ServingJob that loads a generation from the store, with a pod on a node."""
    role = {"name": "server", "engine": {"name": "lm"}}
    metadata: dict[str, Any] = {
        "name": "llm",
        "namespace": namespace,
        "uid": f"uid-llm-{namespace}",
        "resourceVersion": "1",
    }
    spec = {"roles": [role], "model": {"checkpoint": {"job": "train", "store": "s3"}}}
    it.cache.objects(KIND).upsert(views.cached_object({"metadata": metadata, "spec": spec}))
    pod = {
        **metadata,
        "name": f"llm-{node}",
        "uid": f"llm-{node}",
        "labels": {"convoy.dev/job": "llm", "convoy.dev/kind": KIND.name},
        "ownerReferences": [{"uid": metadata["uid"], "controller": True}],
    }
    it.cache.pods.upsert(views.pod({"metadata": pod, "spec": {"nodeName": node}}))


def test_an_order_names_the_pod_and_the_generation() -> None:
    order = messages.command(DeliverModel("n0", "u", SOURCE), lambda node: "", lambda token: "")
    assert order.deliver_model == wire.DeliverModel(pod_uid="u", source=WIRE)


def test_a_report_shows_the_state_of_a_delivery() -> None:
    def view(**model: Any) -> ModelView | None:
        given = report()
        given.model.CopyFrom(wire.ModelReport(source=WIRE, **model))
        return messages.slot_view(given, "n0").model

    assert messages.slot_view(report(), "n0").model is None
    assert view(progress_unix_ms=1500) == ModelView(SOURCE, progress=1.5)
    assert view(state=wire.ModelReport.READY) == ModelView(SOURCE, ready=True)
    failed = view(state=wire.ModelReport.FAILED, failure=wire.ModelReport.NOT_FOUND, message="x" * 9000)
    assert failed == ModelView(SOURCE, failure="NOT_FOUND", message="x" * 2048)
    unknown = view(state=wire.ModelReport.FAILED, failure=99)
    assert unknown is not None and unknown.failure == "STORE_UNREACHABLE"


def test_progress_wakes_nobody_but_the_end_of_a_delivery_does() -> None:
    def slot(**model: Any) -> Any:
        given = report()
        given.model.CopyFrom(wire.ModelReport(source=WIRE, **model))
        return messages.slot_view(given, "n0")

    loading, later = slot(progress_unix_ms=1000), slot(progress_unix_ms=2000)
    assert messages.skeleton(loading) == messages.skeleton(later)
    ready = slot(state=wire.ModelReport.READY)
    assert messages.urgent(later, ready) and not messages.urgent(ready, ready)
    failed = slot(state=wire.ModelReport.FAILED, failure=wire.ModelReport.NOT_STORED)
    assert messages.skeleton(failed) != messages.skeleton(later)


async def test_an_order_follows_the_store_that_it_needs(it: Harness) -> None:
    await it.resolve()
    it.dial("n0")
    it.hub.commands.send(DeliverModel("n0", "u", SOURCE))
    store, order = it.messages("n0")
    assert store.store.name == "s3" and not store.store.probe
    assert order.deliver_model.source.step == 40


async def test_an_agent_gets_the_stores_of_the_serving_pods_on_its_node(it: Harness) -> None:
    await it.resolve()
    serve(it, "n0")
    assert [one.name for one in it.dial("n0")] == ["s3"]
    assert it.dial("n1") == []
    it.keys(accessKey="another", secretKey="one")
    await it.resolve()
    assert {one.access_key for one in it.sent("n0")} == {"another"} and it.sent("n1") == []


def revise(it: Harness, step: int, job_uid: str = "uid-job", store: str = "s3") -> None:
    """Store a revision of a ServingJob that loads a generation."""
    store_revision(it, f"{step}", {"uid": job_uid, "store": store, "incarnation": 1, "step": step})


def store_revision(it: Harness, name: str, generation: object) -> None:
    metadata = {"name": f"llm-{name}", "namespace": "default", "uid": f"r-{name}", "resourceVersion": "1"}
    raw = {"metadata": metadata, "data": {"generation": generation}}
    it.cache.store(CONTROLLER_REVISIONS).upsert(views.cached_object(raw))


async def test_agents_of_a_job_keep_the_generations_that_revisions_load(it: Harness) -> None:
    await it.resolve()
    it.job("n0")
    it.job("n1", "twin")
    for node in ("n0", "n1"):
        it.dial(node)
    revise(it, 10)
    revise(it, 20)
    revise(it, 30, store="other")
    revise(it, 40, job_uid="uid-gone")
    for number, malformed in enumerate(("x", [], {"uid": "uid-job", "store": "s3", "step": "x"})):
        store_revision(it, f"malformed-{number}", malformed)
    sent = it.poll()
    assert list(sent) == ["n0"], "the other job's agents need not keep it"
    assert [(one.job_uid, one.incarnation, one.step) for one in sent["n0"][-1].pinned] == [
        ("uid-job", 1, 10),
        ("uid-job", 1, 20),
    ]
    assert it.poll() == {}
    gone = it.cache.store(CONTROLLER_REVISIONS).by_uid("r-10")
    it.cache.store(CONTROLLER_REVISIONS).remove(gone)
    assert [one.step for one in it.poll()["n0"][-1].pinned] == [20]


async def test_serving_pods_of_other_namespaces_get_no_store(it: Harness) -> None:
    it.put("elsewhere")
    await it.resolve()
    serve(it, "n0")
    assert it.dial("n0") == []
