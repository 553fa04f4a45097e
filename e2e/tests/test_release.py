"""Tests of a release: its upgrade while a job trains, and its complete uninstallation."""

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
"""Objects that an uninstallation keeps on purpose, so that a later installation has the same CA."""
PARTS = ("name", "schema", "additionalPrinterColumns", "subresources")
"""Those fields of a CustomResourceDefinition's version that the chart sets."""
OWN_CHART = (str(CHART), f"--set=images.tag={TAG}", "--set=dashboard.enabled=true")
"""Arguments with which helm installs this checkout's chart."""
SECONDS = 300
"""Timeout in seconds of each helm command."""


@pytest.fixture
def empty_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """Yield the cluster without Convoy. After the test, install this checkout's release again."""
    remove(cluster)
    try:
        yield cluster
    finally:
        remove(cluster)
        install(cluster)


def remove(cluster: Cluster) -> None:
    """Remove Convoy, together with everything that an uninstallation keeps."""
    if json.loads(helm(cluster, "list", "--all", "--output=json")):
        uninstall(cluster)
    cluster.kubectl("delete", "crd", *definitions(), "--ignore-not-found", deadline=120)
    cluster.kubectl("-n", NAMESPACE, "delete", "secret,configmap", "convoy-ca", "--ignore-not-found")


def change(cluster: Cluster, verb: str, *arguments: str) -> str:
    """Run `helm VERB convoy ...`, wait until the release is ready, and return helm's output."""
    wait = ("--wait", f"--timeout={SECONDS}s")
    return helm(cluster, verb, "convoy", *arguments, *wait, deadline=SECONDS + 20)


def uninstall(cluster: Cluster) -> None:
    """Uninstall in the way of docs/install.md: first delete what blocks the uninstallation, then the
    release.
    """
    for kind in ("trainingjobs", "servingjobs"):
        if f"{kind}.convoy.dev" in cluster.kubectl("get", "crd", "-o", "name"):
            cluster.kubectl("delete", kind, "--all", "-A", "--cascade=foreground", deadline=120)
    cluster.kubectl("delete", "guardpolicies", "--all")
    change(cluster, "uninstall")


def equal_definitions(cluster: Cluster, chart: Path) -> list[str]:
    """Return the names of the CustomResourceDefinitions that are equal in the cluster and in a chart."""
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
    """Return `value` without empty mappings, which the API server does not store."""
    if isinstance(value, dict):
        return {key: without_empty(one) for key, one in value.items() if one != {}}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


def object_uids(cluster: Cluster) -> dict[str, str]:
    """Return the uid of every object of Convoy's kinds, by `KIND/NAME`."""
    found = cluster.get(",".join(definitions()), "--all-namespaces")["items"]
    return {f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["uid"] for one in found}


def running_images(cluster: Cluster) -> set[str]:
    """Return the images of the pods in Convoy's namespace."""
    pods = cluster.get("-n", NAMESPACE, "pods")["items"]
    return {one["image"] for pod in pods for one in pod["spec"]["containers"]}


