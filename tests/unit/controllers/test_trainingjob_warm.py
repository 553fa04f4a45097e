"""Tests of `recovery.warm`: which environment variable the workers get from it."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.testing.builders import make_job
from convoy_controllers.trainingjob.pods import pod
from convoy_crds import terms
from convoy_crds.layout import slots


def environment(recovery: dict[str, Any], own: list[dict[str, str]]) -> dict[str, str]:
    worker = {"name": "w", "image": "i", "command": ["x"], "env": own}
    roles = [{"name": "worker", "replicas": 1, "template": {"spec": {"containers": [worker]}}}]
    job = make_job(engine=None, roles=roles, recovery=recovery)
    made = pod(job, None, slots(job)[0])
    return {entry["name"]: entry["value"] for entry in made["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize(
    ("recovery", "found"), [({}, None), ({"warm": True}, None), ({"warm": False}, "false")]
)
def test_only_a_job_without_warm_ranks_has_the_variable(recovery: dict[str, Any], found: str | None) -> None:
    """Only `warm: false` sets the variable. All other jobs have no variable, so that the intent hash of
    running pods stays the same.
    """
    assert environment(recovery, []).get(terms.ENV_WARM) == found
    assert environment(recovery, [{"name": terms.ENV_WARM, "value": "mine"}]).get(terms.ENV_WARM) == found
