"""Tests of the rules about Independent roles at a real API server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.crds.test_schema import STRICT, body, path, refusal

from convoy.cli.rules import broken_rules
from convoy_crds import trainingjob
from convoy_crds.trainingjob import TrainingJob

WORKER = {"name": "worker", "replicas": 1}


def rollout(**more: Any) -> dict[str, Any]:
    return {"name": "rollout", "replicas": 4, "membership": "Independent", **more}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"roles": [rollout()]}, "spec.roles", "at least one role needs membership Member"),
    (
        {"roles": [WORKER, rollout()], "success": "rollout"},
        "spec.success",
        "the name of a role with membership",
    ),
    (
        {"roles": [WORKER, rollout(processesPerReplica=2)]},
        "spec.roles[1].processesPerReplica",
        "remove processesPerReplica",
    ),
    (
        {"roles": [{**WORKER, "minReplicas": 0}]},
        "spec.roles[0].minReplicas",
        "minReplicas may be 0 only with",
    ),
    (
        {"roles": [{**WORKER, "budget": {}}]},
        "spec.roles[0].budget",
        "budget is only for membership Independent",
    ),
    ({"roles": [WORKER, rollout(minReplicas=5)]}, "spec.roles[1].minReplicas", "must not exceed replicas"),
    ({"roles": [WORKER, rollout(replicas=501)]}, "spec.roles[1].replicas", "may have at most 500 replicas"),
]
TYPES: list[tuple[dict[str, Any], str]] = [
    (rollout(membership="Outside"), "spec.roles[1].membership: Unsupported value"),
    (rollout(budget={"maxRestarts": -1}), "spec.roles[1].budget.maxRestarts"),
    (rollout(budget={"restarts": 1}), "unknown field"),
]


@pytest.fixture(scope="module")
def namespace(control_plane: Any) -> str:
    return str(control_plane.namespace("independent"))


@pytest.mark.parametrize(
    "role",
    [
        rollout(),
        rollout(minReplicas=0, processesPerReplica=1),
        rollout(
            minReplicas=4, replicas=500, budget={"maxRestarts": 0, "maxPreemptions": 0, "windowSeconds": 1}
        ),
    ],
)
def test_valid_roles_are_accepted(control_plane: Any, namespace: str, role: dict[str, Any]) -> None:
    control_plane.request("POST", path(namespace) + STRICT, body(roles=[role, WORKER]))


@pytest.mark.parametrize(("spec", "where", "words"), REFUSED, ids=[where for _, where, _ in REFUSED])
def test_a_wrong_role_is_refused_with_its_field(
    control_plane: Any, namespace: str, spec: dict[str, Any], where: str, words: str
) -> None:
    manifest = body(**spec)
    message = refusal(lambda: control_plane.request("POST", path(namespace) + STRICT, manifest))
    assert where in message and words in message
    ours = broken_rules(trainingjob.KIND, TrainingJob.model_validate(manifest).to_dict())
    assert ours and all(one.partition(": ")[2] in message for one in ours), (
        "the command line has the rule too"
    )


@pytest.mark.parametrize(("role", "words"), TYPES, ids=[words for _, words in TYPES])
def test_a_wrong_type_is_refused(
    control_plane: Any, namespace: str, role: dict[str, Any], words: str
) -> None:
    manifest = body(roles=[WORKER, role])
    assert words in refusal(lambda: control_plane.request("POST", path(namespace) + STRICT, manifest))
