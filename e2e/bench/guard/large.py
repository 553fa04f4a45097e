"""What a fleet of 5,000 nodes takes of the operator's memory: no database is beside it.

The operator's own process and a real API server. A handful of nodes have agents; the others are Node objects
whose hardware the guard knows and keeps a NodeHealth of.
"""

from __future__ import annotations

import asyncio
import time

from convoy_crds.meta import API_VERSION
from e2e.bench import kwok
from e2e.bench.api import each
from e2e.bench.figures import Figures, Metric
from e2e.bench.rig import Rig, rig
from e2e.cluster.progress import Progress

NODES, WITH_AGENTS = 5000, 10
_API = f"/apis/{API_VERSION}"
_PATIENCE = 900.0
_EVERY = 10.0
"""Listing as many costs the API server what storing them does."""


def bench(figures: Figures, nodes: int = NODES) -> None:
    """Needs a local cluster's binaries."""
    asyncio.run(_bench(figures, nodes))


async def _bench(figures: Figures, nodes: int) -> None:
    progress = Progress()
    async with rig(WITH_AGENTS, progress, 0.0) as made, made.operating(0.0):
        before = made.operator.memory_mb()
        others = [_node(made, number) for number in range(WITH_AGENTS, nodes)]
        await each(others, lambda body: made.api.create("/api/v1/nodes", body))
        began = time.monotonic()
        policy = {"apiVersion": API_VERSION, "kind": "GuardPolicy", "metadata": {"name": "large"}}
        await made.api.create(f"{_API}/guardpolicies", {**policy, "spec": {"mode": "Observe"}})
        await made.until(lambda: _known(made, nodes), _PATIENCE, "all hardware is known", every=_EVERY)
        progress.say(f"{nodes} nodes are known after {time.monotonic() - began:.0f} s")
        words = f"{nodes} nodes that the guard watches, the operator's memory"
        figures.add(Metric(f"{words}: at most", "MB", 512), made.operator.memory_mb(peak=True))
        figures.add(Metric(f"{words}: with {WITH_AGENTS} nodes", "MB"), before)


def _node(made: Rig, number: int) -> dict[str, object]:
    """One of which nothing is heard."""
    return kwok.node(f"bare-{number:04d}", number, "bare", made.plane.cluster.addresses) | {
        "spec": {},
    }


async def _known(made: Rig, nodes: int) -> bool:
    found = await made.api.get(f"{_API}/nodehealths")
    return sum(1 for one in found["items"] if one.get("status", {}).get("state")) >= nodes
