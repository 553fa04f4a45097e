"""A release's life: an older one is upgraded while a job trains, and nothing is left of one that goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.drive import earlier_release as releases
from e2e.drive.cluster_state import nodes_with_agent
from e2e.drive.jobs import Jobs, WaitTimeout
from e2e.drive.leftovers import definitions, node_marks, objects, on_nodes
from e2e.drive.node_health import finished_sweep, health, temporary_object
from e2e.drive.slow_job import slow_job
from e2e.install import CHART, NAMESPACE, TAG, helm, install

KEPT = {"ConfigMap": ["convoy-ca"], "Namespace": [NAMESPACE], "Secret": ["convoy-ca"]}
"""What an uninstallation leaves on purpose: the certificate authority, with which another would go on."""
PARTS = ("name", "schema", "additionalPrinterColumns", "subresources")
"""Of a version of a CustomResourceDefinition, what a chart says."""
OWN_CHART = (str(CHART), f"--set=images.tag={TAG}", "--set=dashboard.enabled=true")
"""This checkout's chart, as helm is to install it."""
SECONDS = 300
"""For each thing that helm does."""


@pytest.fixture
def bare(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster without Convoy; in the end it has this checkout's again."""
    remove(cluster)
    try:
        yield cluster
    finally:
        remove(cluster)
        install(cluster)


def remove(cluster: Cluster) -> None:
    """Takes Convoy away with all that an uninstallation keeps."""
    if json.loads(helm(cluster, "list", "--all", "--output=json")):
        uninstall(cluster)
    cluster.kubectl("delete", "crd", *definitions(), "--ignore-not-found", deadline=120)
    cluster.kubectl("-n", NAMESPACE, "delete", "secret,configmap", "convoy-ca", "--ignore-not-found")


def change(cluster: Cluster, verb: str, *arguments: str) -> str:
    """`helm VERB convoy ...`; returns when it is done."""
    wait = ("--wait", f"--timeout={SECONDS}s")
    return helm(cluster, verb, "convoy", *arguments, *wait, deadline=SECONDS + 20)


def uninstall(cluster: Cluster) -> None:
    """`helm uninstall` as docs/install.md describes it: first what blocks it, then the rest."""
    cluster.kubectl("delete", "trainingjobs", "--all", "-A", "--cascade=foreground", deadline=120)
    cluster.kubectl("delete", "guardpolicies", "--all")
    change(cluster, "uninstall")


def equal_definitions(cluster: Cluster, chart: Path) -> list[str]:
    """Which definitions of a chart the cluster has as they are there."""
    found = []
    for name, wanted in sorted(definitions(chart).items()):
        has = cluster.get("crd", name)["spec"]["versions"]
        pairs = zip(has, wanted["spec"]["versions"], strict=True)
        if all(
            without_empty(one.get(part)) == without_empty(other.get(part))
            for one, other in pairs
            for part in PARTS
        ):
            found.append(name)
    return found


def without_empty(value: Any) -> Any:
    """Without what is empty, of which the API server keeps nothing."""
    if isinstance(value, dict):
        return {key: without_empty(one) for key, one in value.items() if one != {}}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


def identities(cluster: Cluster) -> dict[str, str]:
    """The uid of every object of Convoy's kinds, by kind and name."""
    found = cluster.get(",".join(definitions()), "--all-namespaces")["items"]
    return {f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["uid"] for one in found}


def running(cluster: Cluster) -> set[str]:
    """Images of the pods in Convoy's namespace."""
    pods = cluster.get("-n", NAMESPACE, "pods")["items"]
    return {one["image"] for pod in pods for one in pod["spec"]["containers"]}


def wait_removed(cluster: Cluster, jobs: Jobs, kept: dict[str, list[str]]) -> None:
    """Nothing but that is left, once the garbage collector has come by."""

    def left() -> tuple[dict[str, list[str]], list[str], list[str]]:
        return objects(cluster), node_marks(cluster), on_nodes(cluster)

    with suppress(WaitTimeout):
        jobs.wait(lambda: left() == (kept, [], []), 90, "all else is removed")
    found, on_them, on_disk = left()
    assert found == kept
    assert (on_them, on_disk) == ([], [])


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_a_job_trains_through_an_upgrade_and_what_is_known_stays(jobs: Jobs, bare: Cluster) -> None:
    """From a chart with images of its own: the agents and launchers that meet are of two releases."""
    old = releases.earlier_release(bare)
    # Definitions differ from release to release; these two are alike, so that one is made to differ.
    make_older(old.chart / "files" / "crds" / "trainingjobs.yaml")
    change(bare, "install", str(old.chart), f"--set=images.tag={old.tag}")
    assert "trainingjobs.convoy.dev" not in equal_definitions(bare, CHART)

    with (
        temporary_object(bare, "GuardPolicy", "watch", {"mode": "Observe"}, "nodehealths"),
        temporary_object(bare, "HealthSweep", "known", {"selector": {}, "tiers": ["L0"]}, "hardwareclasses"),
        slow_job(bare, jobs, "through") as job,
    ):
        jobs.wait(lambda: finished_sweep(bare, "known"), 120, "all nodes are read")
        first = bare.nodes[0].name
        jobs.wait(lambda: health(bare, first), 60, "a NodeHealth says what it is")
        known, pods, step = identities(bare), job.uids, jobs.status("through")["progress"]["step"]
        kinds = {name.split("/")[0] for name in known}
        assert kinds >= {"Engine", "GuardPolicy", "HardwareClass", "HealthSweep", "NodeHealth", "TrainingJob"}

        change(bare, "upgrade", *OWN_CHART)

        images = {f"convoy/{part}:{TAG}" for part in ("operator", "agent", "dashboard")}
        jobs.wait(lambda: running(bare) == images, 60, "the pods of the earlier release are deleted")
        assert equal_definitions(bare, CHART) == sorted(definitions())
        jobs.wait(
            lambda: bare.get("engine", "gpt")["spec"]["image"] == f"convoy/workloads:{TAG}",
            60,
            "the catalogue is this chart's",
        )
        now = identities(bare)
        assert {name: now.get(name) for name in known} == known
        status = jobs.wait_step("through", step + 20, 60)
        assert (status["phase"], status["incarnation"], status["restarts"]["total"]) == ("Running", 1, 0)
        saved = status["checkpoint"]["step"]
        jobs.wait(lambda: jobs.status("through")["checkpoint"]["step"] > saved, 60, "it is saved again")
        job.remove_pauses()
        status = jobs.wait_phase("through", "Succeeded", 240)
        assert (status["incarnation"], status["restarts"]["total"], job.uids) == (1, 0, pods)
    assert "Succeeded" in helm(bare, "test", "convoy", "--timeout=300s", deadline=320)


def make_older(definition: Path) -> None:
    """Takes a column and a field of the status out of a CustomResourceDefinition."""
    body = yaml.safe_load(definition.read_text())
    for version in body["spec"]["versions"]:
        version["additionalPrinterColumns"].pop()
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["stragglers"]
    definition.write_text(yaml.safe_dump(body))


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_nothing_is_left_of_a_release_that_goes(jobs: Jobs, bare: Cluster) -> None:
    change(bare, "install", *OWN_CHART)
    jobs.wait(lambda: len(nodes_with_agent(bare)) == len(bare.nodes), 60, "all nodes have an agent")
    assert node_marks(bare) and on_nodes(bare), "the looking works"
    with slow_job(bare, jobs, "stays") as job:
        pods = job.uids
        with pytest.raises(ClusterError) as refused:
            change(bare, "uninstall")
        assert f"1 TrainingJob ({jobs.namespace}/stays) and 2 worker pods" in str(refused.value)
        assert f"helm rollback convoy 1 -n {NAMESPACE}" in str(refused.value)
        change(bare, "rollback", "1")
        status = jobs.wait_step("stays", jobs.status("stays")["progress"]["step"] + 10, 60)
        assert (status["incarnation"], job.uids) == (1, pods), "nothing has happened to the job"

    uninstall(bare)
    engines = bare.get("engines")["items"]
    kept = {
        "CustomResourceDefinition": sorted(definitions()),
        "Engine": sorted(one["metadata"]["name"] for one in engines),
        **KEPT,
    }
    wait_removed(bare, jobs, kept)

    change(bare, "install", *OWN_CHART, "--set=crds.keep=false")
    assert {one["metadata"]["uid"] for one in engines} == {
        one["metadata"]["uid"] for one in bare.get("engines")["items"]
    }
    uninstall(bare)
    wait_removed(bare, jobs, KEPT)
