"""Measures how fast the dashboard is with 500 jobs in a real browser.

It measures the seconds from the start of loading until the page shows jobs, and the milliseconds from a
write to a job until the page shows it. It also measures the dashboard's processor time and memory.

tests/integration/dashboard/measure.py starts the API server and the browser, and makes these measurements.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from e2e.cluster import files
from e2e.cluster.errors import ClusterError

NAME = "dashboard"
COMMAND = "make bench-dashboard"
SECONDS = 1500.0


def bench(found: Figures) -> None:
    """Measure the dashboard and add the figures. Raise ClusterError if the measurement fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        done = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-q", "--timeout", str(SECONDS),
                "tests/integration/dashboard/measure.py",
            ],
            cwd=files.CHECKOUT,
            env={**os.environ, "CONVOY_BENCH_OUT": str(out)},
            capture_output=True,
            text=True,
            timeout=SECONDS + 60,
            check=False,
        )  # fmt: skip
        if done.returncode or not out.exists():
            raise ClusterError(f"measure.py failed:\n{done.stdout[-3000:]}")
        measured = json.loads(out.read_text())
    add_rows(measured, found)


def add_rows(measured: dict[str, Any], found: Figures) -> None:
    """Add a row for each measurement."""
    for name, title in (
        ("first_contents_ms", "500 jobs: first contentful paint"),
        ("first_rows_ms", "500 jobs: the first 50 rows are there"),
    ):
        for value in measured[name]:
            found.add(Metric(title, "s", target=2.0), value / 1000)
    for name, what in (
        ("quiet_ms", "nothing else changes"),
        ("busy_ms", "4 other jobs a second change"),
        ("crowd_ms", "4 other jobs a second change, 30 other pages are open"),
    ):
        values = measured[name]
        spread = f"{min(values):.0f} to {max(values):.0f} ms, n={len(values)}"
        middle = Metric(f"500 jobs, {what}: a write is seen, p50", "ms", spread=spread)
        late = Metric(f"500 jobs, {what}: a write is seen, p95", "ms", target=500.0, spread=spread)
        found.add(middle, statistics.median(values))
        found.add(late, statistics.quantiles(values, n=20)[-1])
    for key, what in (
        ("rest", "no page open, nothing changes"),
        ("1 browser", "one page open, 4 changes a second"),
        ("10 viewers", "10 pages open, 4 changes a second"),
        ("30 viewers", "30 pages open, 4 changes a second"),
    ):
        load = measured["loads"][key]
        found.add(Metric(f"500 jobs, {what}: processor", "cores"), load["cores"])
        found.add(Metric(f"500 jobs, {what}: memory", "MB"), load["memory_mb"])
