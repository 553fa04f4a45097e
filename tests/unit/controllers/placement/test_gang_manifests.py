"""Tests of the PodGroups and pods of each gang backend: the exact JSON, and the states that they read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.placement.gang_objects import (
    COSCHEDULING,
    NATIVE,
    PLUGINS,
    V1ALPHA2,
    V1ALPHA3,
    V1BETA1,
    VOLCANO,
    VOLCANO_GROUPS,
    scheduled,
)

from convoy_controllers.children import owner_reference
from convoy_controllers.placement.gangs import BACKENDS
from convoy_controllers.placement.gangs.backend import Backend, Gang, GangGroup, GangState
from convoy_controllers.resources import Resource

OWNER = owner_reference("convoy.dev/v1alpha1", "TrainingJob", "big", "uid-big")
REQUESTS = {"cpu": 8500, "memory": 2**33 * 1000, "nvidia.com/gpu": 4000, "pods": 4000}
GANG = Gang("big-3f2a1c", OWNER, 4, {"worker": 3, "head": 1}, REQUESTS)
FULL = Gang("big-3f2a1c", OWNER, 4, {"worker": 4}, REQUESTS, priority_class="train-high", topology_key="rack")
META = {"name": "big-3f2a1c", "ownerReferences": [OWNER]}
POD: dict[str, Any] = {
    "metadata": {"name": "big-worker-0", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"containers": []},
}


def native(version: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": META,
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}, **spec},
    }


CONSTRAINTS = {"topology": [{"key": "rack"}]}


@pytest.mark.parametrize(
    ("backend", "resource", "gang", "manifest"),
    [
        (NATIVE, V1ALPHA2, GANG, native("v1alpha2", disruptionMode="PodGroup")),
        (NATIVE, V1BETA1, GANG, native("v1beta1", disruptionMode={"all": {}})),
        (NATIVE, V1ALPHA3, GANG, native("v1alpha3", disruptionMode={"all": {}})),
        (
            NATIVE,
            V1ALPHA2,
            FULL,
            native(
                "v1alpha2",
                disruptionMode="PodGroup",
                priorityClassName="train-high",
                schedulingConstraints=CONSTRAINTS,
            ),
        ),
        (
            NATIVE,
            V1BETA1,
            FULL,
            native(
                "v1beta1",
                disruptionMode={"all": {}},
                priorityClassName="train-high",
                schedulingConstraints=CONSTRAINTS,
            ),
        ),
        (NATIVE, V1BETA1, Gang("big-3f2a1c", OWNER, 4, elastic=True), native("v1beta1")),
        (
            COSCHEDULING,
            PLUGINS,
            FULL,
            {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": META,
                "spec": {
                    "minMember": 4,
                    "minResources": {"cpu": "8500m", "memory": "8589934592", "nvidia.com/gpu": "4"},
                },
            },
        ),
        (
            VOLCANO,
            VOLCANO_GROUPS,
            Gang(
                "big-3f2a1c",
                OWNER,
                4,
                {"worker": 3, "head": 1},
                REQUESTS,
                priority_class="train-high",
                queue="q",
            ),
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": META,
                "spec": {
                    "minMember": 4,
                    "minTaskMember": {"worker": 3, "head": 1},
                    "minResources": {"cpu": "8500m", "memory": "8589934592", "nvidia.com/gpu": "4"},
                    "priorityClassName": "train-high",
                    "queue": "q",
                },
            },
        ),
    ],
)
def test_a_podgroup_has_the_fields_of_its_version(
    backend: Backend, resource: Resource, gang: Gang, manifest: dict[str, Any]
) -> None:
    assert backend.manifest(gang, resource) == manifest


def test_every_version_has_a_test_of_its_manifest() -> None:
    tested = {V1BETA1, V1ALPHA3, V1ALPHA2, PLUGINS, VOLCANO_GROUPS}
    assert tested == {one for backend in BACKENDS for one in backend.resources}


@pytest.mark.parametrize(
    ("backend", "labels", "annotations", "spec"),
    [
        (NATIVE, {}, {}, {"schedulingGroup": {"podGroupName": "big-3f2a1c"}}),
        (
            COSCHEDULING,
            {"scheduling.x-k8s.io/pod-group": "big-3f2a1c"},
            {},
            {"schedulerName": "scheduler-plugins-scheduler"},
        ),
        (
            VOLCANO,
            {},
            {"scheduling.k8s.io/group-name": "big-3f2a1c", "volcano.sh/task-spec": "worker"},
            {"schedulerName": "volcano"},
        ),
    ],
)
def test_a_pod_names_its_gang(
    backend: Backend, labels: dict[str, str], annotations: dict[str, str], spec: dict[str, Any]
) -> None:
    body = GangGroup(backend, GANG).member("worker").join(POD)
    assert body["metadata"]["labels"] == {"a": "b", **labels}
    assert body["metadata"]["annotations"] == {"c": "d", **annotations}
    assert body["spec"] == {"containers": [], **spec}
    assert POD["spec"] == {"containers": []}, "the template must not change"


@pytest.mark.parametrize("backend", [COSCHEDULING, VOLCANO])
def test_the_scheduler_of_the_template_stays(backend: Backend) -> None:
    body = {**POD, "spec": {"schedulerName": "mine"}}
    assert GangGroup(backend, GANG).member("worker").join(body)["spec"]["schedulerName"] == "mine"


def test_the_newest_served_version_is_written() -> None:
    assert NATIVE.version({V1ALPHA2}) == V1ALPHA2
    assert NATIVE.version({V1ALPHA3, V1BETA1}) == V1BETA1
    assert NATIVE.version({PLUGINS}) is None


@pytest.mark.parametrize(
    ("backend", "group", "state"),
    [
        (NATIVE, {}, GangState()),
        (NATIVE, {"status": scheduled()}, GangState(True)),
        (NATIVE, {"status": scheduled(kind="PodGroupInitiallyScheduled")}, GangState(True)),
        (NATIVE, {"status": scheduled("False", "no room")}, GangState(False, "no room")),
        (NATIVE, {"status": scheduled("Unknown")}, GangState()),
        (NATIVE, {"spec": {"schedulingConstraints": CONSTRAINTS}}, GangState(chooses_domain=True)),
        (NATIVE, {"spec": {"schedulingConstraints": {}}}, GangState()),
        (COSCHEDULING, {"status": {}}, GangState()),
        (COSCHEDULING, {"status": {"phase": "Scheduling"}}, GangState(False, "phase Scheduling")),
        (COSCHEDULING, {"status": {"phase": "Running"}}, GangState(True, "phase Running")),
        (VOLCANO, {"status": {"phase": "Inqueue"}}, GangState(False)),
        (VOLCANO, {"status": {"phase": "Running"}}, GangState(True)),
        (
            VOLCANO,
            {
                "status": {
                    "phase": "Pending",
                    "conditions": [{"type": "Unschedulable", "message": "2/4 tasks in gang unschedulable"}],
                }
            },
            GangState(None, "2/4 tasks in gang unschedulable"),
        ),
    ],
)
def test_the_state_of_a_podgroup(backend: Backend, group: dict[str, Any], state: GangState) -> None:
    assert backend.state(group) == state
