"""Helpers that read the state of a cluster's nodes and operator, and restore the cluster after a fault."""

from __future__ import annotations

import time

from e2e.cluster.cluster import Cluster
from e2e.cluster.control_plane import COMPONENTS
from e2e.install import NAMESPACE


def start_components(cluster: Cluster) -> None:
    """Start the control plane components that have ended, as a kubelet would do. They end when they lose
    their Lease.
    """
    for component in COMPONENTS:
        cluster.components.start(component)


def restore(cluster: Cluster) -> None:
    """Restore the cluster after a fault: start the control plane and every node, reconnect it, and wait until
    it is Ready with its agent.
    """
    start_components(cluster)
    for node in cluster.nodes:
        if node.record.cut:
            node.heal()
        if not node.alive:
            node.reboot()
    cluster.wait_ready(deadline=180)
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "ds/convoy-agent", "--timeout=120s", deadline=130)
    deadline = time.monotonic() + 60
    while len(nodes_with_agent(cluster)) < len(cluster.nodes):
        if time.monotonic() > deadline:
            raise AssertionError(f"agents are ready only on these nodes:  {nodes_with_agent(cluster)}")
        time.sleep(0.3)


def nodes_with_agent(cluster: Cluster) -> list[str]:
    """Return the nodes with the agent-ready label, as `node/NAME`."""
    return cluster.kubectl("get", "nodes", "-l", "convoy.dev/agent-ready=true", "-o", "name").split()


def lease_holder(cluster: Cluster) -> str:
    """Return the holder of the operator's Lease; empty if there is no leader."""
    return cluster.kubectl(
        "-n", NAMESPACE, "get", "lease", "convoy-operator", "-o", "jsonpath={.spec.holderIdentity}"
    )


def leader(cluster: Cluster) -> tuple[str, str]:
    """Return the name of the leading operator pod and the name of its node."""
    leads = lease_holder(cluster)
    for pod in cluster.get("-n", NAMESPACE, "pods")["items"]:
        if pod["metadata"]["name"] in leads:
            return pod["metadata"]["name"], pod["spec"]["nodeName"]
    raise AssertionError(f"no pod holds the Lease: its holder is {leads!r}")
