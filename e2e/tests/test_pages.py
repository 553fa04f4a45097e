"""Tests of the commands in documentation pages, except tutorials. They run on a cluster with all kinds of
objects.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from convoy_crds.meta import API_VERSION
from e2e.cluster.cluster import Cluster
from e2e.docs.commands import commands, fill_in, pages, reason_not_run
from e2e.docs.tutorial import CHECKOUT
from e2e.drive.job_specs import SMALL, memory
from e2e.drive.jobs import Jobs
from e2e.drive.node_health import policy, sweep
from e2e.drive.serving_jobs import ServingJobs
from e2e.drive.shell import shell
from e2e.install import NAMESPACE

pytestmark = pytest.mark.full
NAME = "act"
"""Name of all objects that the tests create. The policy in examples/guard.yaml has the same name."""
SERVING = "llm"
"""Name of the ServingJob that the tests create. It is JOB on the pages about serving."""
QUIET = ("No resources found", "Warning: ")
"""Beginnings of lines on standard error that are not errors."""
PLAYED = [page for page in pages() if any(not reason_not_run(page, block) for block in commands(page))]


@pytest.fixture(scope="module")
def given(cluster: Cluster, namespace: str) -> Iterator[dict[str, str]]:
    """Yield the values that a reader would use for JOB, NODE and other placeholders."""
    jobs = Jobs.of(cluster, namespace)
    store = {
        "apiVersion": API_VERSION,
        "kind": "CheckpointStore",
        "metadata": {"name": NAME},
        "spec": {"s3": {"bucket": "none", "credentialsSecret": "none"}, "allowedNamespaces": ["*"]},
    }
    pool = {
        "apiVersion": API_VERSION,
        "kind": "SpotPool",
        "metadata": {"name": NAME},
        "spec": {
            "selector": {"matchLabels": {"convoy.dev/capacity": "none"}},
            "maxNodes": 1,
            "allowedNamespaces": [namespace],
            "price": {"onDemandPerHour": 1.0, "spot": {"perHour": 0.3}},
        },
    }
    with ExitStack() as stack:
        stack.enter_context(policy(cluster, NAME, {"mode": "Observe"}))
        stack.enter_context(sweep(cluster, NAME, selector={}, tiers=["L0"]))
        stack.callback(cluster.kubectl, "delete", "checkpointstore", NAME)
        cluster.kubectl("apply", "-f", "-", text=json.dumps(store))
        stack.callback(cluster.kubectl, "delete", "spotpool", NAME)
        cluster.kubectl("apply", "-f", "-", text=json.dumps(pool))
        # The page about prices shows a ConfigMap with prices.
        stack.callback(cluster.kubectl, "-n", NAMESPACE, "delete", "configmap", NAME)
        cluster.kubectl("-n", NAMESPACE, "create", "configmap", NAME)
        stack.callback(jobs.delete_all)
        jobs.create("gpt", engine={"name": "gpt", "params": {**SMALL, "steps": 100_000}}, checkpoint=memory())
        jobs.wait(lambda: jobs.status("gpt").get("checkpoint", {}).get("step"), 120, "a checkpoint")
        serving = ServingJobs.of(cluster, namespace)
        stack.callback(serving.delete_all)
        serving.create(SERVING)
        serving.wait_rolled(SERVING)
        agents = ("-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/component=agent")
        agent = cluster.get(*agents)["items"][0]
        yield {
            "JOB": "gpt",
            "SOURCE": "gpt",
            "ENGINE": "gpt",
            "NAMESPACE": namespace,
            "NAME": NAME,
            "NODE": agent["spec"]["nodeName"],
            "POD": agent["metadata"]["name"],
            "ADDRESS": agent["status"]["podIP"],
            "R": "0",
        }


@pytest.mark.parametrize("page", PLAYED, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_commands_of_pages_have_the_expected_result(
    page: Path, given: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    environment = shell(cluster, given["NAMESPACE"], tmp_path)
    values = {**given, "JOB": SERVING} if "serving" in page.stem else given
    for block in commands(page):
        if reason_not_run(page, block):
            continue
        done = subprocess.run(
            ["bash", "-uc", fill_in(block.text, values)],
            cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        # A command that searches for problems exits with 1 if it finds none, so allow that.
        errors = [line for line in done.stderr.splitlines() if not line.startswith(QUIET)]
        assert not errors and done.returncode in (0, 1), f"line {block.line}: {done.stdout}{done.stderr}"
