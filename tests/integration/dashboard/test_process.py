"""Tests of the dashboard's process: probes, metrics, permissions and exit."""

from __future__ import annotations

import resource
import socket
import time
import urllib.error
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.integration.dashboard import llama, machines, samples
from tests.integration.dashboard.conftest import Browser, Cluster, Starter, chart_rules, eventually
from tests.integration.dashboard.cuttable_proxy import CuttableProxy
from tests.integration.dashboard.kubelet import Kubelet

pytestmark = pytest.mark.timeout(180)


def test_probes_and_metrics_are_served_and_the_stop_is_fast(
    empty: Cluster, starter: Starter, browser: Browser
) -> None:
    process = starter()
    assert process.get("/healthz", process.probe_port) == "ok\n"
    browser.open(process.url)
    browser.wait_for_text("There are no TrainingJobs")
    eventually(lambda: "convoy_dashboard_clients 1.0" in process.get("/metrics", process.metrics_port))
    metrics = process.get("/metrics", process.metrics_port)
    for name in ("updates_total", "update_seconds_bucket", "watch_lag_seconds", "sessions"):
        assert f"convoy_dashboard_{name}" in metrics
    assert "convoy_reconcile" not in metrics
    start = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - start < 12
    browser.open("about:blank")


def test_forbidden_watches_are_reported(empty: Cluster, starter: Starter, browser: Browser) -> None:
    rules = [
        {**rule, "resources": [one for one in rule["resources"] if one != "nodehealths"]}
        for rule in chart_rules()
    ]
    token = empty.account("half-blind", rules)
    process = starter(kubeconfig=empty.plane.kubeconfig(token))
    browser.open(process.url)
    browser.wait_for_text("Cannot watch nodehealths: 403")
    process.stop()


def test_before_the_first_list_pages_report_that_data_may_be_missing(
    empty: Cluster, starter: Starter, browser: Browser
) -> None:
    empty.make("trainingjobs", samples.training_job("there"))
    proxy = CuttableProxy(urlsplit(empty.plane.url).port or 0)
    config = empty.plane.kubeconfig()
    config.write_text(config.read_text().replace(empty.plane.url, f"https://127.0.0.1:{proxy.port}"))
    proxy.cut()
    process = starter.launch(kubeconfig=config)
    eventually(lambda: process.get("/login") is not None, 50)
    browser.open(process.url)
    browser.wait_for_text("Not loaded yet: ")
    browser.wait_for_text("The API server has not answered since")
    proxy.mend()
    browser.wait_for_text("default/there")
    eventually(lambda: not browser.find(".banner").is_displayed())
    process.stop()
    proxy.end()


def test_the_chart_permissions_suffice_and_exclude_secrets(
    empty: Cluster, starter: Starter, browser: Browser
) -> None:
    token = empty.account("convoy-dashboard", chart_rules())
    assert all("secrets" not in rule["resources"] for rule in chart_rules())
    verbs = {verb for rule in chart_rules() for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch", "create"}
    created = {one for rule in chart_rules() if "create" in rule["verbs"] for one in rule["resources"]}
    assert created == {"tokenreviews", "subjectaccessreviews"}
    config = empty.plane.kubeconfig(token)
    process = starter(kubeconfig=config)
    browser.open(process.url)
    browser.wait_for_text("There are no TrainingJobs")
    eventually(lambda: not browser.find(".banner").is_displayed())
    process.stop()


def test_the_dashboard_writes_only_to_the_configured_folder(empty: Cluster, starter: Starter) -> None:
    folder = starter.folder
    before = {path.name for path in folder.iterdir() if not path.name.startswith("dashboard-")}
    process = starter()
    process.stop()
    after = {path.name for path in folder.iterdir() if not path.name.startswith("dashboard-")}
    assert after - before <= {"nicegui"}
    assert not Path(".nicegui").exists()


def test_the_dashboard_listens_on_ipv4_and_ipv6(empty: Cluster, starter: Starter) -> None:
    process = starter("TokenReview", bind="")
    for host in ("127.0.0.1", "[::1]"):
        assert process.get("/healthz", process.probe_port, host) == "ok\n"
        assert "convoy_dashboard_clients" in process.get("/metrics", process.metrics_port, host)
        assert "<html" in process.get("/login", host=host)
    process.stop()


def test_without_authentication_pages_are_on_the_loopback_only(empty: Cluster, starter: Starter) -> None:
    elsewhere = "127.0.0.2"
    process = starter.launch("None", bind=elsewhere)
    eventually(lambda: process.get("/readyz", process.probe_port, elsewhere) == "ok\n", 50)
    assert "convoy_dashboard_clients" in process.get("/metrics", process.metrics_port, elsewhere)
    assert "<html" in process.get("/")
    with pytest.raises(urllib.error.URLError, match="refused"):
        process.get("/", host=elsewhere)
    process.stop()


def test_probes_and_pages_are_served_while_anonymous_clients_hold_connections(
    empty: Cluster, starter: Starter
) -> None:
    process = starter("TokenReview")
    # Allow the process fewer file descriptors than the strangers' connections need.
    resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (640, 640))
    ports = [process.metrics_port, process.probe_port] * 200 + [process.port] * 800
    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(own[1], max(own[0], 4096)), own[1]))
    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, own)
        for number, port in enumerate(ports):
            stranger = f"127.0.3.{number % 250 + 1}"
            held.enter_context(socket.create_connection(("127.0.0.1", port), 10, (stranger, 0)))
        for _ in range(3):
            assert process.get("/healthz", process.probe_port) == "ok\n"
            assert process.get("/readyz", process.probe_port) == "ok\n"
            assert "convoy_dashboard_clients" in process.get("/metrics", process.metrics_port)
            assert "<html" in process.get("/login")
    process.stop()