def wait_removed(cluster: Cluster, jobs: Jobs, kept: dict[str, list[str]]) -> None:
    """Wait until only the `kept` objects are left of Convoy, and assert it. Garbage collection may take a
    while.
    """

    def left() -> tuple[dict[str, list[str]], list[str], list[str]]:
        return objects(cluster), node_marks(cluster), on_nodes(cluster)

    with suppress(WaitTimeout):
        jobs.wait(lambda: left() == (kept, [], []), 90, "all else is removed")
    found, on_them, on_disk = left()
    assert found == kept
    assert (on_them, on_disk) == ([], [])


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_a_job_trains_through_an_upgrade_and_its_status_is_kept(jobs: Jobs, empty_cluster: Cluster) -> None:
    """Upgrade from an earlier chart with its own images, so that agents and launchers of two releases work
    together.
    """
    old = releases.earlier_release(empty_cluster)
    # The CustomResourceDefinitions of both commits may be equal, so change one, which the upgrade must
    # restore.
    make_older(old.chart / "files" / "crds" / "trainingjobs.yaml")
    change(empty_cluster, "install", str(old.chart), f"--set=images.tag={old.tag}")
    assert "trainingjobs.convoy.dev" not in equal_definitions(empty_cluster, CHART)

    with (
        temporary_object(empty_cluster, "GuardPolicy", "watch", {"mode": "Observe"}, "nodehealths"),
        temporary_object(
            empty_cluster, "HealthSweep", "known", {"selector": {}, "tiers": ["L0"]}, "hardwareclasses"
        ),
        slow_job(empty_cluster, jobs, "through") as job,
    ):
        jobs.wait(lambda: finished_sweep(empty_cluster, "known"), 120, "all nodes have a verdict")
        first = empty_cluster.nodes[0].name
        jobs.wait(lambda: health(empty_cluster, first), 60, "a NodeHealth with a status")
        known, pods, step = object_uids(empty_cluster), job.uids, jobs.status("through")["progress"]["step"]
        kinds = {name.split("/")[0] for name in known}
        assert kinds >= {"Engine", "GuardPolicy", "HardwareClass", "HealthSweep", "NodeHealth", "TrainingJob"}

        change(empty_cluster, "upgrade", *OWN_CHART)

        images = {f"convoy/{part}:{TAG}" for part in ("operator", "agent", "dashboard")}
        jobs.wait(
            lambda: running_images(empty_cluster) == images, 60, "the pods of the earlier release are deleted"
        )
        assert equal_definitions(empty_cluster, CHART) == sorted(definitions())
        jobs.wait(
            lambda: empty_cluster.get("engine", "gpt")["spec"]["image"] == f"convoy/workloads:{TAG}",
            60,
            "the engines are those of this chart",
        )
        now = object_uids(empty_cluster)
        assert {name: now.get(name) for name in known} == known
        status = jobs.wait_step("through", step + 20, 60)
        assert (status["phase"], status["incarnation"], status["restarts"]["total"]) == ("Running", 1, 0)
        saved = status["checkpoint"]["step"]
        jobs.wait(lambda: jobs.status("through")["checkpoint"]["step"] > saved, 60, "the job saves again")
        job.remove_pauses()
        status = jobs.wait_phase("through", "Succeeded", 240)
        assert (status["incarnation"], status["restarts"]["total"], job.uids) == (1, 0, pods)
    assert "Succeeded" in helm(empty_cluster, "test", "convoy", "--timeout=300s", deadline=320)


def make_older(definition: Path) -> None:
    """Remove a column and a status field from a CustomResourceDefinition's file."""
    body = yaml.safe_load(definition.read_text())
    for version in body["spec"]["versions"]:
        version["additionalPrinterColumns"].pop()
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["stragglers"]
    definition.write_text(yaml.safe_dump(body))


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_an_uninstalled_release_leaves_no_objects(jobs: Jobs, empty_cluster: Cluster) -> None:
    change(empty_cluster, "install", *OWN_CHART)
    jobs.wait(
        lambda: len(nodes_with_agent(empty_cluster)) == len(empty_cluster.nodes),
        60,
        "all nodes have an agent",
    )
    assert node_marks(empty_cluster) and on_nodes(empty_cluster), (
        "negative control: an installed release has marks and files"
    )
    with slow_job(empty_cluster, jobs, "stays") as job:
        pods = job.uids
        with pytest.raises(ClusterError) as refused:
            change(empty_cluster, "uninstall")
        assert f"1 TrainingJob ({jobs.namespace}/stays) and 2 worker pods" in str(refused.value)
        assert f"helm rollback convoy 1 -n {NAMESPACE}" in str(refused.value)
        change(empty_cluster, "rollback", "1")
        status = jobs.wait_step("stays", jobs.status("stays")["progress"]["step"] + 10, 60)
        assert (status["incarnation"], job.uids) == (1, pods), "the job is undisturbed"

    uninstall(empty_cluster)
    engines = empty_cluster.get("engines")["items"]
    healths = empty_cluster.get("nodehealths")["items"]
    kept = {
        "CustomResourceDefinition": sorted(definitions()),
        "Engine": sorted(one["metadata"]["name"] for one in engines),
        "NodeHealth": sorted(one["metadata"]["name"] for one in healths),
        **KEPT,
    }
    wait_removed(empty_cluster, jobs, kept)

    change(empty_cluster, "install", *OWN_CHART, "--set=crds.keep=false")
    assert {one["metadata"]["uid"] for one in engines} == {
        one["metadata"]["uid"] for one in empty_cluster.get("engines")["items"]
    }
    uninstall(empty_cluster)
    wait_removed(empty_cluster, jobs, KEPT)
