"""Tests that an update of a running job is accepted if it only adds or removes defaults, and rejected
otherwise.

Jobs that were stored under an earlier schema contain defaults that the API server filled in.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.integration.crds.test_queues import HELD
from tests.integration.crds.test_schema import MERGE, body, path, refusal

ZONE = "topology.kubernetes.io/zone"
CONTAINER = {
    "image": "x",
    "command": ["python", "t.py"],
    "env": [{"name": "A", "value": "1"}],
    "ports": [{"containerPort": 80}],
}
SIDECAR = {"name": "log", "image": "y"}


def role(container: Any = None, name: str = "worker", **more: Any) -> dict[str, Any]:
    template = {"template": {"spec": {"containers": [container, SIDECAR]}}} if container else {}
    return {"name": name, "replicas": 2, **template, **more}


def outside(**more: Any) -> dict[str, Any]:
    return {"roles": [role(), role(name="rollout", membership="Independent", **more)]}


def copied(**peer: Any) -> dict[str, Any]:
    return {"checkpoint": {"tiers": {"local": {}, "peer": peer}}}


def resumed(**step: int) -> dict[str, Any]:
    tiers = {"local": {}, "remote": {"store": "s"}}
    return {"checkpoint": {"tiers": tiers, "resumeFrom": {"job": "a", **step}}}


NAMED = {**CONTAINER, "name": "worker"}
PLACED: dict[str, Any] = {"template": {"metadata": {}, "spec": {"nodeSelector": {"a": "b"}}}}
SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ranks of a pod": ({"roles": [role(processesPerReplica=1)]}, {"roles": [role()]}),
    "name of a container": ({"roles": [role(NAMED)]}, {"roles": [role(CONTAINER)]}),
    "both": ({"roles": [role(NAMED, processesPerReplica=1)]}, {"roles": [role(CONTAINER)]}),
    "metadata of a template": (
        {"roles": [role(**PLACED)]},
        {"roles": [role(template={"spec": PLACED["template"]["spec"]})]},
    ),
    "one role of two": (
        {"roles": [role(processesPerReplica=1), role(name="actor")]},
        {"roles": [role(), role(name="actor", processesPerReplica=1)]},
    ),
    "membership": ({"roles": [role(membership="Member")]}, {"roles": [role()]}),
    "budget": (outside(budget={"maxRestarts": 10, "windowSeconds": 3600}), outside(budget={})),
    "no budget": (outside(budget={"maxRestarts": 10}), outside()),
    "copies": (copied(copies=1, topologyKey=ZONE), copied()),
    "step to resume from": (resumed(step=0), resumed()),
    "several": (
        {"roles": [role(NAMED, processesPerReplica=1)], **copied(copies=1)},
        {"roles": [role(CONTAINER)], **copied()},
    ),
}
OTHER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ranks of a pod": ({"roles": [role(processesPerReplica=2)]}, {"roles": [role()]}),
    "name of a container": ({"roles": [role({**CONTAINER, "name": "main"})]}, {"roles": [role(CONTAINER)]}),
    "image beside the name": ({"roles": [role(NAMED)]}, {"roles": [role({**CONTAINER, "image": "z"})]}),
    "command beside the name": ({"roles": [role(NAMED)]}, {"roles": [role({**CONTAINER, "command": ["z"]})]}),
    "environment beside the name": ({"roles": [role(NAMED)]}, {"roles": [role({**CONTAINER, "env": []})]}),
    "port": (
        {"roles": [role(NAMED)]},
        {"roles": [role({**NAMED, "ports": [{"containerPort": 81}]})]},
    ),
    "replicas beside the ranks": (
        {"roles": [role(processesPerReplica=1)]},
        {"roles": [{**role(), "replicas": 3}]},
    ),
    "order of roles": (
        {"roles": [role(processesPerReplica=1), role(name="actor")]},
        {"roles": [role(name="actor"), role()]},
    ),
    "node beside the ranks": (
        {"roles": [role(**PLACED, processesPerReplica=1)]},
        {"roles": [role(template={"spec": {"nodeSelector": {"a": "c"}}})]},
    ),
    "a label": (
        {"roles": [role(processesPerReplica=1)]},
        {"roles": [role(template={"metadata": {"labels": {"a": "b"}}})]},
    ),
    "membership": (outside(), {"roles": [role(), role(name="rollout")]}),
    "budget": (outside(budget={"maxRestarts": 9}), outside()),
    "preemptions": (outside(budget={"maxPreemptions": 9}), outside(budget={})),
    "copies": (copied(copies=2), copied(topologyKey=ZONE)),
    "topology of copies": (copied(topologyKey="rack"), copied()),
    "step to resume from": (resumed(step=4), resumed()),
}


@pytest.fixture(scope="module")
def namespace(control_plane: Any) -> str:
    return str(control_plane.namespace("unchanged"))


def running(control_plane: Any, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    made = control_plane.request("POST", path(namespace), body(**copy.deepcopy(spec)))
    where = path(namespace, made["metadata"]["name"], "status")
    job: dict[str, Any] = control_plane.request("PATCH", where, {"status": {"phase": "Running"}}, MERGE)
    return job


def replace(control_plane: Any, job: dict[str, Any], spec: dict[str, Any]) -> None:
    """Replace the spec as client-side apply does: each list is replaced as a whole, and fields that the
    file leaves out are removed.
    """
    whole = {**job["spec"], **copy.deepcopy(spec)}
    control_plane.request(
        "PUT", path(job["metadata"]["namespace"], job["metadata"]["name"]), {**job, "spec": whole}
    )


@pytest.mark.parametrize("swapped", [False, True], ids=["left out", "written down"])
@pytest.mark.parametrize("name", SAME)
def test_an_omitted_default_equals_an_explicit_default(
    control_plane: Any, namespace: str, name: str, swapped: bool
) -> None:
    before, after = SAME[name][::-1] if swapped else SAME[name]
    replace(control_plane, running(control_plane, namespace, before), after)


@pytest.mark.parametrize("swapped", [False, True], ids=["there", "back"])
@pytest.mark.parametrize("name", OTHER)
def test_anything_else_is_a_change(control_plane: Any, namespace: str, name: str, swapped: bool) -> None:
    before, after = OTHER[name][::-1] if swapped else OTHER[name]
    job = running(control_plane, namespace, before)
    assert HELD in refusal(lambda: replace(control_plane, job, after))


def test_a_large_job_can_be_compared(control_plane: Any, namespace: str) -> None:
    large = {**NAMED, "env": [{"name": f"V{number}", "value": "x" * 40} for number in range(400)]}
    others = [{**large, "name": f"c{number}"} for number in range(6)]

    def roles(first: dict[str, Any]) -> list[dict[str, Any]]:
        spec = {"containers": [first, *others]}
        return [{"name": f"r{number}", "replicas": 1, "template": {"spec": spec}} for number in range(3)]

    job = running(control_plane, namespace, {"roles": roles(large)})
    nameless = {key: value for key, value in large.items() if key != "name"}
    replace(control_plane, job, {"roles": roles(nameless)})
