"""Tests of `convoy validate --server` against a real API server: objects, pods and missing rights."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.client import Client

from .conftest import SPEC

Validate = Callable[..., tuple[int, str]]
WORKER: dict[str, Any] = {"name": "worker", "image": "a", "command": ["a"]}
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def validate(control_plane: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Validate:
    """Return a function that runs the command on objects, with the rights of `token`. The function returns
    exit status and output.
    """

    def run(*bodies: dict[str, Any], token: str | None = None, server: bool = True) -> tuple[int, str]:
        path = str(control_plane.kubeconfig(token))
        monkeypatch.setenv("KUBECONFIG", path)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", path)
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump_all(bodies))
        words = ["validate", str(file), *(["--server", "-n", client.namespace] if server else [])]
        result = CliRunner().invoke(app, words)
        return result.exit_code, result.output

    return run


def job(name: str = "job", **pod: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [WORKER], **pod}}
    spec = {"roles": [{"name": "worker", "replicas": 2, "template": template}]}
    return {
        "apiVersion": "convoy.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec
    }  # fmt: skip


def test_a_valid_job_passes_and_no_object_is_created(validate: Validate, client: Client) -> None:
    assert validate(job())[0] == 0
    assert client.training_jobs.list() == []
    assert client.api.core.list_namespaced_pod(client.namespace).items == []


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (
            {"containers": [{**WORKER, "volumeMount": []}]},
            "spec.roles[0].template.spec.containers[0].volumeMount: there is no such field",
        ),
        (
            {"containers": [{**WORKER, "resources": {"limits": {"memory": "16 GB"}}}]},
            "spec.roles[0].template.spec.containers[0].resources.limits.memory: must be a quantity",
        ),
        (
            {"volumes": [{"name": "d", "emptyDir": {}}] * 2},
            'spec.roles[0].template.spec.volumes[1].name: Duplicate value: "d"',
        ),
        (
            {"priorityClassName": "none"},
            "the API server would refuse pods of role worker: "
            'pods "job-worker-0" is forbidden: no PriorityClass',
        ),
    ],
)
def test_errors_that_only_the_server_detects_are_reported(
    validate: Validate, pod: dict[str, Any], words: str
) -> None:
    assert validate(job(**pod), server=False)[0] == 0
    code, output = validate(job(**pod))
    assert code == 1 and f"TrainingJob job: {words}" in output, output


def test_a_change_of_an_existing_job_is_checked_as_an_update(
    validate: Validate, client: Client, report: Any
) -> None:
    client.training_jobs.create(job())
    assert validate(job())[0] == 0
    report("job", phase="Running", incarnation=1)
    changed = job(containers=[{**WORKER, "image": "b"}])
    code, output = validate(changed)
    assert code == 1 and "may change only" in output, output


def test_an_engine_of_the_cluster_is_used_for_validation(validate: Validate, control_plane: Any) -> None:
    name = f"e-{secrets.token_hex(4)}"
    engine = {
        "image": "mine:1",
        "command": ["mine"],
        "paramsSchema": {"type": "object", "properties": {"a": {}}},
    }
    head = {"apiVersion": "convoy.dev/v1alpha1", "kind": "Engine", "metadata": {"name": name}}
    control_plane.request("POST", "/apis/convoy.dev/v1alpha1/engines", {**head, "spec": engine})
    body = {**job(), "spec": {**SPEC, "engine": {"name": name, "params": {"a": 1}}}}
    assert validate(body, server=False)[0] == 1
    assert validate(body)[0] == 0
    body["spec"]["engine"]["params"] = {"b": 1}
    code, output = validate(body)
    assert code == 1 and "unknown parameter 'b'" in output


def test_missing_rights_for_pods_are_reported(validate: Validate, client: Client, control_plane: Any) -> None:
    namespace = client.namespace
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    control_plane.request("POST", account, {"metadata": {"name": "user"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = control_plane.request("POST", f"{account}/user/token", request)["status"]["token"]
    code, output = validate(job(), token=token)
    assert (
        code == 1
        and "the API server could not check the object: trainingjobs.convoy.dev is forbidden" in output
    )
    meta = {"metadata": {"name": "user"}}
    rules = [{"apiGroups": ["convoy.dev"], "resources": ["trainingjobs"], "verbs": ["create"]}]
    control_plane.request("POST", f"{RBAC}/namespaces/{namespace}/roles", {**meta, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "user", "namespace": namespace}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"}
    binding = {**meta, "subjects": subjects, "roleRef": role}
    control_plane.request("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    code, output = validate(job(), token=token)
    assert (
        code == 1 and "the API server would refuse pods of role worker: pods is forbidden: User" in output
    ), output
