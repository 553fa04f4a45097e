from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.local.environment import declared, pod_environment


def job(*env: dict[str, Any]) -> TrainingJob:
    plain = {"image": "mine", "command": ["true"]}
    container = {**plain, "env": list(env)}
    roles = [
        {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [container]}}},
        {"name": "other", "replicas": 1, "template": {"spec": {"containers": [plain]}}},
    ]
    return TrainingJob.model_validate({"metadata": {"name": "local"}, "spec": {"roles": roles}})


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ([], {}),
        ([{"name": "A", "value": "1"}], {"A": "1"}),
        ([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], {}),
        ([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)/b"}], {"A": "1", "B": "1/b"}),
        ([{"name": "B", "value": "$(A)/b"}, {"name": "A", "value": "1"}], {"B": "$(A)/b", "A": "1"}),
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}], {"A": "12"}),
        ([{"name": "A", "value": "$$(A)"}], {"A": "$(A)"}),
        ([{"name": "A"}], {"A": ""}),
    ],
)
def test_a_variable_may_name_those_before_it(env: list[dict[str, Any]], found: dict[str, str]) -> None:
    assert declared(job(*env), "worker") == found
    assert declared(job(*env), "other") == {}


def test_what_convoy_sets_wins_as_in_a_pod() -> None:
    mine = job({"name": "CONVOY_PARAMS", "value": "mine"}, {"name": "LANG", "value": "C"})
    found = pod_environment(mine, "worker", {"LANG": "en", "HOME": "/root"}, Path("/c"))
    assert (found["CONVOY_PARAMS"], found["LANG"], found["HOME"]) == ("{}", "C", "/root")
