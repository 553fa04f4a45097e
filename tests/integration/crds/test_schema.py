"""Tests of the CustomResourceDefinitions at a real API server: defaults, CEL rules, immutable fields and
examples.
"""

from __future__ import annotations

import json
import re
import secrets
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import yaml

from convoy.cli.rules import broken_rules
from convoy_crds import trainingjob
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.job_result import parse_result
from convoy_crds.trainingjob import TrainingJob

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
STRICT = "?fieldValidation=Strict"
MERGE = "application/merge-patch+json"
STORES = "/apis/convoy.dev/v1alpha1/checkpointstores"


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


def store(allowed: Any = ("*",), **s3: Any) -> dict[str, Any]:
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "CheckpointStore",
        "metadata": {"name": f"s-{secrets.token_hex(4)}"},
        "spec": {
            "s3": {"bucket": "checkpoints", "credentialsSecret": "keys", **s3},
            "allowedNamespaces": list(allowed),
        },
    }


def on_volume(**volume: Any) -> dict[str, Any]:
    made = store()
    made["spec"]["volume"] = {"claimName": "checkpoints", **volume}
    del made["spec"]["s3"]
    return made


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
    assert stored["spec"] == {**defaulted, "roles": body()["spec"]["roles"]}, "none inside lists"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_is_accepted(control_plane: Any, namespace: str, example: Path) -> None:
    for document in yaml.safe_load_all(example.read_text()):
        if document["kind"] == "TrainingJob":
            control_plane.request("POST", path(namespace) + STRICT, document)
        elif document["kind"] == "CheckpointStore":
            document["metadata"]["name"] = f"s-{secrets.token_hex(4)}"
            control_plane.request("POST", STORES + STRICT, document)


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
def test_an_engine_pod_template_accepts_additional_fields(
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
    (body(checkpoint={"interval": "Auto"}), "interval Auto needs the measured cost of saves to memory"),
    (body(checkpoint={"tiers": {"local": {}, "remote": {}}}), "spec.checkpoint.tiers.remote.store: Required"),
    (
        body(checkpoint={"tiers": {"local": {}, "remote": {"store": "s", "claimName": "c"}}}),
        "unknown field",
    ),
    (body(checkpoint={"default": "Disk"}), "spec.checkpoint.default: Unsupported value"),
    (body(checkpoint={"tiers": {"peer": {}}}), "made from local memory: add local: {}"),
    (body(checkpoint={"tiers": {"remote": {"store": "s"}}}), "read from local memory: add local: {}"),
    (body(trace={"store": "s"}), "trace needs steps, onStraggler or both"),
    (body(trace={"steps": {}}), "set trace.store, or checkpoint.tiers.remote.store"),
    (body(trace={"store": "s", "steps": {"count": 0}}), "spec.trace.steps.count"),
    (body(trace={"store": "s", "steps": {"count": 101}}), "spec.trace.steps.count"),
    (body(trace={"store": "s", "steps": {"first": 0}}), "spec.trace.steps.first"),
    (body(trace={"store": "s", "steps": {}, "ranks": []}), "spec.trace.ranks"),
    (body(trace={"store": "s", "steps": {}, "ranks": [-1]}), "spec.trace.ranks[0]"),
    (body(trace={"store": "s", "steps": {}, "ranks": [1, 1]}), "spec.trace.ranks[1]: Duplicate value"),
    (body(trace={"store": "s", "steps": {}, "maxMebibytes": 33}), "spec.trace.maxMebibytes"),
    (
        body(trace={"store": "s", "onStraggler": {"cooldownSeconds": 1}}),
        "spec.trace.onStraggler.cooldownSeconds",
    ),
    (
        body(checkpoint={"tiers": {"local": {}, "remote": {"store": "s", "keepLast": 0}}}),
        "spec.checkpoint.tiers.remote.keepLast",
    ),
    ({**body(), "metadata": {"name": "n" * 58}}, "63 characters"),
    (body(suspended=True), "unknown field"),
]


