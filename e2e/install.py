"""Creates local clusters and installs this checkout's images and chart on them with helm, as a user would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from e2e import storage
from e2e.cluster import files, versions
from e2e.cluster.cluster import Cluster
from e2e.cluster.progress import Progress
from e2e.cluster.run import run
from e2e.images.build import Builder

NAMESPACE = "convoy-system"
RELEASE = "convoy"
CHART = files.CHECKOUT / "charts" / "convoy"
TAG = "dev"
WORKLOADS = ("deployment/convoy-operator", "daemonset/convoy-agent", "deployment/convoy-dashboard")


def bring_up(
    name: str, nodes: int, progress: Progress, *, build: bool = True, audit: bool = False
) -> Cluster:
    """Create or update the cluster `name`, with operator, agents and dashboard running. Return it.

    With `build`, build the images first. With `audit`, log the API requests of Convoy's service accounts;
    this has no effect if the cluster already exists.
    """
    changed = Builder(TAG, progress=progress).build() if build else []
    cluster = Cluster.up(nodes, name, audit=NAMESPACE if audit else "", progress=progress)
    sent = cluster.update_images(changed)
    install(cluster)
    if sent:
        # The tag has not changed, so only a restart makes pods use the new images.
        for workload in WORKLOADS:
            cluster.kubectl("-n", NAMESPACE, "rollout", "restart", workload)
            cluster.kubectl("-n", NAMESPACE, "rollout", "status", workload, "--timeout=180s", deadline=190)
    return cluster


def install(cluster: Cluster, chart: Path = CHART, tag: str = TAG, seconds: int = 180) -> None:
    """Create volumes for checkpoints and run `helm upgrade --install`, by default with this checkout's chart
    and images.

    Returns when operator, agents and dashboard are up. Raises ClusterError after `seconds`.
    """
    storage.provide(cluster)
    drop_interrupted(cluster)
    cluster.progress.report("installing the chart")
    helm(
        cluster,
        "upgrade",
        "--install",
        RELEASE,
        str(chart),
        "--create-namespace",
        f"--set=images.tag={tag}",
        "--set=dashboard.enabled=true",
        # All nodes share the machine's disk, which may have less free space than a real node's.
        "--set=agent.models.reserveGiB=1",
        "--set=agent.models.reservePercent=0",
        "--wait",
        f"--timeout={seconds}s",
        deadline=seconds + 20,
    )
    cluster.progress.report("operator, agents and dashboard are up")


def drop_interrupted(cluster: Cluster) -> None:
    """Delete the record of a helm run that was killed. As long as the record exists, helm refuses every
    further change of the release: "another operation is in progress".
    """
    interrupted = "status in (pending-install,pending-upgrade,pending-rollback)"
    selector = f"owner=helm,name={RELEASE},{interrupted}"
    cluster.kubectl("-n", NAMESPACE, "delete", "secret", f"--selector={selector}", "--ignore-not-found")


def rendered(binaries: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return the objects that `helm template` renders from this checkout's chart, in Convoy's namespace."""
    flags = [f"--namespace={NAMESPACE}", f"--kube-version={versions.release().kubernetes}", *arguments]
    text = run([binaries / "helm", "template", RELEASE, str(CHART), *flags], deadline=60)
    return [body for body in yaml.safe_load_all(text) if body]


def helm(cluster: Cluster, *arguments: str, deadline: float = 200) -> str:
    """Run helm as the administrator, in Convoy's namespace. Return its output."""
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}
    return run(
        [cluster.binaries / "helm", "--namespace", NAMESPACE, *arguments], deadline=deadline, env=environment
    )
