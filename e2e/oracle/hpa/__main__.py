"""Command line of the comparison: `python -m e2e.oracle.hpa compare|record`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy_workloads.bench.figures import Figures, line
from e2e.cluster.progress import Progress
from e2e.oracle.hpa import rows
from e2e.oracle.hpa.program import ensure
from e2e.oracle.hpa.record import record
from e2e.oracle.hpa.suites import SUITES

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Compare the autoscaler with Kubernetes'.")


@app.command("compare")
def compare_sides(
    cases: Annotated[int, typer.Option(min=1, help="Random cases of each suite.")] = rows.COUNT,
) -> None:
    """Compare random cases, and print the number of differences and the first of them, made small."""
    found = Figures()
    differing = rows.add(found, cases, Progress())
    for row in found.rows():
        print(line(row))
    if differing:
        sys.exit(f"{differing} cases differ")


@app.command("record")
def record_cases() -> None:
    """Write the cases that the unit tests replay."""
    program = ensure(Progress())
    for suite in SUITES:
        print(record(suite, program))


if __name__ == "__main__":
    app()
