"""The CustomResourceDefinitions as the API server enforces them: defaults, CEL, immutability, examples."""

from __future__ import annotations

import json
import secrets
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import yaml

from convoy.cli.manifest import broken_rules
from convoy_crds.trainingjob import TrainingJob

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
STRICT = "?fieldValidation=Strict"
MERGE = "application/merge-patch+json"


def path(namespace: str, name: str = "", subresource: str = "") -> str:
    parts = ["/apis/convoy.dev/v1alpha1/namespaces", namespace, "trainingjobs", name, subresource]
    return "/".join(part for part in parts if part)


def body(**spec: Any) -> dict[str, Any]:
    whole = {
        "engine": {"name": "gpt", "params": {"steps": 5}},
        "roles": [{"name": "worker", "replicas": 2}],
        **spec,
    }
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"j-{secrets.token_hex(4)}"},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def refusal(call: Any) -> str:
    with pytest.raises(urllib.error.HTTPError) as refused:
        call()
    return str(json.loads(refused.value.read())["message"])


@pytest.fixture
def namespace(control_plane: Any) -> str:
    return str(control_plane.namespace("schema"))


def test_the_server_fills_in_the_models_defaults(control_plane: Any, namespace: str) -> None:
    stored = control_plane.request("POST", path(namespace) + STRICT, body())
    defaulted = TrainingJob.model_validate(body()).to_dict()["spec"]
    assert stored["spec"] == defaulted


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_is_taken(control_plane: Any, namespace: str, example: Path) -> None:
    for document in yaml.safe_load_all(example.read_text()):
        if document["kind"] == "TrainingJob":
            control_plane.request("POST", path(namespace) + STRICT, document)


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"metadata": {"labels": {"team": "a"}}},
        {"spec": {"nodeSelector": {"disk": "fast"}}},
        {"spec": {"containers": []}},
        {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}},
    ],
)
def test_an_engine_s_pod_takes_additions(
    control_plane: Any, namespace: str, template: dict[str, Any]
) -> None:
    roles = [{"name": "worker", "replicas": 1, "template": template}]
    control_plane.request("POST", path(namespace) + STRICT, body(roles=roles))
    without = {**body(roles=roles), "spec": {"roles": roles}}
    assert "template.spec.containers[0]" in refusal(
        lambda: control_plane.request("POST", path(namespace) + STRICT, without)
    )


CONTAINER = {"name": "worker", "image": "x"}
REFUSED = [
    (body(roles=[{"name": "worker"}]), "spec.roles[0].replicas"),
    (body(roles=[{"name": "worker", "replicas": 0}]), "spec.roles[0].replicas"),
    (body(roles=[]), "spec.roles"),
    (body(roles=[{"name": "w", "replicas": 1}, {"name": "w", "replicas": 1}]), "Duplicate value"),
    (body(roles=[{"name": "w", "replicas": 2, "minReplicas": 3}]), "minReplicas must not exceed replicas"),
    (body(engine=None), "template.spec.containers[0].command"),
    (
        body(
            engine=None,
            roles=[{"name": "w", "replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}],
        ),
        "cannot read the image's entrypoint",
    ),
    (
        body(roles=[{"name": "w", "replicas": 1, "template": {"spec": {"containers": [{"args": ["x"]}]}}}]),
        "args without command",
    ),
    (body(success="nobody"), "success must be"),
    (body(checkpoint={"interval": "5 minutes"}), "spec.checkpoint.interval"),
    ({**body(), "metadata": {"name": "n" * 58}}, "63 characters"),
    (body(suspended=True), "unknown field"),
]


@pytest.mark.parametrize(("manifest", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_bad_input_is_refused_at_the_door(
    control_plane: Any, namespace: str, manifest: dict[str, Any], words: str
) -> None:
    message = refusal(lambda: control_plane.request("POST", path(namespace) + STRICT, manifest))
    assert words in message


@pytest.mark.parametrize(
    "manifest", [manifest for manifest, words in REFUSED if "must" in words or "command" in words]
)
def test_the_command_line_judges_by_the_same_rules(
    control_plane: Any, namespace: str, manifest: dict[str, Any]
) -> None:
    message = refusal(lambda: control_plane.request("POST", path(namespace) + STRICT, manifest))
    ours = [
        rule.partition(": ")[2]
        for rule in broken_rules("TrainingJob", TrainingJob.model_validate(manifest).to_dict())
    ]
    assert ours and all(rule in message for rule in ours)


@pytest.mark.parametrize(
    ("change", "phase", "taken"),
    [
        ({"roles": [{"name": "worker", "replicas": 3}]}, "Running", False),
        ({"roles": [{"name": "worker", "replicas": 3}]}, "Pending", True),
        ({"roles": [{"name": "worker", "replicas": 3}]}, None, True),
        ({"engine": {"name": "gpt", "params": {"steps": 6}}}, "Running", False),
        ({"engine": {"name": "gpt", "params": {"steps": 6}}}, "Suspended", True),
        ({"engine": None}, "Running", False),
        ({"checkpoint": {"tiers": {"remote": {"claimName": "c"}}}}, "Running", False),
        ({"recovery": {"maxRestarts": 3}}, "Running", True),
        ({"recovery": {"fencing": "Strict"}}, "Running", False),
        ({"recovery": {"fencing": "Strict"}}, "Suspended", True),
        ({"recovery": {"restartId": "x"}}, "Running", True),
        ({"activeDeadlineSeconds": 9}, "Running", True),
        ({"suspend": True}, "Running", True),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, None, False),
    ],
)
def test_what_may_change_and_when(
    control_plane: Any, namespace: str, change: dict[str, Any], phase: str | None, taken: bool
) -> None:
    name = control_plane.request("POST", path(namespace), body())["metadata"]["name"]
    if phase:
        control_plane.request("PATCH", path(namespace, name, "status"), {"status": {"phase": phase}}, MERGE)

    def patch() -> None:
        control_plane.request("PATCH", path(namespace, name), {"spec": change}, MERGE)

    if taken:
        patch()
    else:
        assert "may change only" in (message := refusal(patch)) or "immutable" in message


def test_a_status_write_cannot_change_the_spec(control_plane: Any, namespace: str) -> None:
    name = control_plane.request("POST", path(namespace), body())["metadata"]["name"]
    written = control_plane.request(
        "PATCH",
        path(namespace, name, "status"),
        {"spec": {"suspend": True}, "status": {"incarnation": 3}},
        MERGE,
    )
    assert (written["spec"]["suspend"], written["status"]["incarnation"]) == (False, 3)
