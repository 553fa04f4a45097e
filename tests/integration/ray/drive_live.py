"""The driver of test_live.py: the engine with Ray actors, regroups, copies of weights, and a lost pod."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

from convoy_workloads.engines.spotlight.live.connection import connect
from convoy_workloads.engines.spotlight.live.live_workers import LiveWorkers
from convoy_workloads.engines.spotlight.live.messages import Pull
from convoy_workloads.engines.spotlight.live.ray_actors import RayCluster, on_node
from convoy_workloads.engines.spotlight.live.spot_actor import SpotActor
from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.engines.spotlight.simulated.run import Run
from convoy_workloads.ray_cluster.outcomes import Raised, Value, finished, outcome

PARAMS = Params.model_validate(json.loads(os.environ["CONVOY_PARAMS"]))
WAITING = 300
"""Calls that wait at a time: more than a thread pool would have threads."""


def emit(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def wait_for_line() -> None:
    sys.stdin.readline()


def cluster_of(run: Run) -> RayCluster:
    workers = run.workers
    assert isinstance(workers, LiveWorkers)
    found = workers._cluster
    assert isinstance(found, RayCluster)
    return found


def wait_for_workers(run: Run, count: int) -> None:
    workers, end = run.workers, time.monotonic() + 300
    assert isinstance(workers, LiveWorkers)
    while len(cluster_of(run).running) < count:
        assert time.monotonic() < end
        workers.serve(0.1)
    # The first call of an actor waits until its process has started.
    for one in list(cluster_of(run).running.values()):
        waiting = one.handle.load.remote(run.loop.iteration)
        while not isinstance(outcome(waiting, 0.01), Value):
            assert time.monotonic() < end
            workers.serve(0.05)


def ray_facts(run: Run, cluster: RayCluster) -> dict[str, Any]:
    """Return what only a real Ray can show: waiting calls, a worker with another image, labels of nodes."""
    workers, end = run.workers, time.monotonic() + 120
    assert isinstance(workers, LiveWorkers)
    calls = [cluster._exchange.call.remote(f"none/{one}", Pull(1), 60.0) for one in range(WAITING)]
    while len(finished(calls, 0.0)) < WAITING and time.monotonic() < end:
        workers.serve(0.1)
    recipe = replace(cluster.recipe, image=replace(cluster.recipe.image, code="another"))
    (node,) = {one.node for one in cluster.running.values()}
    other = on_node(SpotActor, node, max_concurrency=8).remote("other", cluster._exchange, recipe)
    refused = outcome(other.run.remote(), 120)
    return {
        "answered": sum(outcome(one, 1.0) == Value(([],)) for one in calls),
        "refused": refused.reason if isinstance(refused, Raised) else str(refused),
        "since": [one.since for one in cluster.head.worker_nodes()],
    }


def main() -> None:
    with connect(PARAMS, 1) as start:
        run = Run(PARAMS, start=start)
        wait_for_workers(run, 2)
        cluster = cluster_of(run)
        assert len(cluster.ready) == 2
        warm = sorted(cluster.regroup(1 + number % 2) for number in range(40))
        emit(**ray_facts(run, cluster))
        emit(degrees=[one.degree for one in cluster._groups], warm=warm[len(warm) // 2], epoch=cluster.epoch)
        reports = [run.iterate()]
        while not reports[-1].explored and len(reports) < 8:
            reports.append(run.iterate())
        emit(trained=[one.trained for one in reports], explored=[one.explored for one in reports])
        emit(kill=True)
        wait_for_line()
        reports = [run.iterate() for _ in range(2)]
        workers = run.workers
        assert isinstance(workers, LiveWorkers)
        began = time.monotonic()
        while cluster.running and time.monotonic() - began < 90:
            workers.serve(0.1)
        left = len(cluster.running)
        emit(trained=[one.trained for one in reports], left=left, losses=workers.losses)
        counts, figures = run.ledger.counts(), run.figures()
        emit(counts=counts, residual=figures["residual"], cost=figures["cost"])


if __name__ == "__main__":
    signal.alarm(700)
    main()
