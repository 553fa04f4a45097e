"""Command line of the bench: `python -m e2e.bench serving`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy_workloads.bench import figures
from convoy_workloads.bench.comparison import broken
from convoy_workloads.bench.serving import rows as local_rows
from e2e.bench.kit.options import require_known
from e2e.bench.serving.cluster_rows import ROWS
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.drive.jobs import restricted_namespace
from e2e.drive.serving_jobs import ServingJobs
from e2e.install import bring_up

NAME = "serving"
COMMAND = "make bench-serving"
NODES = 3
LOCAL = "local"


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join((LOCAL, *ROWS))}. Repeatable. Default: all."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Times to inject each fault.")] = 5,
) -> None:
    """Measure the front and the engine lm on this machine, then ServingJobs on real nodes.

    A complete run replaces docs/bench/serving.json.
    """
    require_known(only, (LOCAL, *ROWS))
    found = figures.Figures()
    try:
        if not only or LOCAL in only:
            found.merge(local_rows.figures("full"))
        chosen = [name for name in ROWS if not only or name in only]
        if chosen:
            _on_nodes(chosen, repeats, found)
        if missed := broken(found):
            sys.exit("\n".join(missed))
    except ClusterError as error:
        sys.exit(str(error))
    finally:
        figures.publish(found, NAME, COMMAND, whole=not only and repeats >= 5 and sys.exc_info()[0] is None)


def _on_nodes(chosen: list[str], repeats: int, found: figures.Figures) -> None:
    cluster: Cluster = bring_up(NAME, NODES, Progress())
    try:
        jobs = ServingJobs.of(cluster, restricted_namespace(cluster, NAME))
        for name in chosen:
            cluster.progress.report(f"measuring {name}")
            ROWS[name](cluster, jobs, found, repeats)
    finally:
        cluster.down()
