"""Tests that the dashboard uses every permission from the chart and needs no other."""

from __future__ import annotations

from pathlib import Path

from e2e import rights
from tests.integration.dashboard import llama, machines, samples
from tests.integration.dashboard.conftest import Browser, Cluster, Starter, chart_rules, eventually
from tests.integration.dashboard.kubelet import Kubelet
from tests.integration.dashboard.test_auth import ALL, log_in

NAME = "of-the-chart"
LOGS = [{"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}]


def granted() -> frozenset[rights.Right]:
    role = {"kind": "ClusterRole", "metadata": {"name": NAME}, "rules": chart_rules()}
    subject = {"kind": "ServiceAccount", "name": NAME}
    reference = {"kind": "ClusterRole", "name": NAME}
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": NAME}, "roleRef": reference}
    return rights.granted([role, {**binding, "subjects": [subject]}], [NAME])


def test_every_permission_is_used_and_no_request_is_forbidden(
    empty: Cluster, starter: Starter, browser: Browser, tmp_path: Path
) -> None:
    kubelet = Kubelet(tmp_path, "[3/0] step 1\n")
    machines.nodes(empty)
    for node in empty.plane.request("GET", "/api/v1/nodes")["items"]:
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"
        empty.plane.request("PATCH", path, {"status": kubelet.status}, "application/merge-patch+json")
    empty.make("trainingjobs", samples.training_job("llama-8b", replicas=4, processes=2))
    llama.pods(empty)
    token = empty.account(NAME, chart_rules())
    process = starter("TokenReview", kubeconfig=empty.plane.kubeconfig(token))
    log_in(process, browser, empty.account("reader", ALL + LOGS))
    browser.wait_for_text("default/llama-8b")
    browser.open(process.url + "/jobs/default/llama-8b")
    browser.wait_for_text("llama-8b-worker-2")
    eventually(lambda: [one for one in browser.all("button") if one.text.startswith("Show")])[0].click()
    browser.wait_for_text("step 1")

    def requests() -> list[rights.Request]:
        return empty.plane.audited_requests("default", NAME)

    def all_used() -> bool:
        assert rights.faults(granted(), rights.used(granted(), requests())) == []
        return True

    eventually(all_used, 20)
    assert [str(one) for one in requests() if one.refused] == []
    process.stop()
    kubelet.end()
