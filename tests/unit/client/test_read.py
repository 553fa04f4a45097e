"""Tests of stored objects that this version cannot parse fully. Such an object, and the other objects of a
list, are still returned.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy.client import Invalid
from convoy.client.collection import read
from convoy_crds.trainingjob import TrainingJob


def stored(role: dict[str, Any], **more: Any) -> dict[str, Any]:
    spec = {"roles": [{"name": "chief", "replicas": 1}, {"name": "worker", "replicas": 2, **role}]}
    return {"metadata": {"name": "job"}, "spec": spec, "status": {"phase": "Running"}, **more}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "role",
    [
        {"template": {"spec": {"x": nested(400)}}},
        {"template": {"spec": {"terminationGracePeriodSeconds": -1}}},
        {"template": {"spec": {"containers": [{"name": "A", "env": {"A": "b"}}, "x"]}}},
        {"template": {"metadata": {"labels": {"a": 1, "b": 2}}}, "minReplicas": 0},
        {"processesPerReplica": "many", "later": {"field": 1}},
    ],
)
def test_unparsable_fields_are_left_out(role: dict[str, Any]) -> None:
    body = stored(role)
    job = read(TrainingJob, body)
    assert [one.replicas for one in job.spec.roles] == [1, 2]
    assert job.status.phase == "Running"
    assert body == stored(role), "the body is not changed"


@pytest.mark.parametrize("body", [{}, {"metadata": {"name": "a"}}, stored({}, spec={"roles": []}), [], "x"])
def test_an_object_of_another_kind_is_refused(body: Any) -> None:
    with pytest.raises(Invalid, match="cannot be parsed"):
        read(TrainingJob, body)
