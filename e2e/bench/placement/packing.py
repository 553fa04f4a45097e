"""The part `packing`: a stream of jobs on 250 nodes in 25 racks that pods of other owners fill to 70 %."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence

from convoy_controllers.cached import Node
from convoy_crds.terms import LABEL_AGENT_READY
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.placement import decisions, racks
from e2e.bench.placement.racks import CPUS, Racks
from e2e.bench.placement.streams import CONVOY, OFF, QPS, STOCK, WAYS, Outcome, Stream, Way, fill, job_body
from e2e.bench.rig.api import Object
from e2e.bench.rig.rig import Rig, running_rig
from e2e.bench.rig.setup import Setup
from e2e.cluster.progress import Progress

NODES = 250
JOBS = 20
SEEDS = (1, 2, 3)
_LARGE = 1000
"""Pods of the large job in the row of decisions. Such a job fits into the nodes without other pods."""
_TRIES = 5
"""Number of times that each decision is timed."""
_MIN_SHARE, _MAX_CONTROL_SHARE = 0.95, 0.5
_MAX_HOPS_RATIO = 0.6
_MAX_DECISION_SECONDS = 0.1
_ONE_RACK = "jobs in one rack, of those that one rack could hold"
_HOPS = "ring hops of a job, median"


def add(found: Figures, progress: Progress) -> None:
    """Measure the part and add its figures."""
    asyncio.run(_measure(found, progress))


async def _measure(found: Figures, progress: Progress) -> None:
    setup = Setup(labels=_labels, cpus=CPUS)
    async with running_rig(NODES, progress, 0.0, setup) as rig, rig.operating_alone(QPS):
        times: list[float] = []
        for number, seed in enumerate(SEEDS):
            outcomes: dict[Way, list[Outcome]] = {}
            first = number % len(WAYS)
            # A stream deletes its jobs, so the same pods of other owners serve all ways.
            state = await fill(rig, seed)
            times += await _decision_times(rig, state, seed)
            for way in (*WAYS[first:], *WAYS[:first]):
                progress.report(f"seed {seed}: {way.title}")
                outcomes[way] = await Stream(rig, way, state).run(JOBS, seed)
                share, hops = share_in_one_rack(outcomes[way]), median_hops(outcomes[way])
                progress.report(f"seed {seed}: {way.title}: {share:.2f} in one rack, {hops:g} hops")
            for way in WAYS:
                _add_way(found, way, outcomes[way])
            _add_ratios(found, outcomes)
        _add_decisions(found, times)
        await _add_large_decision(found, rig)


def _labels(index: int) -> dict[str, str]:
    return {**racks.labels(index), LABEL_AGENT_READY: "true"}


def share_in_one_rack(outcomes: Sequence[Outcome]) -> float:
    """Return the share of the jobs in one rack, of those that one rack could hold."""
    could = [one for one in outcomes if one.packable]
    return sum(one.racks == 1 for one in could) / len(could)


def median_hops(outcomes: Sequence[Outcome]) -> float:
    """Return the median hops of the jobs whose pods all have nodes."""
    return statistics.median(one.hops for one in outcomes if one.hops is not None)


def _add_way(found: Figures, way: Way, outcomes: Sequence[Outcome]) -> None:
    """Add the rows of one stream."""
    target = {CONVOY: _MIN_SHARE}.get(way)
    metric = Metric(f"{way.title}: {_ONE_RACK}", "share", target, higher_is_better=True)
    found.add(metric, share_in_one_rack(outcomes))
    found.add(
        Metric(f"{way.title}: {_HOPS}", "hops", baseline=f"{STOCK.title}: {_HOPS}"), median_hops(outcomes)
    )
    waiting = Metric(f"{way.title}: jobs whose pods did not all get nodes", "jobs", 0, aim="equal")
    found.add(waiting, sum(one.racks is None for one in outcomes))


def _add_ratios(found: Figures, outcomes: dict[Way, list[Outcome]]) -> None:
    """Add the rows that compare streams of one seed."""
    could = sum(one.packable for one in outcomes[CONVOY])
    found.add(Metric(f"jobs that one rack could hold, of {JOBS}", "jobs"), could)
    ours = median_hops(outcomes[CONVOY])
    for way in WAYS:
        if way is not CONVOY:
            target = _MAX_HOPS_RATIO if way in (OFF, STOCK) else None
            metric = Metric(f"{CONVOY.title}: hops over those of {way.title}", "ratio", target)
            found.add(metric, ours / median_hops(outcomes[way]))
    control = Metric(f"control, packing switched off: {_ONE_RACK}", "share", _MAX_CONTROL_SHARE)
    found.add(control, share_in_one_rack(outcomes[OFF]))


async def _decision_times(rig: Rig, state: Racks, seed: int) -> list[float]:
    """Return the seconds of the decisions about each job of a stream, on the rooms at its start."""
    nodes = await decisions.read_nodes(rig)
    used = {name: CPUS - free for name, free in state.free.items()}
    bodies = [job_body(arrival, CONVOY) for arrival in racks.stream(JOBS, seed)]
    return [_fastest(nodes, used, body) for body in bodies]


def _fastest(nodes: Sequence[Node], used: Mapping[str, int], body: Object) -> float:
    """Return the seconds of the fastest of several decisions about one job. The others were interrupted."""
    return min(decisions.seconds(nodes, used, body) for _ in range(_TRIES))


def _add_decisions(found: Figures, times: Sequence[float]) -> None:
    spread = f"n={len(times)}, {min(times) * 1e3:.1f} to {max(times) * 1e3:.1f} ms"
    about = "decision about a job of 2 to 16 pods on 250 nodes"
    found.add(Metric(f"{about}, median", "seconds", spread=spread), statistics.median(times))
    metric = Metric(f"{about}, p99", "seconds", _MAX_DECISION_SECONDS, spread=spread)
    found.add(metric, decisions.p99(times))


async def _add_large_decision(found: Figures, rig: Rig) -> None:
    """Add the seconds of the decision about a large job on empty nodes."""
    nodes = await decisions.read_nodes(rig)
    body = job_body(racks.Arrival("large", _LARGE, 1), CONVOY)
    metric = Metric(f"decision about a job of {_LARGE} pods on {NODES} empty nodes", "seconds")
    found.add(metric, _fastest(nodes, {}, body))
