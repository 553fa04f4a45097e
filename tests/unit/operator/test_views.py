"""Tests of views of raw pods as kubelets and schedulers write them."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.cached import Announcement
from convoy_controllers.views import ContainerEnd
from convoy_operator import views


def raw(**more: Any) -> dict[str, Any]:
    metadata = {
        "name": "job-worker-0",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"convoy.dev/job": "job"},
        "annotations": {"convoy.dev/intent-hash": "h", "other": "x"},
        "ownerReferences": [{"uid": "no"}, {"uid": "owner", "controller": True}],
        **more.pop("metadata", {}),
    }
    spec = {"containers": [{"name": "worker", "image": "img"}], **more.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, **more}


def state(**container: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "worker", "state": container}]}


def test_a_new_pod_is_parsed() -> None:
    pod = views.pod(raw())
    assert (pod.namespace, pod.name, pod.uid, pod.version, pod.job) == ("ns", "job-worker-0", "u", 7, "job")
    view = pod.view
    assert (view.phase, view.node, view.owner_uid) == ("Pending", None, "owner")
    assert dict(view.annotations) == {"convoy.dev/intent-hash": "h"}
    assert not view.deleting


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            raw(metadata={"deletionTimestamp": "1970-01-01T00:01:40Z", "deletionGracePeriodSeconds": 30}),
            {"deleting": True, "leaving_since": 70.0, "leaves_by": 100.0},
            id="being deleted",
        ),
        pytest.param(raw(metadata={"ownerReferences": None}), {"owner_uid": None}, id="nobody's"),
        pytest.param(raw(spec={"nodeName": "n"}), {"node": "n"}, id="placed"),
        pytest.param(
            raw(
                status={
                    "conditions": [
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "reason": "Unschedulable",
                            "message": "0/3",
                        }
                    ]
                }
            ),
            {"unschedulable": "0/3"},
            id="the scheduler finds no node",
        ),
        pytest.param(
            raw(status=state(waiting={"reason": "ImagePullBackOff", "message": "no such image"})),
            {"waiting_reason": "ImagePullBackOff", "waiting_message": "no such image"},
            id="an image that cannot be pulled",
        ),
        pytest.param(
            raw(
                status={
                    "initContainerStatuses": [
                        {"name": "i", "state": {"waiting": {"reason": "ErrImagePull"}}}
                    ],
                    "containerStatuses": [
                        {"name": "worker", "state": {"waiting": {"reason": "PodInitializing"}}}
                    ],
                }
            ),
            {"waiting_reason": "ErrImagePull"},
            id="an init container behind PodInitializing",
        ),
        pytest.param(
            raw(status=state(terminated={"exitCode": 137, "reason": "OOMKilled"}) | {"phase": "Failed"}),
            {"phase": "Failed", "exit_code": 137, "termination_reason": "OOMKilled"},
            id="killed for memory",
        ),
        pytest.param(
            raw(status={"phase": "Failed", "reason": "Evicted", "message": "node was low on memory"}),
            {
                "exit_code": None,
                "termination_reason": "Evicted",
                "termination_message": "node was low on memory",
            },
            id="evicted before it ran",
        ),
        pytest.param(
            raw(
                status={
                    "containerStatuses": [
                        {"name": "side", "state": {"terminated": {"exitCode": 9}}},
                        {"name": "worker", "state": {"running": {}}},
                    ]
                }
            ),
            {"exit_code": None},
            id="a sidecar's end is not the worker's",
        ),
        pytest.param(
            raw(
                status={
                    "phase": "Failed",
                    "initContainerStatuses": [
                        {"name": "ok", "state": {"terminated": {"exitCode": 0}}},
                        {"name": "i", "state": {"terminated": {"exitCode": 3, "message": "no data"}}},
                    ],
                    **state(waiting={"reason": "PodInitializing"}),
                }
            ),
            {"exit_code": None, "failure": ContainerEnd("i", 3, "", "no data")},
            id="an init container that failed",
        ),
        pytest.param(
            raw(
                status={
                    "phase": "Running",
                    "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 3}}}],
                    **state(running={}),
                }
            ),
            {"exit_code": None},
            id="a sidecar among the init containers that is about to be restarted",
        ),
        pytest.param(
            raw(
                status={
                    "conditions": [
                        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
                    ]
                }
            ),
            {"disruption": "EvictionByEvictionAPI"},
            id="about to be evicted",
        ),
        pytest.param(
            raw(status={"conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "x"}]}),
            {"disruption": ""},
            id="not to be evicted after all",
        ),
        pytest.param(
            raw(status={"conditions": [{"type": "DisruptionTarget", "status": "True"}]}),
            {"disruption": "DisruptionTarget"},
            id="about to be evicted, without a reason",
        ),
        pytest.param(raw(status={"podIP": "10.0.0.1"}), {"ip": "10.0.0.1"}, id="with an address"),
        pytest.param(
            raw(
                metadata={"labels": None, "annotations": None},
                status={"conditions": None, "containerStatuses": None},
            ),
            {"phase": "Pending"},
            id="nulls where lists and maps should be",
        ),
    ],
)
def test_a_pod_view_reflects_the_pod_status(given: dict[str, Any], expected: dict[str, Any]) -> None:
    view = views.pod_view(given)
    assert {name: getattr(view, name) for name in expected} == expected


def node(spec: Any = None, conditions: Any = None, **labels: str) -> views.Node:
    metadata = {"name": "n", "uid": "u", "resourceVersion": "7", "labels": labels}
    return views.node({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}})


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([], False),
        (None, False),
    ],
)
def test_a_node_is_ready_if_its_ready_condition_is_true(conditions: Any, ready: bool) -> None:
    assert node(conditions=conditions).ready is ready


def test_an_unschedulable_node_is_cordoned() -> None:
    assert node({"unschedulable": True}).cordoned
    assert not node({"unschedulable": False}).cordoned and not node().cordoned


def test_a_parent_keeps_no_managed_fields() -> None:
    parent = views.cached_object(
        {
            "metadata": {
                "name": "j",
                "uid": "u",
                "resourceVersion": "3",
                "generation": 4,
                "managedFields": [{}],
            }
        }
    )
    assert "managedFields" not in parent.raw["metadata"]
    assert (parent.version, parent.generation, parent.status) == (3, 4, {})


def test_a_change_of_the_owned_fields_is_detected() -> None:
    def held(**changes: Any) -> int:
        ours = {"manager": "convoy-operator", "operation": "Apply", "fieldsV1": {"f:spec": {"f:a": {}}}}
        theirs = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:b": {}}}}
        metadata = {"name": "j", "uid": "u", "resourceVersion": "3"}
        return views.cached_object(
            {"metadata": {**metadata, "managedFields": [theirs, {**ours, **changes}]}}
        ).owned_fields

    assert held() == held(time="2026-01-01T00:00:00Z") != 0
    assert held(fieldsV1={"f:spec": {}}) not in (held(), 0)
    assert held(manager="kubectl") == held(operation="Update") == held(subresource="status") == 0


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("spec.engine.name", {"odb"}),
        ("spec.arms[].engine", {"a", "b"}),
        ("spec.arms[].none", set()),
        ("spec.none.name", set()),
        ("spec.engine[].name", set()),
        ("spec.engine", set()),
        ("spec.names[]", {"x"}),
    ],
)
def test_texts_of_a_field_path_are_found(path: str, texts: set[str]) -> None:
    arms = [{"engine": "a"}, {"engine": "b"}, {"engine": "a"}, {}, None]
    spec = {"engine": {"name": "odb"}, "arms": arms, "names": ["x", 1, ""]}
    raw = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "spec": spec}
    assert views.texts_at(path, views.cached_object(raw)) == texts


def test_a_node_keeps_the_true_conditions_that_announce_its_end() -> None:
    conditions = [
        {"type": "PreemptionScheduled", "status": "True", "message": "Preempt Started."},
        {"type": "TerminateScheduled", "status": "False"},
        {"type": "KernelDeadlock", "status": "True"},
        {"type": "PreemptScheduled", "status": "True"},
    ]
    node = views.node({"metadata": {"name": "n", "uid": "u"}, "status": {"conditions": conditions}})
    assert node.announcements == (
        Announcement("PreemptionScheduled", "Preempt Started."),
        Announcement("PreemptScheduled"),
    )
