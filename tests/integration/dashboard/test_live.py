"""Tests of live updates of pages in a real browser."""

from __future__ import annotations

from typing import Any

from tests.integration.dashboard import times
from tests.integration.dashboard.conftest import Browser, Cluster, Process, eventually


def job(name: str, namespace: str = "default", **status: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "worker", "image": "i", "command": ["true"]}]}}
    return {
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"roles": [{"name": "worker", "replicas": 2, "template": template}]},
        **({"status": status} if status else {}),
    }


def test_an_empty_cluster_has_explanations(empty: Cluster, dashboard: Process, browser: Browser) -> None:
    browser.open(dashboard.url)
    browser.wait_for_text("There are no TrainingJobs")
    browser.wait_for_text("Nothing needs attention.")
    assert browser.console_errors() == []


def test_a_job_is_followed_from_pending_to_succeeded_without_a_reload(
    empty: Cluster, dashboard: Process, browser: Browser
) -> None:
    browser.open(dashboard.url)
    browser.wait_for_text("There are no TrainingJobs")
    browser.run("window.stayed = true")
    empty.make("trainingjobs", job("follow", phase="Pending", reason="WaitingForPods"))
    eventually(lambda: browser.row("default/follow")[1] == "Pending")
    for phase, ready in (("Starting", "0/2"), ("Running", "2/2"), ("Succeeded", "2/2")):
        empty.status("trainingjobs", "follow", {"phase": phase, "ready": ready}, "default")
        eventually(lambda phase=phase, ready=ready: browser.row("default/follow")[1:3] == [phase, ready])
    assert browser.run("return window.stayed") is True
    assert browser.console_errors() == []


def test_an_open_page_reports_the_deletion_of_its_job(
    empty: Cluster, dashboard: Process, browser: Browser
) -> None:
    path = "/apis/convoy.dev/v1alpha1/namespaces/default/trainingjobs/short"
    made = empty.make(
        "trainingjobs", job("short", phase="Failed", reason="RankFailed", message="it fell over")
    )
    happened = {
        "metadata": {"name": "of-the-first-life", "namespace": "default"},
        "involvedObject": {"namespace": "default", "name": "short", "uid": made["metadata"]["uid"]},
        "reason": "Happened",
        "message": "in the first life",
        "lastTimestamp": times.at(minutes=1),
    }
    empty.plane.request("POST", "/api/v1/namespaces/default/events", happened)
    browser.open(dashboard.url + "/jobs/default/short")
    browser.wait_for_text("it fell over")
    browser.wait_for_text("in the first life")
    empty.plane.request("DELETE", path)
    browser.wait_for_text("The job was deleted")
    assert "it fell over" not in browser.text and browser.find(".title .badge").text == ""
    empty.make("trainingjobs", job("short", phase="Running", reason="Training", message="a new life"))
    browser.wait_for_text("a new life")
    assert "in the first life" not in browser.text, "it is another job of that name"
    assert browser.console_errors() == []


def test_an_open_page_of_a_deleted_node_has_no_state(
    empty: Cluster, dashboard: Process, browser: Browser
) -> None:
    empty.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "leaving"}})
    browser.open(dashboard.url + "/nodes/leaving")
    eventually(lambda: browser.find(".title .badge").text == "Unguarded")
    empty.plane.request("DELETE", "/api/v1/nodes/leaving")
    browser.wait_for_text("There is no such node")
    assert browser.find(".title .badge").text == ""
