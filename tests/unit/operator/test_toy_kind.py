"""Tests of a toy kind. A controller's folder and an entry in the list of controllers must be enough to add
a kind.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from tests.unit.crds.toyserver import KIND

from convoy_controllers.children import Apply, owner_reference
from convoy_controllers.controller import Makes, by_owner
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.plan import Plan
from convoy_controllers.reference import page
from convoy_controllers.resources import SERVICES, TRAINING_JOBS, resource_of
from convoy_controllers.rights import rules
from convoy_controllers.testing.builders import make_job
from convoy_operator import errors, views
from convoy_operator.reflectors import Reflectors

from .conftest import FakeApi
from .reconciling import Operator
from .toycontroller import CONTROLLER

WITH_TOY = (*CONTROLLERS, CONTROLLER)
KEY = Key("ToyServer", "ns", "toy")


class Toy(Operator):
    """One ToyServer that is reconciled together with all other kinds."""

    def __init__(self, api: FakeApi, **spec: Any) -> None:
        super().__init__(api, controllers=WITH_TOY)
        self.put(1, **spec)

    def put(self, generation: int, **spec: Any) -> None:
        """Store the ToyServer, as a user does."""
        old = self.api.objects.get((KIND.plural, "ns", "toy"), {"metadata": {}})
        metadata = {**old["metadata"], "name": "toy", "generation": generation}
        body = {**old, "apiVersion": KIND.api_version, "kind": KIND.name, "metadata": metadata, "spec": spec}
        self.cache.upsert(resource_of(KIND), self.api.put(resource_of(KIND), body, "ns"))

    @property
    def service(self) -> dict[str, Any] | None:
        return self.api.objects.get((SERVICES.plural, "ns", "toy"))

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects[KIND.plural, "ns", "toy"].get("status", {})
        return found


@pytest.fixture
async def it(api: FakeApi) -> Toy:
    return Toy(api, replicas=2)


async def test_the_service_is_applied_once_and_the_status_is_stored(it: Toy) -> None:
    for _ in range(3):
        await it.reconciler.handle(KEY)
    assert it.service is not None
    owner = it.api.objects[KIND.plural, "ns", "toy"]["metadata"]["uid"]
    assert it.service["metadata"]["ownerReferences"][0]["uid"] == owner
    assert it.service["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "convoy-operator"}
    assert it.status == {"replicas": 2}
    assert it.api.count("apply", "services") == 1 and it.api.count("create", "services") == 0
    assert it.api.count("patch_status", "toyservers") == 1


async def test_a_service_that_is_no_longer_wanted_is_deleted(it: Toy) -> None:
    await it.reconciler.handle(KEY)
    it.put(2, replicas=0)
    await it.reconciler.handle(KEY)
    assert it.service is None and it.status == {"replicas": 0}


async def test_a_changed_intent_is_applied(it: Toy) -> None:
    await it.reconciler.handle(KEY)
    known = dict(it.service or {})
    known["metadata"] = {**known["metadata"], "annotations": {"convoy.dev/intent-hash": "another"}}
    it.cache.upsert(SERVICES, it.api.put(SERVICES, known, "ns"))
    before = it.api.count("apply", "services")
    await it.reconciler.handle(KEY)
    assert it.api.count("apply", "services") == before + 1


async def test_fields_changed_by_others_are_restored(it: Toy) -> None:
    """Take over an applied field as another manager: three times with long pauses, then once more at once.
    The operator must repair the field each time, but must delay the last repair
    (kubernetes-sigs/mcp-lifecycle-operator#276).
    """

    def owned_by(who: str) -> None:
        ours = {"manager": "convoy-operator", "operation": "Apply", "fieldsV1": {"f:less": {who: {}}}}
        known = {**(it.service or {}), "spec": {"selector": {"somebody": who}}}
        known["metadata"] = {**known["metadata"], "managedFields": [ours]}
        it.cache.upsert(SERVICES, it.api.put(SERVICES, known, "ns"))

    await it.reconciler.handle(KEY)
    intended, applies = (it.service or {})["spec"], it.api.count("apply", "services")
    for number in range(1, 4):
        owned_by(f"f:{number}")
        it.time += 1000.0
        await it.reconciler.handle(KEY)
        assert (it.service or {})["spec"] == intended and it.api.count(
            "apply", "services"
        ) == applies + number
        assert KEY not in it.queue
    owned_by("f:again")
    await it.reconciler.handle(KEY)
    assert it.api.count("apply", "services") == applies + 3, "too early"
    assert KEY in it.queue, "the apply is retried later"
    it.put(2, replicas=0)
    await it.reconciler.handle(KEY)
    assert it.service is None


async def test_an_object_of_an_earlier_process_is_applied_once(it: Toy) -> None:
    await it.reconciler.handle(KEY)
    after = Operator(it.api, controllers=WITH_TOY)
    for resource in (resource_of(KIND), SERVICES):
        after.cache.upsert(resource, it.api.objects[resource.plural, "ns", "toy"])
    before = it.api.count("apply", "services")
    for _ in range(3):
        await after.reconciler.handle(KEY)
    assert it.api.count("apply", "services") == before + 1


async def test_a_service_created_concurrently_by_others_is_not_changed(it: Toy) -> None:
    found = it.api.get

    async def get(*arguments: Any) -> Any:
        try:
            return await found(*arguments)
        finally:
            it.api.put(SERVICES, {"metadata": {"name": "toy"}, "spec": {"ports": [{"port": 1}]}}, "ns")

    it.api.get = get  # type: ignore[method-assign]
    await it.reconciler.handle(KEY)
    assert (it.service or {})["spec"] == {"ports": [{"port": 1}]} and KEY in it.queue


async def test_a_foreign_service_is_not_changed(it: Toy) -> None:
    it.api.put(SERVICES, {"metadata": {"name": "toy"}, "spec": {"ports": [{"port": 1}]}}, "ns")
    await it.reconciler.handle(KEY)
    assert (it.service or {})["spec"] == {"ports": [{"port": 1}]}
    assert it.status["conditions"][0]["message"] == (
        "Service toy exists and has another owner; delete it or rename its parent"
    )
    tries = it.api.count("get", "services")
    await it.reconciler.handle(KEY)
    assert it.api.count("get", "services") == tries, "not at every reconcile"
    assert KEY in it.queue, "the apply is retried later"


async def test_a_deleted_service_wakes_its_owner(it: Toy) -> None:
    await it.reconciler.handle(KEY)
    it.trigger()
    (known,) = it.cache.store(SERVICES)
    assert KEY not in it.queue
    it.cache.drop(SERVICES, known.uid)
    assert KEY in it.queue


async def test_an_invalid_object_gets_a_condition(it: Toy) -> None:
    it.put(2, replicas=99)
    await it.reconciler.handle(KEY)
    (condition,) = it.status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", "InvalidSpec")
    assert condition["message"].startswith("spec.replicas: ")
    assert it.service is None


async def test_an_unavailable_server_is_retried(it: Toy) -> None:
    it.api.fail = lambda verb, plural, name: errors.Unavailable(503, "away") if plural == "services" else None
    await it.reconciler.handle(KEY)
    assert it.status == {} and KEY in it.queue


def test_rights_of_the_operator_match_the_needs_of_its_plans() -> None:
    before, after = rules(CONTROLLERS), rules(WITH_TOY)
    needed = {one["resources"][0]: one["verbs"] for one in rules((CONTROLLER,))}
    assert needed == {
        "services": ["get", "list", "watch", "create", "patch", "delete"],
        "toyservers": ["list", "watch"],
        "toyservers/finalizers": ["update"],
        "toyservers/status": ["patch"],
    }
    assert all(one in after for one in before)


def test_watched_objects_are_cached(api: FakeApi) -> None:
    it = Toy(api)
    kept = views.cached_object(api.put(SERVICES, {"metadata": {"name": "s"}}, "ns"))
    it.cache.store(SERVICES).upsert(kept)
    assert it.cache.child(SERVICES, "ns", "s") is kept


def job(name: str, uid: str, owner: str, **labels: str) -> dict[str, Any]:
    raw = make_job(name=name).to_dict()
    owners = [owner_reference(KIND.api_version, KIND.name, "toy", owner)]
    raw["metadata"] |= {"namespace": "ns", "uid": uid, "labels": labels, "ownerReferences": owners}
    return raw


async def test_children_of_a_reconciled_kind_are_in_the_cache_of_that_kind(api: FakeApi) -> None:
    def plan(observed: object, now: datetime) -> Plan:
        return Plan(prune=(TRAINING_JOBS,))

    makes = (Makes(TRAINING_JOBS, (Apply,)),)
    parent = replace(CONTROLLER, plan=plan, makes=makes, watches=(by_owner(KIND, TRAINING_JOBS),))
    it = Operator(api, controllers=(*CONTROLLERS, parent))
    toy = {"apiVersion": KIND.api_version, "kind": KIND.name, "metadata": {"name": "toy"}, "spec": {}}
    it.cache.upsert(resource_of(KIND), api.put(resource_of(KIND), toy, "ns"))
    (owner,) = it.cache.objects(KIND)
    managed = {"app.kubernetes.io/managed-by": "convoy-operator"}
    for name, labels in (("applied", managed), ("a-person-s", {})):
        it.cache.upsert(TRAINING_JOBS, api.put(TRAINING_JOBS, job(name, name, owner.uid, **labels), "ns"))
    leaving = job("leaving", "leaving", owner.uid, **managed)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    it.cache.upsert(TRAINING_JOBS, api.put(TRAINING_JOBS, leaving, "ns"))
    assert it.cache.store(TRAINING_JOBS) is it.cache.jobs and len(it.cache.jobs) == 3
    await it.reconciler.handle(KEY)
    left = [name for plural, _, name in api.objects if plural == TRAINING_JOBS.plural]
    assert left == ["a-person-s", "leaving"], "a second DELETE would be for nothing"
    kept = Reflectors(api, it.cache, it.metrics, 600.0, it.controllers)
    assert TRAINING_JOBS not in it.cache.labelled
    assert len(kept._labelled) + len(kept._optional) == len(it.cache.labelled) + len(it.cache.whole)


def test_the_page_of_controllers_has_the_toy_kind() -> None:
    assert (
        "## ToyServer\n\nServes a toy.\n\n- Also queued by changes of: Service.\n- A plan applies: Service."
        in page(WITH_TOY)
    )
