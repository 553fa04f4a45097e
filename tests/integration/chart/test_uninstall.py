"""Tests of the chart's hooks before and after an uninstallation. They run with exactly the rights that the
chart grants.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from e2e import rights

from convoy_crds.terms import LABEL_AGENT_READY, LEASE_NAME

from .conftest import one, render

RBAC = "/apis/rbac.authorization.k8s.io/v1"
JOBS = "/apis/convoy.dev/v1alpha1"
JOB = {
    "apiVersion": "convoy.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "left"},
    "spec": {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 1}]},
}
POD = {
    "metadata": {
        "name": "left-worker-0",
        "labels": {
            "app.kubernetes.io/part-of": "convoy",
            "app.kubernetes.io/managed-by": "convoy-operator",
        },
    },
    "spec": {"containers": [{"name": "worker", "image": "any"}]},
}


def rules(helm: Path, kind: str, name: str) -> list[dict[str, Any]]:
    """Return the rules of a role in the chart."""
    return list(one(render(helm), kind, name)["rules"])


def account(control_plane: Any, namespace: str, name: str) -> Path:
    """Create a ServiceAccount and return its kubeconfig."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    control_plane.request("POST", accounts, {"metadata": {"name": name}})
    made = control_plane.request("POST", f"{accounts}/{name}/token", {"spec": {}})
    return Path(control_plane.kubeconfig(made["status"]["token"]))


