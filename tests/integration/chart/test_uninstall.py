"""What the chart's pre-delete hook runs, with the rights that the chart gives it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e import rights

ROOT = Path(__file__).parents[3]
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


def role() -> dict[str, Any]:
    """The chart's ClusterRole; of its template only what holds values is left out."""
    text = (ROOT / "charts/convoy/templates/uninstall.yaml").read_text()
    (document,) = [part for part in text.split("---\n") if "kind: ClusterRole\n" in part]
    return dict(yaml.safe_load("\n".join(line for line in document.splitlines() if "{{" not in line)))


@pytest.fixture
def asks(control_plane: Any) -> Any:
    """Runs the hook's program as the hook's service account; its exit code and what it says."""
    for item in control_plane.request("GET", f"{JOBS}/trainingjobs")["items"]:  # of other tests
        meta = item["metadata"]
        control_plane.request("DELETE", f"{JOBS}/namespaces/{meta['namespace']}/trainingjobs/{meta['name']}")
    selector = "labelSelector=app.kubernetes.io/part-of%3Dconvoy"
    for item in control_plane.request("GET", f"/api/v1/pods?{selector}")["items"]:
        meta = item["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}?gracePeriodSeconds=0"
        control_plane.request("DELETE", path)

    namespace = control_plane.namespace("uninstall")
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    control_plane.request("POST", accounts, {"metadata": {"name": "convoy-uninstall"}})
    name = f"{namespace}-uninstall"
    control_plane.request("POST", f"{RBAC}/clusterroles", {**role(), "metadata": {"name": name}})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "convoy-uninstall", "namespace": namespace}],
    }
    control_plane.request("POST", f"{RBAC}/clusterrolebindings", binding)
    may = rights.granted(
        [
            {**role(), "kind": "ClusterRole", "metadata": {"name": name}},
            {**binding, "kind": "ClusterRoleBinding"},
        ],
        ["convoy-uninstall"],
    )
    made = control_plane.request("POST", f"{accounts}/convoy-uninstall/token", {"spec": {}})
    kubeconfig = control_plane.kubeconfig(made["status"]["token"])

    def run() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "convoy_operator.uninstall"],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr

    run.namespace = namespace  # type: ignore[attr-defined]
    run.may = may  # type: ignore[attr-defined]
    return run


def test_jobs_and_their_pods_stand_in_the_way_and_are_named(control_plane: Any, asks: Any) -> None:
    assert asks() == (0, "")
    jobs = f"{JOBS}/namespaces/{asks.namespace}/trainingjobs"
    control_plane.request("POST", jobs, JOB)
    control_plane.request("POST", f"/api/v1/namespaces/{asks.namespace}/pods", POD)
    code, words = asks()
    assert code == 1
    assert f"1 TrainingJob ({asks.namespace}/left) and 1 worker pod ({asks.namespace}/left-worker-0)" in words
    assert "kubectl delete trainingjobs --all -A --cascade=foreground" in words

    control_plane.request("DELETE", f"{jobs}/left")
    code, words = asks()
    assert code == 1 and "It has 1 worker pod (" in words, words
    control_plane.request(
        "DELETE", f"/api/v1/namespaces/{asks.namespace}/pods/left-worker-0?gracePeriodSeconds=0"
    )
    assert asks() == (0, "")


def test_it_uses_every_right_that_the_chart_gives_it_and_asks_for_no_other(
    control_plane: Any, asks: Any
) -> None:
    assert asks() == (0, "")
    asked = control_plane.asked(asks.namespace, "convoy-uninstall")
    assert rights.faults(asks.may, rights.used(asks.may, asked)) == []
    assert [str(one) for one in asked if one.refused] == []
