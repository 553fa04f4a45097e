"""Command line of the bench: `python -m e2e.bench dashboard`."""

from __future__ import annotations

import sys

from convoy_workloads.bench import figures
from e2e.bench.dashboard import bench
from e2e.cluster.errors import ClusterError


def run() -> None:
    """Measure the dashboard with 500 jobs in a real browser. The run replaces docs/bench/dashboard.json."""
    found = figures.Figures()
    try:
        bench.bench(found)
    except ClusterError as error:
        sys.exit(str(error))
    figures.publish(found, bench.NAME, bench.COMMAND, whole=True)
