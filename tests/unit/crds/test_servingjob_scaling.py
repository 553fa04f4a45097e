"""Tests of the fields and rules of `spec.roles[].scaling`."""

from __future__ import annotations

from typing import Any

import pytest

from convoy.cli.manifest import parse, problems
from convoy_crds.servingjob import ServingJob

ENGINE = {
    "apiVersion": "convoy.dev/v1alpha1",
    "kind": "Engine",
    "metadata": {"name": "lm"},
    "spec": {"image": "i", "command": ["lm"], "roleKind": "Serving"},
}
ROUTER = {"name": "router", "engine": {"name": "lm"}}
WAITING = "convoy_num_requests_waiting"
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
}
HPA = {"mode": "HorizontalPodAutoscaler"}
DCGM = {
    "type": "External",
    "external": {"metric": {"name": "gpu"}, "target": {"type": "Value", "value": "90"}},
}


def pods(name: str = WAITING, value: Any = 4, **more: Any) -> dict[str, Any]:
    """Return a Pods metric with a target for its mean."""
    target = {"type": "AverageValue", "averageValue": value}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}, **more}


def worker(**scaling: Any) -> dict[str, Any]:
    """Return a role that scales."""
    return {"name": "w", "engine": {"name": "lm"}, "scaling": {"maxReplicas": 8, **scaling}}


def found(*roles: Any, **spec: Any) -> list[str]:
    """Return the errors of a ServingJob with these roles."""
    body = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "ServingJob",
        "metadata": {"name": "server"},
        "spec": {"roles": list(roles), **spec},
    }
    manifest = parse(body)
    return problems(manifest, [manifest, parse(ENGINE)])