@pytest.mark.parametrize(("manifest", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_invalid_input_is_rejected_at_admission(
    control_plane: Any, namespace: str, manifest: dict[str, Any], words: str
) -> None:
    message = refusal(lambda: control_plane.request("POST", path(namespace) + STRICT, manifest))
    assert words in message


@pytest.mark.parametrize(
    "manifest",
    [
        manifest
        for manifest, words in REFUSED
        if any(word in words for word in ("must", "command", "exactly one", "memory"))
    ],
)
def test_the_command_line_validates_by_the_same_rules(
    control_plane: Any, namespace: str, manifest: dict[str, Any]
) -> None:
    message = refusal(lambda: control_plane.request("POST", path(namespace) + STRICT, manifest))
    ours = [
        rule.partition(": ")[2]
        for rule in broken_rules(trainingjob.KIND, TrainingJob.model_validate(manifest).to_dict())
    ]
    assert ours and all(rule in message for rule in ours)


@pytest.mark.parametrize(
    ("change", "phase", "accepted"),
    [
        ({"roles": [{"name": "worker", "replicas": 3}]}, "Running", False),
        ({"roles": [{"name": "worker", "replicas": 3}]}, "Pending", True),
        ({"roles": [{"name": "worker", "replicas": 3}]}, None, True),
        ({"engine": {"name": "gpt", "params": {"steps": 6}}}, "Running", False),
        ({"engine": {"name": "gpt", "params": {"steps": 6}}}, "Suspended", True),
        ({"engine": None}, "Running", False),
        ({"checkpoint": {"tiers": {"local": {}, "remote": {"store": "s"}}}}, "Running", False),
        ({"trace": {"store": "s", "steps": {"count": 1}}}, "Running", True),
        ({"checkpoint": {"tiers": {"local": {}, "remote": {"store": "s"}}}}, "Suspended", True),
        ({"checkpoint": {"default": "None"}}, "Running", False),
        ({"checkpoint": {"default": "None"}}, "Pending", True),
        ({"recovery": {"maxRestarts": 3}}, "Running", True),
        ({"recovery": {"fencing": "Strict"}}, "Running", False),
        ({"recovery": {"fencing": "Strict"}}, "Suspended", True),
        ({"recovery": {"restartId": "x"}}, "Running", True),
        ({"activeDeadlineSeconds": 9}, "Running", True),
        ({"suspend": True}, "Running", True),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, None, False),
    ],
)
def test_fields_may_change_only_in_certain_phases(
    control_plane: Any, namespace: str, change: dict[str, Any], phase: str | None, accepted: bool
) -> None:
    name = control_plane.request("POST", path(namespace), body())["metadata"]["name"]
    if phase:
        control_plane.request("PATCH", path(namespace, name, "status"), {"status": {"phase": phase}}, MERGE)

    def patch() -> None:
        control_plane.request("PATCH", path(namespace, name), {"spec": change}, MERGE)

    if accepted:
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


def test_the_api_server_keeps_every_field_of_a_result(control_plane: Any, namespace: str) -> None:
    name = control_plane.request("POST", path(namespace), body())["metadata"]["name"]
    result = parse_result(
        '{"a": 1.5, "big": 9223372036854775807, "b": [{"c": "\\u0000"}, null, {"d": true}]}'
    )
    where = path(namespace, name, "status")
    stored = control_plane.request("PATCH", where, {"status": {"result": result}}, MERGE)
    assert stored["status"]["result"] == result


def test_a_remote_tier_has_its_defaults(control_plane: Any, namespace: str) -> None:
    given = body(checkpoint={"tiers": {"local": {}, "remote": {"store": "s"}}})
    stored = control_plane.request("POST", path(namespace) + STRICT, given)
    assert stored["spec"]["checkpoint"]["tiers"]["remote"] == {
        "store": "s",
        "every": "10m",
        "keepLast": 2,
        "keepEverySteps": 0,
    }
    read = TrainingJob.model_validate(stored).to_dict()["spec"]
    assert read == TrainingJob.model_validate(given).to_dict()["spec"]


@pytest.mark.parametrize("given", [store(), on_volume()], ids=["s3", "volume"])
def test_a_store_has_the_models_defaults(control_plane: Any, given: dict[str, Any]) -> None:
    stored = control_plane.request("POST", STORES + STRICT, given)
    assert stored["spec"] == CheckpointStore.model_validate(given).to_dict()["spec"]


BOTH, NEITHER = store(), store()
BOTH["spec"]["volume"] = {"claimName": "checkpoints"}
del NEITHER["spec"]["s3"]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (store(bucket="a..b"), "spec.s3.bucket: Invalid value: bucket must be of lower-case letters"),
        (store(bucket="ab"), "spec.s3.bucket"),
        (store(endpoint="minio:9000"), "spec.s3.endpoint: Invalid value: endpoint must be a URL"),
        (store(endpoint="http://me:word@minio"), "endpoint must be a URL"),
        (store(prefix="/a"), "spec.s3.prefix: Invalid value: prefix must be folders"),
        (store(prefix="a/../b"), "prefix must be folders"),
        (store(credentialsSecret="Keys"), "spec.s3.credentialsSecret"),
        (store(allowed=[]), "spec.allowedNamespaces"),
        (
            store(allowed=["A"]),
            "spec.allowedNamespaces: Invalid value: each entry of allowedNamespaces must be",
        ),
        (store(allowed=["a", "a"]), "Duplicate value"),
        (store(secretKey="x"), "unknown field"),
        (on_volume(path="a/../b"), "spec.volume.path: Invalid value: path must be folders"),
        (on_volume(path="/a"), "path must be folders"),
        (on_volume(claimName="a/b"), "spec.volume.claimName"),
        (on_volume(readOnly=True), "unknown field"),
        (BOTH, "spec: Invalid value: a CheckpointStore needs exactly one of s3 (a bucket) and volume"),
        (NEITHER, "spec: Invalid value: a CheckpointStore needs exactly one of s3 (a bucket) and volume"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_store_is_rejected_at_admission(
    control_plane: Any, manifest: dict[str, Any], words: str
) -> None:
    refused = refusal(lambda: control_plane.request("POST", STORES + STRICT, manifest))
    # Kubernetes 1.34 writes the type of the value before the message.
    assert words in re.sub(r'Invalid value: "\w+": ', "Invalid value: ", refused)


MOVED = "a CheckpointStore cannot change between s3 and volume"


@pytest.mark.parametrize(
    ("made", "change", "words"),
    [
        (store(), {"s3": {"bucket": "other"}}, "bucket, endpoint and prefix are immutable"),
        (store(), {"s3": {"endpoint": "http://other"}}, "bucket, endpoint and prefix are immutable"),
        (store(), {"s3": {"prefix": "other"}}, "bucket, endpoint and prefix are immutable"),
        (store(), {"s3": {"region": "eu", "pathStyle": True, "credentialsSecret": "other"}}, ""),
        (store(), {"allowedNamespaces": ["a", "b"]}, ""),
        (store(), {"s3": None, "volume": {"claimName": "c"}}, MOVED),
        (on_volume(), {"volume": {"claimName": "other"}}, "claimName and path are immutable"),
        (on_volume(), {"volume": {"path": "other"}}, "claimName and path are immutable"),
        (on_volume(), {"allowedNamespaces": ["a", "b"]}, ""),
        (on_volume(), {"volume": None, "s3": store()["spec"]["s3"]}, MOVED),
    ],
)
def test_the_location_of_a_store_is_immutable(
    control_plane: Any, made: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    made = {**made, "metadata": {"name": f"s-{secrets.token_hex(4)}"}}
    name = control_plane.request("POST", STORES, made)["metadata"]["name"]

    def patch() -> None:
        control_plane.request("PATCH", f"{STORES}/{name}", {"spec": change}, MERGE)

    if words:
        assert words in refusal(patch)
    else:
        patch()
