"""Tests of the fields and rules of ServingJobs."""

from __future__ import annotations

from typing import Any

import pytest

from convoy.cli.manifest import parse, problems
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_rollout import share

ENGINE = {"name": "w", "engine": {"name": "lm"}}
CONTAINER = {"image": "i", "command": ["serve"], "readinessProbe": {"httpGet": {"path": "/", "port": 8080}}}


def own(name: str = "w", **changes: Any) -> dict[str, Any]:
    """Return a role with its own template. A change to None removes the field of the container."""
    container = {key: value for key, value in {**CONTAINER, **changes}.items() if value is not None}
    return {"name": name, "template": {"spec": {"containers": [container]}}}


def found(name: str = "server", **spec: Any) -> list[str]:
    """Return the errors of a ServingJob. Its spec has one role unless `spec` names others."""
    body = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "ServingJob",
        "metadata": {"name": name},
        "spec": {"roles": [ENGINE], **spec},
    }
    manifest = parse(body)
    engine = {"image": "i", "command": ["lm"], "roleKind": "Serving"}
    beside = parse(
        {"apiVersion": "convoy.dev/v1alpha1", "kind": "Engine", "metadata": {"name": "lm"}, "spec": engine}
    )
    return problems(manifest, [manifest, beside])


TWO = [ENGINE, {"name": "router", "engine": {"name": "lm"}, "replicas": 2}]
GRACE = {"name": "w", "engine": {"name": "lm"}, "template": {"spec": {"terminationGracePeriodSeconds": 33}}}
GOOD: dict[str, dict[str, Any]] = {
    "one role": {},
    "own template": {"roles": [own()]},
    "two roles": {"roles": TWO, "scaledRole": "w"},
    "job": {"model": {"checkpoint": {"job": "train", "store": "s3", "follow": True}}},
    "deleted job": {"model": {"checkpoint": {"uid": "u", "store": "s3", "step": 7}}},
    "volume": {"model": {"volume": {"claimName": "models", "path": "llama"}}},
    "budgets": {"rollout": {"maxSurge": 0, "maxUnavailable": "50%"}},
    "zero of two": {"rollout": {"maxSurge": "0%", "maxUnavailable": 1}},
    "token": {"service": {"auth": {"type": "Token", "secretName": "token"}}},
    "short drain": {"roles": [GRACE], "rollout": {"drainSeconds": 29}},
    "gang": {"placement": {"gang": "Native"}},
    "racks": {"placement": {"topologyKeys": ["topology.kubernetes.io/rack", "rack"], "pack": "Required"}},
}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "reserved role": (
        {"roles": [{**ENGINE, "name": "activator"}]},
        "roles: the name activator is reserved for the pods that hold requests",
    ),
    "no scaled role": ({"roles": TWO}, "scaledRole: with more than one role, scaledRole must name"),
    "unknown scaled role": ({"scaledRole": "x"}, "scaledRole: scaledRole must be the name of a role"),
    "replicas of the scaled role": (
        {"roles": [{**ENGINE, "replicas": 2}]},
        "roles: spec.replicas is the number of replicas of the scaled role",
    ),
    "no replicas": ({"roles": [ENGINE, {**ENGINE, "name": "b"}], "scaledRole": "w"}, "roles: spec.replicas"),
    "unknown service role": ({"service": {"role": "x"}}, "service.role: service.role must be the name of"),
    "no budget": (
        {"rollout": {"maxSurge": 0, "maxUnavailable": "0%"}},
        "rollout.maxSurge: maxSurge and maxUnavailable must not both be 0",
    ),
    "no surge": ({"rollout": {"maxSurge": "0%"}}, "rollout.maxSurge: maxSurge and maxUnavailable must not"),
    "share": ({"rollout": {"maxSurge": "150%"}}, "rollout.maxSurge"),
    "short grace": ({"roles": [GRACE]}, "roles: terminationGracePeriodSeconds must be greater than"),
    "no command": ({"roles": [own(command=None)]}, "roles[0].template: without engine the role needs"),
    "no image": ({"roles": [own(image=None)]}, "roles[0].template: without engine the role needs"),
    "no probe": (
        {"roles": [own(readinessProbe=None)]},
        "roles[0].template: without engine the role needs template.spec.containers[0].readinessProbe",
    ),
    "probe of an engine": (
        {"roles": [{**own(command=None, image=None), "engine": {"name": "lm"}}]},
        "roles[0].template: with engine, readinessProbe of template.spec.containers[0] must be absent",
    ),
    "args of an engine": (
        {"roles": [{**own(command=None, readinessProbe=None, args=["-v"]), "engine": {"name": "lm"}}]},
        "roles[0].template: args without command would be ignored",
    ),
    "two sources": (
        {"model": {"checkpoint": {"job": "a", "store": "s"}, "volume": {"claimName": "v"}}},
        "model: model needs exactly one of checkpoint and volume",
    ),
    "path outside the volume": (
        {"model": {"volume": {"claimName": "v", "path": "a/../../b"}}},
        "model.volume.path: path must not leave the volume",
    ),
    "uid without step": (
        {"model": {"checkpoint": {"uid": "u", "store": "s"}}},
        "model.checkpoint.step: uid needs step",
    ),
    "follow with step": (
        {"model": {"checkpoint": {"job": "a", "store": "s", "step": 3, "follow": True}}},
        "model.checkpoint.follow: follow needs job and no step",
    ),
    "token without secret": (
        {"service": {"auth": {"type": "Token"}}},
        "service.auth.secretName: type Token needs secretName",
    ),
    "group of 65": (
        {"roles": [{**ENGINE, "groupSize": 65}]},
        "roles[0].groupSize: must be at most 64, is 65",
    ),
    "required without a key": (
        {"placement": {"pack": "Required"}},
        "placement.pack: pack: Required needs topologyKeys: name the node label",
    ),
    "required with no keys": (
        {"placement": {"pack": "Required", "topologyKeys": []}},
        "placement.pack: pack: Required needs topologyKeys",
    ),
    "five keys": ({"placement": {"topologyKeys": list("abcde")}}, "placement.topologyKeys"),
    "no key": ({"placement": {"topologyKeys": ["a b"]}}, "placement.topologyKeys[0]"),
    "unknown backend": ({"placement": {"gang": "YuniKorn"}}, "placement.gang"),
    "shrink first": ({"placement": {"shrinkFirst": True}}, "placement.shrinkFirst"),
    "minus one": ({"replicas": -1}, "replicas: must be at least 0, is -1"),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_valid_spec_has_no_errors(case: str) -> None:
    assert found(**GOOD[case]) == []