def test_an_invalid_setting_is_named(starter: Starter) -> None:
    one = starter.launch("Nobody")
    assert one.process.wait(40) != 0
    assert "CONVOY_DASHBOARD_AUTH_MODE='Nobody' must be one of" in one.log.read_text()


def test_the_log_of_a_rank_is_read_and_followed(
    empty: Cluster, starter: Starter, browser: Browser, tmp_path: Path
) -> None:
    kubelet = Kubelet(tmp_path, "launcher\n[3/4] step 1 of rank 4 <b>\n[3/5] step 1 of rank 5\n")
    machines.nodes(empty)
    path = "/api/v1/nodes/node-06/status"
    empty.plane.request("PATCH", path, {"status": kubelet.status}, "application/merge-patch+json")
    empty.make("trainingjobs", samples.training_job("llama-8b", replicas=4, processes=2))
    llama.pods(empty)
    process = starter()
    browser.open(process.url + "/jobs/default/llama-8b")

    def press(name: str) -> None:
        eventually(lambda: [one for one in browser.all("button") if one.text.startswith(name)])[0].click()

    browser.wait_for_text("llama-8b-worker-2")
    # Follow the link in a pod's row, which leads to the log of the pod's first rank.
    browser.find("tr a[href$='?rank=4#logs']").click()
    eventually(lambda: browser.find("input[type=number]").get_attribute("value") == "4")
    assert browser.run("return document.querySelector('#logs').getBoundingClientRect().top < innerHeight")
    press("Show")
    browser.wait_for_text("[3/4] step 1 of rank 4 <b>")
    assert "of rank 5" not in browser.text
    path_requested, query = kubelet.requests[-1]
    assert path_requested == "/containerLogs/default/llama-8b-worker-2/worker"
    assert query["tailLines"] == ["500"] and "follow" not in query
    press("Follow")
    browser.wait_for_text("following rank 4")
    kubelet.more.put("[3/4] step 2 of rank 4\n")
    browser.wait_for_text("step 2 of rank 4")
    kubelet.more.put(None)
    browser.wait_for_text("the log has ended")
    browser.find("input[type=number]").send_keys("4")
    press("Show")
    browser.wait_for_text("llama-8b has no rank 44")
    process.stop()
    kubelet.end()


def test_disabled_logs_cannot_be_requested(empty: Cluster, starter: Starter, browser: Browser) -> None:
    empty.make("trainingjobs", samples.training_job("quiet"))
    process = starter(logs="false")
    browser.open(process.url + "/jobs/default/quiet")
    browser.wait_for_text("Logs are disabled")
    assert not [one for one in browser.all("button") if one.text.startswith(("Show", "Follow"))]
    process.stop()
