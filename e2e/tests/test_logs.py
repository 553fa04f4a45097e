"""Tests of logs, Events and processes. They must contain nothing confidential while jobs train and a reader
is logged in to the dashboard.
"""

from __future__ import annotations

import http.client
import json
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from convoy_crds.terms import CA_SECRET, LABEL_JOB
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.drive.confidential import confidential_values, leaked_values
from e2e.drive.dashboard_access import port_forward, reader_token
from e2e.drive.job_progress import watermark
from e2e.drive.job_specs import ENDLESS, memory, on_separate_nodes
from e2e.drive.jobs import Jobs
from e2e.drive.s3_server import ACCESS, SECRET, checkpoint_store, s3_server
from e2e.install import NAMESPACE

PARTS = ("operator", "agent", "dashboard")


def log_in(url: str, token: str) -> str:
    """Log in to the dashboard with a token. Return the session cookie's value."""
    place = urlsplit(url).netloc
    connection = http.client.HTTPConnection(place, timeout=20)
    try:
        headers = {"Origin": url, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/login", urlencode({"token": token}), headers)
        response = connection.getresponse()
        assert response.status == 303, response.read()
        return response.getheader("set-cookie", "").partition(";")[0].partition("=")[2]
    finally:
        connection.close()


def pods(cluster: Cluster, namespace: str, selector: str) -> list[dict[str, Any]]:
    """Return the pods with this label selector that are not being deleted."""
    found: list[dict[str, Any]] = cluster.get("-n", namespace, "pods", "-l", selector)["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def log(cluster: Cluster, pod: dict[str, Any]) -> str:
    """Return the logs of all containers of a pod, including the logs before their last restart."""
    status, meta = pod["status"], pod["metadata"]
    found = []
    for one in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        if not one.get("containerID"):
            continue  # Skip a container that has not started, because it has no log.
        command = ("-n", meta["namespace"], "logs", meta["name"], "-c", one["name"])
        found.append(cluster.kubectl(*command))
        if one["restartCount"]:
            # The kubelet may have deleted the previous log.
            with suppress(ClusterError):
                found.append(cluster.kubectl(*command, "--previous"))
    return "\n".join(found)


def log_contains(cluster: Cluster, pod: dict[str, Any], words: str) -> bool:
    """Return True if `words` is in a pod's log."""
    return words in log(cluster, pod)


def part_logs(cluster: Cluster, name: str) -> str:
    """Return the logs of all pods in a part of Convoy: operator, agent or dashboard."""
    selector = f"app.kubernetes.io/component={name}"
    return "\n".join(log(cluster, pod) for pod in pods(cluster, NAMESPACE, selector))


def test_no_secret_is_in_a_log_or_an_event(cluster: Cluster, jobs: Jobs) -> None:
    name = "discreet"
    jobs.create(
        name,
        engine={"name": "gpt", "params": ENDLESS},
        checkpoint=memory("1s"),
        roles=[{"name": "worker", "replicas": 2, "template": on_separate_nodes(name)}],
    )
    jobs.wait(lambda: watermark(jobs.status(name), "peer"), 90, "a checkpoint with copies")
    with (
        reader_token(cluster, jobs.namespace, "discreet") as token,
        port_forward(cluster, "convoy-dashboard", 80) as url,
    ):
        cookie = log_in(url, token)
        user = f"{jobs.namespace}:discreet"
        jobs.wait(lambda: user in part_logs(cluster, "dashboard"), 20, "the login in the dashboard's log")
        confidential = confidential_values(cluster.get("-n", NAMESPACE, "secrets")["items"])
        assert any(key.startswith(f"{CA_SECRET}/tls.key") for key in confidential), (
            "negative control: the CA's key is among the searched values"
        )
        confidential |= {"a reader's token": token, "a reader's session": cookie}
        assert len(cookie) > 15 and len(token) > 15
        texts = {one: part_logs(cluster, one) for one in PARTS}
        others = [
            pod
            for pod in cluster.get("-n", NAMESPACE, "pods")["items"]
            if pod["metadata"].get("labels", {}).get("app.kubernetes.io/component") not in PARTS
        ]
        more = {pod["metadata"]["name"]: log(cluster, pod) for pod in others}
        workers = pods(cluster, jobs.namespace, f"{LABEL_JOB}={name}")
        texts["job"] = "\n".join(log(cluster, pod) for pod in workers)
        events = cluster.get("events", "--all-namespaces")["items"]
        texts["events"] = "\n".join(json.dumps(event, ensure_ascii=False) for event in events)
    assert {one for one, text in texts.items() if not text.strip()} == set(), (
        "every part has logged something"
    )
    found = {one: leaked_values(text, confidential) for one, text in {**more, **texts}.items()}
    assert {one: names for one, names in found.items() if names} == {}
    jobs.delete(name)


@pytest.mark.full
def test_the_processes_of_a_worker_have_no_credentials_of_its_store(cluster: Cluster, jobs: Jobs) -> None:
    """Searches the store's keys in environment and arguments of the launcher, and in those that a rank
    prints.

    The rank prints its own environment: a rank may be forked, and then /proc shows the environment of its
    parent.
    """
    name = "no-store-keys"
    program = "import os, sys, time; print(sorted(os.environ.items()), sys.argv, flush=True); time.sleep(600)"
    container = {"name": "worker", "image": "convoy/torch:dev", "command": ["python3", "-c", program]}
    with s3_server(cluster) as found, checkpoint_store(cluster, found) as store:
        jobs.create(
            name,
            engine=None,
            checkpoint=memory("1s", remote={"store": store, "every": "1s"}),
            roles=[{"name": "worker", "replicas": 2, "template": {"spec": {"containers": [container]}}}],
        )
        jobs.wait_phase(name, "Running", 60)
        confidential = confidential_values(cluster.get("-n", NAMESPACE, "secrets")["items"])
        assert {ACCESS, SECRET} <= set(confidential.values()), (
            "negative control: the store's keys are among the searched values"
        )
        for pod in pods(cluster, jobs.namespace, f"{LABEL_JOB}={name}"):
            jobs.wait(
                partial(log_contains, cluster, pod, "'RANK'"), 30, "the rank has printed its environment"
            )
            look = ("exec", pod["metadata"]["name"], "--", "cat", "/proc/1/environ", "/proc/1/cmdline")
            for text in (log(cluster, pod), cluster.kubectl("-n", jobs.namespace, *look)):
                assert "CONVOY_CHECKPOINT_TIERS" in text
                assert leaked_values(text, confidential) == []
        jobs.delete(name)
