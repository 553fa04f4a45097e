"""Installs the chart on a local cluster, as a user would: with helm."""

from __future__ import annotations

from collections.abc import Mapping

from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.cluster.run import run
from e2e.images.build import Builder

NAMESPACE = "convoy-system"
CHART = files.CHECKOUT / "charts" / "convoy"
TAG = "dev"
IMAGES = ("operator", "agent", "workloads")


def install(cluster: Cluster, values: Mapping[str, str | int | bool] | None = None) -> None:
    """`helm upgrade --install` with this checkout's images; returns when operator and agents are up."""
    settings = {"images.tag": TAG, **(values or {})}
    arguments = [
        f"--set={name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in settings.items()
    ]
    cluster.progress.say("installing the chart")
    helm(
        cluster,
        "upgrade",
        "--install",
        "convoy",
        str(CHART),
        "--create-namespace",
        *arguments,
        "--wait",
        "--timeout=180s",
    )
    cluster.progress.say("operator and agents are up")


def helm(cluster: Cluster, *arguments: str, deadline: float = 200) -> str:
    """Runs helm as the administrator, in Convoy's namespace."""
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}
    return run(
        [cluster.binaries / "helm", "--namespace", NAMESPACE, *arguments], deadline=deadline, env=environment
    )


def build(cluster: Cluster, *names: str) -> None:
    """Builds the images whose inputs changed and brings them to the nodes."""
    builder = Builder(TAG, progress=cluster.progress)
    builder.build(names)
