"""Tests of pod requests and of the nodes that admit a pod."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.placement.eligible import may_run
from convoy_controllers.placement.requests import copies_that_fit, pod_requests


def container(**requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [{}]}, 0),
        ({"containers": [container(cpu="500m"), container(cpu="1")]}, 1500),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, 3000),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [{**container(cpu="1"), "restartPolicy": "Always"}, container(cpu="2")],
            },
            3000,
        ),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container(cpu="1")], **container(cpu="4")}, 4000),
    ],
)
def test_requests_are_those_that_the_scheduler_counts(spec: dict[str, Any], cpu: int) -> None:
    assert pod_requests(spec).get("cpu", 0) == cpu
    assert pod_requests(spec)["pods"] == 1000


def test_the_scarcest_resource_limits_the_copies() -> None:
    free = {"cpu": 4000, "memory": 3 * 1024, "pods": 10_000}
    assert copies_that_fit(free, {"cpu": 1000, "memory": 1024, "pods": 1000}) == 3
    assert copies_that_fit(free, {"nvidia.com/gpu": 1000}) == 0
    assert copies_that_fit({"cpu": -5}, {"cpu": 1}) == 0


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}
            }
        }
    }


def expression(operator: str, *values: str, key: str = "a") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "admitted"),
    [
        ({}, True),
        ({"nodeSelector": {"a": "5"}}, True),
        ({"nodeSelector": {"a": "6"}}, False),
        (required(expression("In", "5")), True),
        (required(expression("NotIn", "5")), False),
        (required(expression("NotIn", "5"), expression("Exists")), True),
        (required(expression("DoesNotExist")), False),
        (required(expression("Gt", "4")), True),
        (required(expression("Lt", "4")), False),
        (required(expression("Gt", "x")), False),
        (required({}), False),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}), True),
    ],
)
def test_selectors_admit_a_node(spec: dict[str, Any], admitted: bool) -> None:
    assert may_run(spec, "n", {"a": "5"}, ()) is admitted


@pytest.mark.parametrize(
    ("tolerations", "admitted"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "gpu", "operator": "Exists"}], True),
        ([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}], True),
        ([{"key": "gpu", "value": "no"}], False),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
    ],
)
def test_tolerations_admit_a_tainted_node(tolerations: list[dict[str, str]], admitted: bool) -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    soft = {"key": "x", "effect": "PreferNoSchedule"}
    assert may_run({"tolerations": tolerations}, "n", {}, [taint, soft]) is admitted
