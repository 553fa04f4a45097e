"""Enforces NetworkPolicies on the local cluster, whose own pod network does not enforce them.

Tests that need enforcement run the firewall of kube-router. kube-router is not part of the local cluster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node
from e2e.cluster.run import tail, wait_for

TABLE = "ip kube-router-filter-ipv4"


def program() -> Path | None:
    """Return the path of kube-router from the variable CONVOY_E2E_KUBE_ROUTER; None if it is not set."""
    named = os.environ.get("CONVOY_E2E_KUBE_ROUTER")
    return Path(named) if named else None


@contextmanager
def enforced_policies(cluster: Cluster, router: Path) -> Iterator[None]:
    """Enforce NetworkPolicies on all nodes while the block runs. The block must not reboot a node."""
    copy = cluster.shared_dir / "kube-router"
    shutil.copy2(router, copy)
    try:
        with ExitStack() as stack:
            for node in cluster.nodes:
                stack.enter_context(_on(cluster, node, copy))
            yield
    finally:
        copy.unlink()


@contextmanager
def _on(cluster: Cluster, node: Node, router: Path) -> Iterator[None]:
    log = cluster.folder / "logs" / f"kube-router-{node.name}.log"
    namespaces = ["--mount", "--net", "--uts", "--ipc", "--pid"]
    command = [
        "nsenter",
        f"--target={node.pid}",
        *namespaces,
        "--",
        str(router),
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--use-nftables-for-netpol=true",
        "--health-port=0",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--hostname-override={node.name}",
        f"--service-cluster-ip-range={cluster.addresses.services}",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

        def table_exists() -> bool:
            assert process.poll() is None, tail(log)
            return TABLE in node.run(["nft", "list", "tables"])

        try:
            wait_for(
                table_exists,
                deadline=60,
                what=f"kube-router on {node.name}",
                every=0.5,
                why=lambda: tail(log),
            )
            yield
        finally:
            process.terminate()
            process.wait(30)
            node.run(["sh", "-c", f"nft delete table {TABLE} || true"])
