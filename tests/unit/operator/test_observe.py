"""Tests of the controllers' observations, and of the status of invalid objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from convoy_controllers.cached import CachedObject
from convoy_controllers.checkpointstore.observed import Observed as ObservedStore
from convoy_controllers.checkpointstore.observed import Secret
from convoy_controllers.keys import Key
from convoy_controllers.plan import Plan
from convoy_controllers.testing.hub import FakeHub
from convoy_controllers.trainingjob.observe import observe
from convoy_controllers.views import NodeView
from convoy_controllers.workers.refusal import Refusal
from convoy_crds import checkpointstore, engine
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.reader import ClusterReader, Models

from .conftest import FakeApi
from .reconciling import Operator


class Hub(FakeHub):
    """A fake hub that records the pods it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[list[str]] = []

    def slots(self, pods: Any) -> dict[str, Any]:
        self.requests.append([pod.name for pod in pods])
        return {}

    def nodes(self, pods: Any) -> dict[str, Any]:
        self.requests.append([pod.name for pod in pods])
        return {"n": NodeView("n")}

    def store(self, store: Any) -> Any:
        return ObservedStore(store, "convoy-system", Secret(unreadable="it does not exist; create it"))


def job(spec: dict[str, Any], **status: Any) -> CachedObject:
    raw = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 3},
        "spec": spec,
    }
    return views.cached_object(raw | ({"status": status} if status else {}))


def planned(api: FakeApi, parent: CachedObject) -> Plan:
    """Return the plan that the reconciler makes for an object."""
    it = Operator(api, Hub())
    controller = next(one for one in it.controllers if one.resource.kind == parent.raw["kind"])
    it.cache.store(controller.resource).upsert(parent)
    key = controller.key(parent.namespace, parent.name)
    return asyncio.run(it.reconciler._plan(controller, key, parent))


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"roles": [{"name": "w", "replicas": 0}]}, "spec.roles[0].replicas"),
        ({"roles": []}, "spec.roles"),
        ({"roles": [{"name": "w", "replicas": 1}], "nonsense": 1}, "spec.nonsense"),
        ({}, "spec.roles"),
    ],
)
def test_an_invalid_job_gets_a_condition_with_the_field_path(
    api: FakeApi, spec: dict[str, Any], path: str
) -> None:
    made = planned(api, job(spec))
    assert made.status is not None
    (condition,) = made.status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Valid", "False", "InvalidSpec")
    assert condition["message"].startswith(f"{path}: ")
    assert made.status["phase"] == "Pending" and made.status["observedGeneration"] == 3
    assert not made.children
    assert [event.reason.name for event in made.events] == ["InvalidSpec"]


def test_an_invalid_job_keeps_the_rest_of_its_status(api: FakeApi) -> None:
    old = {"type": "Valid", "status": "False", "reason": "x", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    made = planned(
        api, job({}, phase="Running", incarnation=4, conditions=[{"type": "Running", "status": "True"}, old])
    )
    assert made.status is not None
    assert (made.status["phase"], made.status["incarnation"]) == ("Running", 4)
    assert [entry["type"] for entry in made.status["conditions"]] == ["Running", "Valid"]
    assert made.status["conditions"][1]["lastTransitionTime"] == "2025-01-01T00:00:00Z"


def test_an_invalid_job_of_another_manager_is_ignored(api: FakeApi) -> None:
    assert planned(api, job({"managedBy": "kueue.x-k8s.io/multikueue"})) == Plan()


def test_a_plan_observes_the_labelled_pods_and_the_engine_of_the_job() -> None:
    cache, hub = ClusterCache(), Hub()
    entry = {
        "metadata": {"name": "odb", "uid": "e", "resourceVersion": "1"},
        "spec": {"image": "i", "command": ["python3", "x"]},
    }
    cache.objects(engine.KIND).upsert(views.cached_object(entry))
    for name, label, namespace, owner in (
        ("a", "j", "ns", "u"),
        ("b", "other", "ns", "u"),
        ("c", "j", "elsewhere", "u"),
        ("d", "j", "ns", "another"),
    ):
        cache.pods.upsert(
            views.pod(
                {
                    "metadata": {
                        "name": name,
                        "namespace": namespace,
                        "uid": name,
                        "resourceVersion": "1",
                        "labels": {"convoy.dev/job": label},
                        "ownerReferences": [{"uid": owner, "controller": True}],
                    }
                }
            )
        )
    parent = job({"roles": [{"name": "w", "replicas": 1}], "engine": {"name": "odb"}})
    cache.jobs.upsert(parent)
    reader = ClusterReader(cache, hub, lambda uid, generation: {"a": Refusal("why")})
    observed = observe(reader, Key("TrainingJob", "ns", "j"))
    assert observed is not None and observed.engine is not None
    assert [pod.name for pod in observed.pods] == ["a", "d"]
    assert hub.requests == [["a"], ["a", "d"]], (
        "reports on other jobs' pods are left out, their nodes are not"
    )
    assert observed.nodes == {"n": NodeView("n")}
    assert observed.engine.metadata.name == "odb" and observed.known_engines == ("odb",)
    assert observed.create_errors == {"a": Refusal("why")}


def store(name: str, *namespaces: str, **s3: Any) -> CachedObject:
    body = {"bucket": "checkpoints", "credentialsSecret": "keys", **s3}
    spec = {"s3": body, "allowedNamespaces": list(namespaces)}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 2}
    return views.cached_object({"kind": "CheckpointStore", "metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("named", "found"), [("mine", "mine"), ("nobodys", None), ("broken", None), (None, None)]
)
def test_a_plan_observes_the_store_of_the_job_and_the_allowed_stores(
    named: str | None, found: str | None
) -> None:
    cache = ClusterCache()
    for one in (store("mine", "ns"), store("all", "*"), store("others", "else"), store("broken", "*", x=1)):
        cache.objects(checkpointstore.KIND).upsert(one)
    tiers = {"local": {}, "remote": {"store": named}} if named else {}
    roles = [{"name": "w", "replicas": 1}]
    cache.jobs.upsert(job({"roles": roles, "checkpoint": {"tiers": tiers}}))
    observed = observe(ClusterReader(cache, Hub()), Key("TrainingJob", "ns", "j"))
    assert observed is not None
    assert (observed.store.metadata.name if observed.store else None) == found
    assert observed.known_stores == (("all", "mine") if named else ())


@pytest.mark.parametrize(
    ("parent", "reason", "words"),
    [
        (store("s", "*"), "SecretNotFound", "Secret 'keys' in namespace 'convoy-system'"),
        (store("s", "*", nonsense=1), "InvalidSpec", "spec.s3.nonsense: "),
        (store("s"), "InvalidSpec", "spec.allowedNamespaces: "),
    ],
)
def test_a_store_reports_its_fault(api: FakeApi, parent: CachedObject, reason: str, words: str) -> None:
    made = planned(api, parent)
    assert made.status is not None
    (condition,) = made.status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", reason)
    assert made.status["observedGeneration"] == 2 and words in condition["message"]


def test_the_error_of_an_invalid_object_has_no_traceback_frames() -> None:
    models, broken, depths = Models(), store("broken", "*", x=1), []
    for _ in range(3):
        with pytest.raises(ValidationError) as found:
            models.read(checkpointstore.KIND, broken)
        depths.append(len(found.traceback))
    assert depths[1] == depths[2]