def bind(
    control_plane: Any, namespace: str, name: str, kind: str, allowed: list[dict[str, Any]]
) -> frozenset[rights.Right]:
    """Give a ServiceAccount of the namespace a role of its own with these rules. Return the rights."""
    scope, metadata = f"/namespaces/{namespace}", {"name": name, "namespace": namespace}
    if kind == "ClusterRole":
        scope, metadata = "", {"name": f"{namespace}-{name}"}
    role = {"kind": kind, "metadata": metadata, "rules": allowed}
    control_plane.request("POST", f"{RBAC}{scope}/{kind.lower()}s", role)
    unique = metadata["name"]
    binding = {
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": unique},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    control_plane.request("POST", f"{RBAC}{scope}/{kind.lower()}bindings", binding)
    return rights.granted([role, binding], [name])


def assert_exact_rights(control_plane: Any, namespace: str, name: str, may: frozenset[rights.Right]) -> None:
    """Assert that the account has used all its rights and has requested nothing else."""
    requested = control_plane.audited_requests(namespace, name)
    assert rights.faults(may, rights.used(may, requested)) == []
    assert [str(one) for one in requested if one.refused] == []


def run(program: str, kubeconfig: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run the program of a hook. Return its exit code and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.fixture
def run_uninstall(control_plane: Any, helm: Path) -> Any:
    """Return a function that runs the check before an uninstallation, with the rights of the hook's service
    account.
    """
    # Other tests may have left jobs and pods.
    for item in control_plane.request("GET", f"{JOBS}/trainingjobs")["items"]:
        meta = item["metadata"]
        control_plane.request("DELETE", f"{JOBS}/namespaces/{meta['namespace']}/trainingjobs/{meta['name']}")
    selector = "labelSelector=app.kubernetes.io/part-of%3Dconvoy"
    for item in control_plane.request("GET", f"/api/v1/pods?{selector}")["items"]:
        meta = item["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}?gracePeriodSeconds=0"
        control_plane.request("DELETE", path)

    namespace = control_plane.namespace("uninstall")
    name = "convoy-uninstall"
    kubeconfig = account(control_plane, namespace, name)
    may = bind(control_plane, namespace, name, "ClusterRole", rules(helm, "ClusterRole", name))

    def uninstall() -> tuple[int, str]:
        return run("convoy_operator.uninstall", kubeconfig, "0")

    uninstall.namespace = namespace  # type: ignore[attr-defined]
    uninstall.may = may  # type: ignore[attr-defined]
    return uninstall


def test_remaining_jobs_and_pods_block_the_uninstall_and_are_named(
    control_plane: Any, run_uninstall: Any
) -> None:
    assert run_uninstall() == (0, "")
    jobs = f"{JOBS}/namespaces/{run_uninstall.namespace}/trainingjobs"
    control_plane.request("POST", jobs, JOB)
    control_plane.request("POST", f"/api/v1/namespaces/{run_uninstall.namespace}/pods", POD)
    code, words = run_uninstall()
    assert code == 1
    namespace = run_uninstall.namespace
    assert f"1 TrainingJob ({namespace}/left) and 1 worker pod ({namespace}/left-worker-0)" in words
    assert "kubectl delete trainingjobs --all -A --cascade=foreground" in words

    control_plane.request("DELETE", f"{jobs}/left")
    code, words = run_uninstall()
    assert code == 1 and "Still present: 1 worker pod (" in words, words
    control_plane.request(
        "DELETE", f"/api/v1/namespaces/{run_uninstall.namespace}/pods/left-worker-0?gracePeriodSeconds=0"
    )
    assert run_uninstall() == (0, "")


def test_an_uninstall_removes_node_labels_and_the_leader_lease(control_plane: Any, helm: Path) -> None:
    namespace, name = control_plane.namespace("uninstalled"), "convoy-uninstalled"
    kubeconfig = account(control_plane, namespace, name)
    may: frozenset[rights.Right] = frozenset()
    for kind in ("ClusterRole", "Role"):
        may |= bind(control_plane, namespace, name, kind, rules(helm, kind, name))
    labels = {LABEL_AGENT_READY: "true", "team": "a"}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    nodes = [f"{namespace}-{number}" for number in range(2)]
    policies = f"{JOBS}/guardpolicies"
    labels_of = {"app.kubernetes.io/managed-by": "convoy-operator"}
    for policy in ({"name": "default", "labels": labels_of}, {"name": "own", "labels": labels_of}):
        body = {"apiVersion": "convoy.dev/v1alpha1", "kind": "GuardPolicy", "metadata": policy}
        control_plane.request("POST", policies, body)
    try:
        for node in nodes:
            control_plane.request("POST", "/api/v1/nodes", {"metadata": {"name": node, "labels": labels}})
        for lease in (LEASE_NAME, "of-somebody-else"):
            control_plane.request("POST", leases, {"metadata": {"name": lease}})
        for _ in range(2):  # The second run has nothing left to do and must succeed too.
            code, words = run("convoy_operator.uninstalled", kubeconfig, CONVOY_NAMESPACE=namespace)
            assert code == 0, words
            for node in nodes:
                left = control_plane.request("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"]
                assert (LABEL_AGENT_READY in left, left["team"]) == (False, "a")
            left = [item["metadata"]["name"] for item in control_plane.request("GET", leases)["items"]]
            assert left == ["of-somebody-else"]
            left = [item["metadata"]["name"] for item in control_plane.request("GET", policies)["items"]]
            assert "own" in left and "default" not in left
        assert_exact_rights(control_plane, namespace, name, may)
    finally:
        control_plane.request("DELETE", f"{policies}/own")
        for node in nodes:
            control_plane.request("DELETE", f"/api/v1/nodes/{node}")


def test_remaining_objects_are_named(control_plane: Any) -> None:
    namespace = control_plane.namespace("uninstalled")
    kubeconfig = account(control_plane, namespace, "without-rights")
    code, words = run("convoy_operator.uninstalled", kubeconfig, CONVOY_NAMESPACE=namespace)
    assert code == 1
    assert "nodes may still have the label convoy.dev/agent-ready" in words and "403" in words


def test_the_uninstall_hook_uses_exactly_its_rights(control_plane: Any, run_uninstall: Any) -> None:
    assert run_uninstall() == (0, "")
    assert_exact_rights(control_plane, run_uninstall.namespace, "convoy-uninstall", run_uninstall.may)
