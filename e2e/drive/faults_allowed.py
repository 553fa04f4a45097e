"""Allows the agents of a local cluster to inject faults into the pods of Experiments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from convoy_crds.terms import LABEL_FAULT_INJECTION
from e2e.cluster.cluster import Cluster
from e2e.install import CHART, helm


@contextmanager
def faults_allowed(cluster: Cluster) -> Iterator[None]:
    """Allow the agents to inject faults on all nodes until the end of the block."""
    cluster.kubectl("label", "nodes", "--all", "--overwrite", f"{LABEL_FAULT_INJECTION}=true")
    _upgrade(cluster, enabled=True)
    try:
        yield
    finally:
        _upgrade(cluster, enabled=False)
        cluster.kubectl("label", "nodes", "--all", f"{LABEL_FAULT_INJECTION}-")


def _upgrade(cluster: Cluster, *, enabled: bool) -> None:
    value = f"--set=faultInjection.enabled={str(enabled).lower()}"
    helm(cluster, "upgrade", "convoy", str(CHART), "--reuse-values", value, "--wait", "--timeout=180s")
