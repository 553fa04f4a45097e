"""Tests of the dashboard in a real cluster: its login, its pages, and the rights of its account."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dashboard.browser import Browser, eventually

from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.drive.dashboard_access import DASHBOARD, granted, port_forward, reader_token
from e2e.drive.job_specs import SMALL
from e2e.drive.jobs import Jobs
from e2e.install import NAMESPACE

CHANGES = ("create", "update", "patch", "delete", "deletecollection", "impersonate", "bind", "escalate")
NAMESPACE_FIELDS = ("serviceAccount", "serviceAccountName", "priorityClassName")

STEPS = 20


@pytest.fixture(scope="module")
def dashboard(cluster: Cluster) -> Iterator[str]:
    with port_forward(cluster, "convoy-dashboard", 80) as url:
        yield url


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if not shutil.which("chromedriver"):
        pytest.fail("chromedriver is missing; run: make host")
    found = Browser(tmp_path)
    yield found
    found.driver.quit()


def log_in(browser: Browser, token: str) -> None:
    browser.find("#token").send_keys(token)
    browser.find("button[type=submit]").click()


def click_button(browser: Browser, name: str) -> None:
    def there() -> list[Any]:
        return [one for one in browser.all("button") if one.text.startswith(name)]

    eventually(there, what=f"a button {name}")[0].click()


@contextmanager
def unschedulable_template(cluster: Cluster) -> Iterator[tuple[dict[str, Any], Callable[[], object]]]:
    """Yield a pod template that fits on no node, and a function that makes it fit on the first node."""
    node, label = cluster.nodes[0].name, "e2e.convoy.dev/open"
    try:
        yield (
            {"spec": {"nodeSelector": {label: "yes"}}},
            lambda: cluster.kubectl("label", "node", node, f"{label}=yes"),
        )
    finally:
        cluster.kubectl("label", "node", node, f"{label}-")


def test_a_reader_sees_the_progress_and_the_log_of_a_job(
    cluster: Cluster, jobs: Jobs, dashboard: str, browser: Browser
) -> None:
    key = f"{jobs.namespace}/seen"

    def shows(phase: str) -> None:
        eventually(lambda: browser.row(key)[1] == phase, 240, f"{key} is {phase}")

    with (
        unschedulable_template(cluster) as (template, make_schedulable),
        reader_token(cluster, jobs.namespace, "reader", "view") as token,
    ):
        browser.open(dashboard)
        log_in(browser, token)
        browser.wait_for_text(f"{jobs.namespace}/reader")
        browser.run("window.stayed = true")
        params = {**SMALL, "steps": STEPS}
        role = {"name": "worker", "replicas": 2, "template": template}
        jobs.create("seen", engine={"name": "gpt", "params": params}, roles=[role])
        shows("Pending")
        make_schedulable()
        shows("Running")
        shows("Succeeded")
        assert browser.run("return window.stayed") is True, "no page was reloaded"
        assert cluster.nodes[0].name not in browser.text, "a reader of one namespace sees no nodes"

        browser.open(f"{dashboard}/jobs/{key}")
        browser.wait_for_text(f"all ranks of worker completed after step {STEPS}")
        click_button(browser, "Show the last 500 lines")
        browser.wait_for_text(f"step {STEPS}/{STEPS}")
        assert browser.console_errors() == []


def test_a_user_without_permissions_gets_an_explanation(
    cluster: Cluster, jobs: Jobs, dashboard: str, browser: Browser
) -> None:
    browser.open(dashboard)
    log_in(browser, "of-no-cluster")
    browser.wait_for_text("The API server rejected this token")
    with reader_token(cluster, jobs.namespace, "for-others", audience="convoy-hub") as token:
        log_in(browser, token)
        browser.wait_for_text("The API server rejected this token")
    with reader_token(cluster, jobs.namespace, "nobody") as token:
        log_in(browser, token)
        user = f"system:serviceaccount:{jobs.namespace}:nobody"
        browser.wait_for_text(f"There are no TrainingJobs that {user} may list.")
        assert not browser.find("section[aria-labelledby=nodes]").is_displayed()


def test_the_dashboard_pod_meets_the_restricted_standard(cluster: Cluster, namespace: str) -> None:
    def refused(workload: str) -> str:
        """Return the API server's error for a pod of this workload in a restricted namespace; empty if it
        has none.
        """
        spec = cluster.get("-n", NAMESPACE, workload)["spec"]["template"]["spec"]
        like = {key: value for key, value in spec.items() if key not in NAMESPACE_FIELDS}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "like"}, "spec": like}
        try:
            cluster.kubectl("-n", namespace, "create", "--dry-run=server", "-f", "-", text=json.dumps(body))
        except ClusterError as error:
            return str(error)
        return ""

    assert refused("deployment/convoy-dashboard") == ""
    assert "violates PodSecurity" in refused("daemonset/convoy-agent"), (
        "negative control: the agent violates the standard"
    )
    (pod,) = cluster.get("-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/component=dashboard")["items"]
    assert {one["type"]: one["status"] for one in pod["status"]["conditions"]}["Ready"] == "True"


def test_the_dashboard_account_cannot_change_objects(cluster: Cluster) -> None:
    reviews = ("tokenreviews", "subjectaccessreviews")
    anybody = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews")
    assert granted(cluster, DASHBOARD, CHANGES) == {("create", plural) for plural in (*reviews, *anybody)}
    read = {plural for _, plural in granted(cluster, DASHBOARD, ("get",))}
    assert "pods/log" in read and not {"secrets", "configmaps", "pods/exec", "nodes/proxy"} & read
