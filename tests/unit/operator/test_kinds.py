"""What plans are shown, and what is said of objects that no model accepts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from convoy_controllers.checkpointstore.observed import Observed as ObservedStore
from convoy_controllers.checkpointstore.observed import Secret
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_controllers.views import NodeView
from convoy_operator import kinds, views
from convoy_operator.world import World

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Hub:
    """Has heard nothing, and keeps which pods it was asked about."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def slots(self, pods: Any) -> dict[str, Any]:
        self.asked.append([pod.name for pod in pods])
        return {}

    def nodes(self, pods: Any) -> dict[str, Any]:
        self.asked.append([pod.name for pod in pods])
        return {"n": NodeView("n")}

    def guard(self, job_uid: str) -> None:
        return None

    def holders(self, job_uid: str) -> tuple[str, ...]:
        return ()

    def store(self, store: Any) -> Any:
        return ObservedStore(store, "convoy-system", Secret(unreadable="there is none; create it"))


def job(spec: dict[str, Any], **status: Any) -> views.Parent:
    raw = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 3},
        "spec": spec,
    }
    return views.parent(raw | ({"status": status} if status else {}))


def plan(parent: views.Parent) -> Plan:
    return kinds.training_job(World(), Hub(), parent, {}, NOW)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"roles": [{"name": "w", "replicas": 0}]}, "spec.roles[0].replicas"),
        ({"roles": []}, "spec.roles"),
        ({"roles": [{"name": "w", "replicas": 1}], "nonsense": 1}, "spec.nonsense"),
        ({}, "spec.roles"),
    ],
)
def test_a_job_that_does_not_validate_is_said_to_be_invalid_and_where(
    spec: dict[str, Any], path: str
) -> None:
    made = plan(job(spec))
    assert made.status is not None
    (condition,) = made.status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Valid", "False", "InvalidSpec")
    assert condition["message"].startswith(f"{path}: ")
    assert made.status["phase"] == "Pending" and made.status["observedGeneration"] == 3
    assert not made.create and not made.delete
    assert [event.reason.name for event in made.events] == ["InvalidSpec"]


def test_an_invalid_job_keeps_the_rest_of_its_status() -> None:
    old = {"type": "Valid", "status": "False", "reason": "x", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    made = plan(
        job({}, phase="Running", incarnation=4, conditions=[{"type": "Running", "status": "True"}, old])
    )
    assert made.status is not None
    assert (made.status["phase"], made.status["incarnation"]) == ("Running", 4)
    assert [entry["type"] for entry in made.status["conditions"]] == ["Running", "Valid"]
    assert made.status["conditions"][1]["lastTransitionTime"] == "2025-01-01T00:00:00Z"


def test_a_job_of_another_manager_is_left_alone_even_when_invalid() -> None:
    assert plan(job({"managedBy": "kueue.x-k8s.io/multikueue"})) == Plan()


def test_the_plan_sees_pods_of_the_jobs_label_and_the_engine_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(kinds, "plan_training_job", lambda observed, now: seen.append(observed) or Plan())
    world = World()
    engine = {
        "metadata": {"name": "odb", "uid": "e", "resourceVersion": "1"},
        "spec": {"image": "i", "command": ["python3", "x"]},
    }
    world.engines.upsert(views.parent(engine))
    for name, label, namespace, owner in (
        ("a", "j", "ns", "u"),
        ("b", "other", "ns", "u"),
        ("c", "j", "elsewhere", "u"),
        ("d", "j", "ns", "another"),
    ):
        world.pods.upsert(
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
    hub = Hub()
    kinds.training_job(world, hub, parent, {"a": Refusal("why")}, NOW)
    (observed,) = seen
    assert [pod.name for pod in observed.pods] == ["a", "d"]
    assert hub.asked == [["a"], ["a", "d"]], (
        "others' reports are no business of this job's, their nodes may be"
    )
    assert observed.nodes == {"n": NodeView("n")}
    assert observed.engine.metadata.name == "odb" and observed.known_engines == ("odb",)
    assert observed.create_errors == {"a": Refusal("why")}


def store(name: str, *namespaces: str, **s3: Any) -> views.Parent:
    body = {"bucket": "checkpoints", "credentialsSecret": "keys", **s3}
    spec = {"s3": body, "allowedNamespaces": list(namespaces)}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 2}
    return views.parent({"kind": "CheckpointStore", "metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("named", "found"), [("mine", "mine"), ("nobodys", None), ("broken", None), (None, None)]
)
def test_the_plan_sees_the_store_that_the_job_names_and_those_it_may_name(
    monkeypatch: pytest.MonkeyPatch, named: str | None, found: str | None
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(kinds, "plan_training_job", lambda observed, now: seen.append(observed) or Plan())
    world = World()
    for one in (store("mine", "ns"), store("all", "*"), store("others", "else"), store("broken", "*", x=1)):
        world.checkpoint_stores.upsert(one)
    tiers = {"local": {}, "remote": {"store": named}} if named else {}
    roles = [{"name": "w", "replicas": 1}]
    kinds.training_job(world, Hub(), job({"roles": roles, "checkpoint": {"tiers": tiers}}), {}, NOW)
    (observed,) = seen
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
def test_a_store_says_what_is_wrong_with_it(parent: views.Parent, reason: str, words: str) -> None:
    made = kinds.checkpoint_store(World(), Hub(), parent, {}, NOW)
    assert made.status is not None
    (condition,) = made.status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", reason)
    assert condition["observedGeneration"] == 2 and words in condition["message"]