GOOD: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "limits only": ([worker()], {}),
    "metrics": ([worker(metrics=[pods(), pods("convoy_e2e_request_latency_p95_seconds", "500m"), CPU])], {}),
    "to zero": ([worker(minReplicas=0, metrics=[pods(activationThreshold=3)], cooldownSeconds=60)], {}),
    "by an HPA": ([worker(metrics=[DCGM], **HPA)], {"replicas": 2}),
    "nothing scales": ([worker(mode="None")], {"replicas": 2}),
    "another role": ([worker(), {**ROUTER, "scaling": {"maxReplicas": 3}}], {"scaledRole": "w"}),
    "behavior": (
        [
            worker(
                behavior={
                    "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 30}]},
                    "scaleDown": {"selectPolicy": "Disabled", "tolerance": "0.05"},
                }
            )
        ],
        {},
    ),
}
BAD: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "no maximum": ([{**ROUTER, "scaling": {}}], {}, "roles[0].scaling.maxReplicas"),
    "min above max": (
        [worker(minReplicas=9)],
        {},
        "roles[0].scaling.minReplicas: minReplicas must be at most",
    ),
    "two writers": (
        [worker()],
        {"replicas": 2},
        "replicas: spec.replicas must be absent, because Convoy itself",
    ),
    "two writers of another role": (
        [worker(), {**ROUTER, "replicas": 2, "scaling": {"maxReplicas": 3}}],
        {"scaledRole": "w"},
        "roles: spec.replicas is the number of replicas of the scaled role",
    ),
    "unknown metric": (
        [worker(metrics=[pods("queue")])],
        {},
        "roles[0].scaling.metrics: mode Convoy knows these Pods metrics, without selector: " + WAITING,
    ),
    "memory": (
        [worker(metrics=[{**CPU, "resource": {**CPU["resource"], "name": "memory"}}])],  # type: ignore[dict-item]
        {},
        "roles[0].scaling.metrics: mode Convoy knows the resource cpu only",
    ),
    "external": ([worker(metrics=[DCGM])], {}, "roles[0].scaling.metrics: mode Convoy knows metrics of type"),
    "target of 0": (
        [worker(metrics=[pods(value=0)])],
        {},
        "roles[0].scaling.metrics[0].pods.target.averageValue: averageValue must be greater than 0",
    ),
    "target of 0.0": (
        [worker(metrics=[pods(value="0.0k")])],
        {},
        "roles[0].scaling.metrics[0].pods.target.averageValue: averageValue must be greater than 0",
    ),
    "no quantity": (
        [worker(metrics=[pods(value="4 requests")])],
        {},
        "roles[0].scaling.metrics[0].pods.target.averageValue: must be a whole number, or a quantity",
    ),
    "quantity without quotes": (
        [worker(behavior={"scaleUp": {"tolerance": 0.05}})],
        {},
        "roles[0].scaling.behavior.scaleUp.tolerance: must be a whole number, or a quantity in quotes",
    ),
    "target without value": (
        [
            worker(
                metrics=[
                    {
                        "type": "Pods",
                        "pods": {"metric": {"name": WAITING}, "target": {"type": "AverageValue"}},
                    }
                ]
            )
        ],
        {},
        "roles[0].scaling.metrics[0].pods.target.averageValue: type AverageValue needs averageValue",
    ),
    "wrong target": (
        [
            worker(
                metrics=[
                    {
                        "type": "Pods",
                        "pods": {
                            "metric": {"name": WAITING},
                            "target": {"type": "Utilization", "averageUtilization": 60},
                        },
                    }
                ]
            )
        ],
        {},
        "roles[0].scaling.metrics[0].pods.target.type: target.type must be AverageValue",
    ),
    "type without source": (
        [worker(metrics=[{"type": "Pods"}])],
        {},
        "roles[0].scaling.metrics[0].pods: type Pods needs pods",
    ),
    "HPA for another role": (
        [worker(), {**ROUTER, "replicas": 1, "scaling": {"maxReplicas": 3, **HPA}}],
        {"scaledRole": "w"},
        "roles: scaling.mode HorizontalPodAutoscaler is only for the scaled role",
    ),
    "HPA without replicas": ([worker(**HPA)], {}, "roles: scaling.mode HorizontalPodAutoscaler is only for"),
    "HPA to zero": (
        [worker(minReplicas=0, metrics=[pods()], **HPA)],
        {"replicas": 1},
        "roles[0].scaling.minReplicas: minReplicas: 0 is only for mode Convoy",
    ),
    "HPA with a threshold": (
        [worker(metrics=[pods(activationThreshold=1)], **HPA)],
        {"replicas": 1},
        "roles[0].scaling.metrics: activationThreshold is only for mode Convoy",
    ),
    "to zero by cpu": (
        [worker(minReplicas=0, metrics=[CPU])],
        {},
        "roles[0].scaling.metrics: minReplicas: 0 needs the Pods metric convoy_num_requests_waiting",
    ),
    "to zero without requests": (
        [worker(), {**ROUTER, "scaling": {"maxReplicas": 3, "minReplicas": 0, "metrics": [pods()]}}],
        {"scaledRole": "w"},
        "roles: scaling.minReplicas: 0 is only for the role that receives requests",
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_valid_spec_has_no_errors(case: str) -> None:
    roles, spec = GOOD[case]
    assert found(*roles, **spec) == []


@pytest.mark.parametrize("case", BAD)
def test_each_mistake_is_named_with_its_field(case: str) -> None:
    roles, spec, words = BAD[case]
    errors = found(*roles, **spec)
    assert any(f"ServingJob server: spec.{words}" in one for one in errors), errors


def test_a_bad_quantity_is_one_error() -> None:
    assert len(found(worker(metrics=[pods(value=-2)]))) == 1


@pytest.mark.parametrize(
    ("scaling", "zero"),
    [
        ({"minReplicas": 0, "metrics": [pods()]}, True),
        ({"minReplicas": 0, "metrics": [pods()], "mode": "None"}, False),
        ({"minReplicas": 1}, False),
    ],
)
def test_only_mode_convoy_with_a_minimum_of_0_scales_to_zero(scaling: dict[str, Any], zero: bool) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"roles": [worker(**scaling)]}}
    assert ServingJob.model_validate(body).spec.scales_to_zero is zero


@pytest.mark.parametrize("value", ["1e1000", "1e-1000"])
def test_an_exponent_beyond_all_quantities_is_refused(value: str) -> None:
    problems_of = found(worker(metrics=[pods(value=value)]))
    assert any("averageValue" in one for one in problems_of), problems_of
