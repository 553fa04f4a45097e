"""Command line of the bench: `python -m e2e.bench serving`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.parts import PartedBench
from convoy_workloads.bench.serving import rows as local_rows
from e2e.bench.kit.options import chosen
from e2e.bench.kit.parts import measure_parts
from e2e.bench.scale import bench as scale
from e2e.bench.serving.cluster_rows import ROWS
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.drive.jobs import restricted_namespace
from e2e.drive.serving_jobs import ServingJobs
from e2e.install import bring_up

NODES = 3
LOCAL = "local"
THOUSAND = "thousand"
"""Part with a thousand jobs on fake nodes."""
BENCH = PartedBench("serving", "make bench-serving", (LOCAL, *ROWS, THOUSAND))
REPEATS = 5


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(BENCH.parts)}. Repeatable. Default: all."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Times to inject each fault.")] = REPEATS,
) -> None:
    """Measure the front and the engine lm on this machine, then ServingJobs on real nodes, then a thousand on
    fake nodes.

    Each part replaces its rows in docs/bench/serving.json, unless there are fewer repeats.
    """
    parts = chosen(only, BENCH.parts)
    progress, failed = Progress(), []
    try:
        if LOCAL in parts:
            failed += measure_parts(BENCH, {LOCAL: _local}, complete=True, progress=progress)
        if on_nodes := [name for name in parts if name in ROWS]:
            failed += _on_nodes(on_nodes, repeats, progress)
        if THOUSAND in parts:
            failed += measure_parts(BENCH, {THOUSAND: _thousand}, complete=True, progress=progress)
    except ClusterError as error:
        sys.exit(str(error))
    if failed:
        sys.exit("\n".join(failed))


def _local(found: Figures) -> None:
    found.merge(local_rows.figures("full"))


def _thousand(found: Figures) -> None:
    scale.bench(scale.Options(("serving",), repeats=1), found)


def _on_nodes(parts: list[str], repeats: int, progress: Progress) -> list[str]:
    """Measure parts on a cluster. Return the names of the checks that failed."""
    cluster: Cluster = bring_up(BENCH.name, NODES, progress)
    try:
        jobs = ServingJobs.of(cluster, restricted_namespace(cluster, BENCH.name))
        measures = {name: partial(_measure, name, cluster, jobs, repeats) for name in parts}
        return measure_parts(BENCH, measures, complete=repeats >= REPEATS, progress=progress)
    finally:
        cluster.down()


def _measure(name: str, cluster: Cluster, jobs: ServingJobs, repeats: int, found: Figures) -> None:
    ROWS[name](cluster, jobs, found, repeats)
