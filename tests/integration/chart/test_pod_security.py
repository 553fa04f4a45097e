"""Tests that a real API server accepts all pods under the restricted pod security standard, except the
agents' pods.
"""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any

import pytest

from .conftest import render
from .test_rendered import EVERYTHING, pods

ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}
DASHBOARD = {**EVERYTHING, "dashboard": {"enabled": True}}


@pytest.fixture(scope="module")
def restricted(control_plane: Any) -> str:
    """Return the path of pods in a namespace that enforces the restricted standard."""
    name = str(control_plane.namespace("restricted"))
    path = f"/api/v1/namespaces/{name}"
    control_plane.request("PATCH", path, {"metadata": {"labels": ENFORCED}}, "application/merge-patch+json")
    return f"{path}/pods?dryRun=All"


@pytest.mark.parametrize("values", [{}, DASHBOARD], ids=["defaults", "everything"])
def test_every_pod_but_the_agents_passes_the_restricted_standard(
    control_plane: Any, helm: Path, restricted: str, values: dict[str, Any]
) -> None:
    refused = {}
    found = pods(render(helm, values=values))
    for owner, template in found.items():
        body = {"metadata": {"generateName": "p-"}, "spec": template["spec"]}
        try:
            control_plane.request("POST", restricted, body)
        except urllib.error.HTTPError as error:
            refused[owner] = error.read().decode()
    assert set(refused) == {"DaemonSet convoy-agent"}
    assert "privileged" in refused["DaemonSet convoy-agent"]
    assert ("Deployment convoy-dashboard" in found) is bool(values)


def test_an_agent_requests_only_the_privileges_that_its_work_needs(helm: Path) -> None:
    spec = pods(render(helm))["DaemonSet convoy-agent"]["spec"]
    folders = {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert folders == {"/var/lib/kubelet", "/run/convoy", "/var/lib/convoy/models"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


def test_an_agent_reads_fake_notices_only_if_the_chart_allows_it(helm: Path) -> None:
    address = "file:///run/convoy/notice.json"
    spec = pods(render(helm, f"agent.notices.fake={address}"))["DaemonSet convoy-agent"]["spec"]
    environment = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert environment["CONVOY_FAKE_NOTICES"] == address
    assert "CONVOY_FAKE_NOTICES" not in str(pods(render(helm)))


def test_an_agent_sees_processes_of_its_node_only_for_fault_injection(helm: Path) -> None:
    spec = pods(render(helm, "faultInjection.enabled=true"))["DaemonSet convoy-agent"]["spec"]
    environment = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert (spec["hostPID"], environment["CONVOY_FAULT_INJECTION"]) == (True, "true")
    before = pods(render(helm))["DaemonSet convoy-agent"]["spec"]
    assert "CONVOY_FAULT_INJECTION" not in str(before)
    assert spec["volumes"] == before["volumes"], "no further folder of the node"
    assert not {"hostNetwork", "hostIPC"} & set(spec)


def test_an_agent_has_no_token_that_the_api_server_accepts(helm: Path) -> None:
    bodies = render(helm, values=DASHBOARD)
    spec = pods(bodies)["DaemonSet convoy-agent"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("convoy-agent", False)
    sources = [one for volume in spec["volumes"] for one in volume.get("projected", {}).get("sources", ())]
    assert [one["serviceAccountToken"]["audience"] for one in sources] == ["convoy-hub"]
    bound = {
        subject["name"]
        for body in bodies
        if body["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for subject in body["subjects"]
    }
    assert bound == {
        "convoy-operator",
        "convoy-dashboard",
        "convoy-uninstall",
        "convoy-uninstalled",
        "convoy-test",
    }
