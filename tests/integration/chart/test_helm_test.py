"""Tests of `helm test`: its rendered objects, and its program, which runs with exactly the rights that the
chart grants.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from convoy_operator.chart_test import NAME
from convoy_operator.settings import from_environment

from .conftest import CHART, Bodies, one, render

RBAC = "/apis/rbac.authorization.k8s.io/v1"
POD = '{"imagePullSecrets": [{"name": "pull"}], "tolerations": [{"operator": "Exists"}]}'


def hooks(bodies: Bodies) -> Bodies:
    return [b for b in bodies if (b["metadata"].get("annotations") or {}).get("helm.sh/hook") == "test"]


def test_only_helm_test_runs_the_test_job_with_its_own_account(helm: Path) -> None:
    bodies = render(helm, "images.registry=registry.example.com", "images.tag=v7")
    found = hooks(bodies)
    assert [b["kind"] for b in found] == ["ServiceAccount", "Role", "RoleBinding", "Job"]
    assert all(b["metadata"]["namespace"] == "convoy-system" for b in found)
    pod = found[-1]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == found[0]["metadata"]["name"] == found[2]["subjects"][0]["name"]
    assert pod["containers"][0]["image"] == "registry.example.com/convoy/operator:v7"
    assert pod["containers"][0]["command"] == ["python", "-m", "convoy_operator.chart_test"]
    named = [rule["resourceNames"] for rule in found[1]["rules"] if "create" not in rule["verbs"]]
    assert named == [[NAME]]


def test_the_helm_test_trains_the_job_of_the_values(helm: Path) -> None:
    values = {"test": {"engine": "mine", "params": {"words": 'a "b"', "number": 3}, "seconds": 90}}
    job = one(render(helm, values=values), "Job", "convoy-trains-a-job")
    engine, params, seconds, _ = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert (engine, float(seconds)) == ("mine", 90)
    assert json.loads(params) == values["test"]["params"]
    assert job["spec"]["activeDeadlineSeconds"] > 90


def test_another_engine_gets_no_parameters_of_the_default_engine(helm: Path) -> None:
    job = one(render(helm, "test.engine=mine"), "Job", "convoy-trains-a-job")
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][1] == "{}"


def test_the_worker_uses_the_pull_secrets_and_tolerations_of_the_values(
    helm: Path,
) -> None:
    taint = {"key": "accelerator", "operator": "Exists"}
    values = {"images": {"pullSecrets": [{"name": "pull"}]}, "test": {"tolerations": [taint]}}
    job = one(render(helm, values=values), "Job", "convoy-trains-a-job")
    pod = json.loads(job["spec"]["template"]["spec"]["containers"][0]["args"][3])
    assert pod == {"imagePullSecrets": [{"name": "pull"}], "tolerations": [taint]}


def test_the_default_engine_is_in_the_chart_and_accepts_the_parameters(helm: Path) -> None:
    job = one(render(helm), "Job", "convoy-trains-a-job")
    engine, params, *_ = job["spec"]["template"]["spec"]["containers"][0]["args"]
    spec = yaml.safe_load((CHART / "files" / "engines" / f"{engine}.yaml").read_text())["spec"]
    jsonschema.validate(json.loads(params), spec["paramsSchema"])
    assert json.loads(params)["steps"] <= 20


@pytest.fixture
def account(control_plane: Any, helm: Path) -> Iterator[tuple[str, Path]]:
    """Yield a namespace, and the kubeconfig of an account in this namespace that has the chart's rights."""
    namespace = control_plane.namespace("helm-test")
    role = {"rules": one(render(helm), "Role", "convoy-test")["rules"], "metadata": {"name": "convoy-test"}}
    binding = {
        "metadata": {"name": "convoy-test"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "convoy-test"},
        "subjects": [{"kind": "ServiceAccount", "name": "convoy-test", "namespace": namespace}],
    }
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    control_plane.request("POST", accounts, {"metadata": {"name": "convoy-test"}})
    control_plane.request("POST", f"{RBAC}/namespaces/{namespace}/roles", role)
    control_plane.request("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    made = control_plane.request("POST", f"{accounts}/convoy-test/token", {"spec": {}})
    yield namespace, control_plane.kubeconfig(made["status"]["token"])


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ({"phase": "Succeeded"}, 0, ""),
        ({"phase": "Failed"}, 1, "the job failed: Why: that is why"),
    ],
)
def test_the_rights_of_the_chart_suffice_and_no_object_remains(
    control_plane: Any, account: tuple[str, Path], status: dict[str, Any], code: int, words: str
) -> None:
    namespace, kubeconfig = account
    program = subprocess.Popen(
        [sys.executable, "-m", "convoy_operator.chart_test", "gpt", '{"steps": 20}', "60", POD],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "CONVOY_NAMESPACE": namespace},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        play_operator(control_plane, namespace, program, status)
        _, stderr = program.communicate(timeout=40)
    finally:
        program.kill()
    assert (program.returncode, words in stderr) == (code, True), stderr
    path = f"/apis/convoy.dev/v1alpha1/namespaces/{namespace}/trainingjobs"
    assert control_plane.request("GET", path)["items"] == []


def play_operator(
    control_plane: Any, namespace: str, program: subprocess.Popen[str], status: dict[str, Any]
) -> None:
    """Write a status that ends the job, as soon as the program has created the job."""
    path = f"/apis/convoy.dev/v1alpha1/namespaces/{namespace}/trainingjobs/{NAME}/status"
    kind = "Complete" if status["phase"] == "Succeeded" else "Failed"
    condition = {
        "type": kind,
        "status": "True",
        "reason": "Why",
        "message": "that is why",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {"status": {**status, "conditions": [condition]}}
    deadline = time.monotonic() + 40
    while program.poll() is None and time.monotonic() < deadline:
        try:
            control_plane.request("PATCH", path, body, "application/merge-patch+json")
            return
        except urllib.error.HTTPError as refused:
            if refused.code != 404:
                raise
        time.sleep(0.1)


def test_the_test_job_has_the_settings_of_the_operator(helm: Path) -> None:
    job = one(render(helm), "Job", "convoy-trains-a-job")
    (entry,) = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert entry["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    assert from_environment({entry["name"]: "elsewhere"}).namespace == "elsewhere"
