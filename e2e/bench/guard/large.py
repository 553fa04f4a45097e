"""Measures the operator's memory with a fleet of 5,000 nodes.

The operator process and the API server are real. Ten nodes have agents. Every other node has only a Node
and a NodeHealth, as an earlier operator would have left it.
"""

from __future__ import annotations

import asyncio
import time

from convoy_crds.meta import API_VERSION
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig import kwok
from e2e.bench.rig.api import each
from e2e.bench.rig.rig import Rig, running_rig
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress

NODES, WITH_AGENTS = 5000, 10
_API = f"/apis/{API_VERSION}"
_TIMEOUT_SECONDS = 900.0
_POLL_SECONDS = 10.0
"""Seconds between polls. A poll lists all objects, which costs the API server as much as their creation."""
_SINCE = "2026-01-01T00:00:00Z"


def bench(figures: Figures, nodes: int = NODES) -> None:
    """Measure the memory. If not all nodes are guarded in time, add a row without a value.

    Requires the programs of a local cluster.
    """
    metric = Metric(f"{nodes} nodes that the guard watches, the operator's memory", "MB", 512)
    try:
        figures.add(metric, asyncio.run(_bench(nodes)))
    except ClusterError as error:
        figures.add_unmeasured(metric, str(error))


async def _bench(nodes: int) -> float | None:
    """Return the operator's peak memory in MB, or None if the operator has ended."""
    progress = Progress()
    async with running_rig(WITH_AGENTS, progress, 0.0) as rig, rig.operating(0.0):
        await each(range(WITH_AGENTS, nodes), lambda number: _add(rig, number))
        began = time.monotonic()
        policy = {"apiVersion": API_VERSION, "kind": "GuardPolicy", "metadata": {"name": "large"}}
        await rig.api.create(f"{_API}/guardpolicies", {**policy, "spec": {"mode": "Observe"}})
        await rig.wait_until(
            lambda: _guarded(rig, nodes),
            _TIMEOUT_SECONDS,
            "all NodeHealths name the policy",
            every=_POLL_SECONDS,
        )
        progress.report(f"{nodes} nodes are guarded after {time.monotonic() - began:.0f} s")
        return rig.operator.memory_mb(peak=True)


async def _add(rig: Rig, number: int) -> None:
    """Create a node without an agent, and its NodeHealth."""
    body = kwok.node(f"bare-{number:04d}", number, "bare", rig.plane.cluster.addresses) | {"spec": {}}
    node = await rig.api.create("/api/v1/nodes", body)
    health = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": f"machine-{number:04d}"}}
    await rig.api.create(f"{_API}/nodehealths", health)
    where = {"name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    internal = {"cleanSince": _SINCE}
    status = {"state": "Unverified", "since": _SINCE, "internal": internal, "nodeRef": where}
    await rig.api.patch(f"{_API}/nodehealths/machine-{number:04d}/status", {"status": status})


async def _guarded(rig: Rig, nodes: int) -> bool:
    """Return True if the NodeHealth of every node names the policy."""
    found = await rig.api.get(f"{_API}/nodehealths")
    return sum(1 for one in found["items"] if one.get("status", {}).get("policy") == "large") >= nodes
