"""Measures the seconds from a failed verdict to the taint when 200 nodes fail a health sweep at once.

The operator process, the API server and the audit log are real. kwok simulates the nodes, and simulated
agents hold real sessions. The audit log has both times: the write of the verdict and the patch of the Node.
"""

from __future__ import annotations

import asyncio

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.meta import API_VERSION
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig.audit import Entry
from e2e.bench.rig.guard_policy import API, TIMEOUT_SECONDS, guarded, labelled
from e2e.bench.rig.rig import Rig, running_rig
from e2e.cluster.progress import Progress

NODES, REPEATS = 200, 5
_QPS = 100.0
"""Maximum API requests per second of the operator, as in the chart."""
_NAME = "burst"


def bench(figures: Figures, nodes: int = NODES, repeats: int = REPEATS) -> None:
    """Measure `repeats` bursts on `nodes` simulated nodes, and add the figures. Requires the programs of a
    local cluster.
    """
    asyncio.run(_bench(figures, nodes, repeats))


async def _bench(figures: Figures, nodes: int, repeats: int) -> None:
    progress = Progress()
    async with running_rig(nodes, progress, 0.0) as rig, rig.operating(_QPS):
        for agent in rig.swarm.agents.values():
            agent.measure = failing_report
        for repeat in range(repeats):
            delays = await _burst(rig)
            progress.report(f"burst {repeat + 1}: {len(delays)} nodes, the last after {delays[-1]:.2f} s")
            _add_rows(figures, delays, nodes)


def failing_report(order: wire.SweepOrder, node: str) -> wire.SweepReport:
    """Return the report of a node whose processors computed two different results for the same input."""
    report = wire.SweepReport(
        name=order.name, node=node, state=wire.SweepReport.DONE, inventory_digest="kwok"
    )
    report.metrics.add(metric="inventory", digests=["kwok"])
    report.metrics.add(metric="fingerprint", digests=["a", "b"])
    return report


async def _burst(rig: Rig) -> list[float]:
    """Fail the sweeps of all nodes at once. Return the sorted seconds from each node's verdict to its
    taint.
    """
    api = rig.api
    async with guarded(rig):
        rig.log.restart()
        sweep = {"apiVersion": API_VERSION, "kind": "HealthSweep", "metadata": {"name": _NAME}}
        await api.create(f"{API}/healthsweeps", {**sweep, "spec": {"selector": {}}})
        # Each poll lists all nodes. That costs the API server as much as the taints under measurement, so
        # poll rarely.
        what = "all nodes are tainted"
        await rig.wait_until(lambda: labelled(rig, "Suspect"), TIMEOUT_SECONDS, what, every=3.0)
        delays = delays_to_taint(rig.entries)
        await api.delete(f"{API}/healthsweeps/{_NAME}")
    return delays


def delays_to_taint(entries: list[Entry]) -> list[float]:
    """Return the seconds from each node's stored verdict to the next patch of its Node object, in
    increasing order.
    """
    verdicts: dict[str, float] = {}
    for one in entries:
        if one.is_a("patch", "healthsweeps", "status"):
            for node in one.body.get("status", {}).get("nodes", ()):
                if node.get("verdict"):
                    verdicts.setdefault(node["node"], one.answered)
    marked: dict[str, float] = {}
    for one in entries:
        if one.is_a("patch", "nodes") and one.name in verdicts and one.answered >= verdicts[one.name]:
            marked.setdefault(one.name, one.answered)
    return sorted(marked[node] - verdicts[node] for node in marked)


def _add_rows(figures: Figures, delays: list[float], nodes: int) -> None:
    def add(what: str, value: float | None, target: float | None = None) -> None:
        figures.add(Metric(f"{nodes} nodes fail at once, verdict to taint: {what}", "seconds", target), value)

    whole = len(delays) == nodes
    add("median", delays[len(delays) // 2] if whole else None)
    add("p99", delays[min(len(delays) - 1, int(0.99 * len(delays)))] if whole else None, 2.0)