@pytest.mark.parametrize("case", BAD)
def test_each_mistake_is_named_with_its_field(case: str) -> None:
    spec, words = BAD[case]
    assert any(f"ServingJob server: spec.{words}" in one for one in found(**spec)), found(**spec)


@pytest.mark.parametrize("name", ["1server", "a.b", "s" * 54])
def test_a_name_must_fit_its_service_and_its_pods(name: str) -> None:
    assert found(name)


def test_the_names_of_activators_must_fit() -> None:
    metric = {
        "type": "Pods",
        "pods": {
            "metric": {"name": "convoy_num_requests_waiting"},
            "target": {"type": "AverageValue", "averageValue": 2},
        },
    }
    scaling = {"minReplicas": 0, "maxReplicas": 2, "metrics": [metric]}
    roles = [{**ENGINE, "scaling": scaling}]
    assert found("s" * 46, roles=roles) == []
    assert "metadata.name may have at most 46 characters" in found("s" * 47, roles=roles)[0]


@pytest.mark.parametrize(
    ("value", "whole", "surge", "unavailable"),
    [(0, 4, 0, 0), (3, 4, 3, 3), ("25%", 1, 1, 0), ("25%", 5, 2, 1), ("100%", 4, 4, 4), ("0%", 9, 0, 0)],
)
def test_shares_round_a_surge_up_and_the_unavailable_down(
    value: int | str, whole: int, surge: int, unavailable: int
) -> None:
    assert (share(value, whole, up=True), share(value, whole, up=False)) == (surge, unavailable)


def test_the_scaled_role_is_the_only_role_by_default() -> None:
    body = {"metadata": {"name": "a"}, "spec": {"roles": [ENGINE], "replicas": 3}}
    job = ServingJob.model_validate(body)
    assert (job.spec.scaled, job.spec.serving_role, job.desired("w"), job.desired("x")) == ("w", "w", 3, 0)


def test_each_role_has_its_own_number_of_replicas() -> None:
    body = {"metadata": {"name": "a"}, "spec": {"roles": TWO, "scaledRole": "w", "replicas": 5}}
    job = ServingJob.model_validate(body)
    assert (job.desired("w"), job.desired("router")) == (5, 2)


def test_a_number_that_the_spec_leaves_open_is_that_of_the_status() -> None:
    role = {**ENGINE, "scaling": {"minReplicas": 2, "maxReplicas": 9}}
    body: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"roles": [role]}}
    assert ServingJob.model_validate(body).desired("w") == 2
    body["status"] = {"roles": [{"name": "w", "desired": 7}]}
    assert ServingJob.model_validate(body).desired("w") == 7
    body["spec"] = {"roles": [ENGINE]}
    assert ServingJob.model_validate(body).desired("w") == 7
    body["status"] = {}
    assert ServingJob.model_validate(body).desired("w") == 1
