"""Tests of children that the API server refuses although others do not need them."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.keys import Key
from convoy_controllers.resources import ENGINES, SERVING_JOBS
from convoy_crds.engine import KIND as ENGINE
from convoy_crds.servingjob import KIND
from convoy_operator import errors, views

from .conftest import FakeApi
from .reconciling import Operator

KEY = Key(KIND.name, "ns", "llm")


@pytest.fixture
async def it(api: FakeApi) -> Operator:
    made = Operator(api)
    engine: dict[str, Any] = {"image": "convoy/serving:dev", "command": ["python"], "roleKind": "Serving"}
    job = {"spec": {"roles": [{"name": "server", "engine": {"name": "lm"}}], "replicas": 2}}
    given = (
        (ENGINE, ENGINES, "", {"metadata": {"name": "lm"}, "spec": engine}),
        (KIND, SERVING_JOBS, "ns", {"metadata": {"name": "llm", "generation": 1}, **job}),
    )
    for kind, resource, namespace, raw in given:
        made.cache.objects(kind).upsert(views.cached_object(api.put(resource, raw, namespace)))
    return made


def refuse(it: Operator, *plurals: str) -> None:
    it.api.fail = lambda verb, plural, name: (
        errors.Forbidden(403, "exceeded quota") if verb == "apply" and plural in plurals else None
    )


async def test_pods_start_although_the_service_is_refused(it: Operator) -> None:
    refuse(it, "services")
    for _ in range(20):
        await it.reconciler.handle(KEY)
        it.time += 0.1
    assert it.api.count("create", "pods") == 2
    assert 1 < it.api.count("apply", "services") < 6, "the Service is retried with back-off"
    status = it.api.objects[KIND.plural, "ns", "llm"]["status"]
    degraded = next(one for one in status["conditions"] if one["type"] == "Degraded")
    assert degraded["status"] == "True" and "llm: exceeded quota" in degraded["message"]
    it.api.fail = lambda verb, plural, name: None
    it.time += 600
    await it.reconciler.handle(KEY)
    assert (("services", "ns", "llm") in it.api.objects) and it.refusals.wait(uid(it)) is None


async def test_no_pod_starts_while_its_revision_is_refused(it: Operator) -> None:
    refuse(it, "controllerrevisions", "services")
    for _ in range(5):
        await it.reconciler.handle(KEY)
        it.time += 0.1
    assert it.api.count("create", "pods") == 0


async def test_a_refused_pod_does_not_end_the_back_off_of_a_refused_service(it: Operator) -> None:
    it.api.fail = lambda verb, plural, name: (
        errors.Forbidden(403, "exceeded quota") if plural in ("services", "pods") else None
    )
    for _ in range(100):
        await it.reconciler.handle(KEY)
        it.time += 0.1
    assert it.api.count("apply", "services") <= 10 and it.api.count("create", "pods") <= 20


def uid(it: Operator) -> str:
    found = it.cache.objects(KIND).get("ns", "llm")
    assert found is not None
    return str(found.uid)
