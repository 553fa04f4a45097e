"""The what-if of a file with the member `step`: a data-parallel step on hosts in racks, or a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from convoy.cli import table
from convoy.cli.output import Output
from convoy_controllers.astrasim.parsing.fields import InvalidInput
from convoy_controllers.astrasim.step.parsing import study_file
from convoy_controllers.astrasim.step.shape import StepShape
from convoy_controllers.astrasim.step.study import Point, Setup, study
from convoy_crds.placement import LEAST_BUCKET
from convoy_workloads.plot import curve

_HEADS = ("STEP ms", "EXPOSED ms", "COMMUNICATION ms", "SPEED", "BOTTLENECK", "USED")


def predict(body: Any, events: int, output: Output, folder: Path) -> bool:
    """Print the predictions. Return True: an invalid step raises InvalidInput."""
    found = study_file(body, lambda path: _read_trace(folder / path))
    points = study(found.setup, found.axes, events)
    step = _job_step(found.setup)
    if output is Output.JSON:
        shown = {"points": [_as_json(one) for one in points], "placementStep": step}
        typer.echo(json.dumps(shown, indent=2))
    else:
        _print(points)
        if "trace" in body["step"]:
            typer.echo(f"spec.placement.step: {json.dumps(step)}")
    return True


def _job_step(setup: Setup) -> dict[str, int]:
    """Return the step in the form of `spec.placement.step` of a TrainingJob."""
    shape = setup.shape
    return {
        "forwardMilliseconds": round(shape.head_seconds * 1e3),
        "backwardMilliseconds": round(sum(one.seconds for one in shape.reductions) * 1e3),
        "optimizerMilliseconds": round(shape.tail_seconds * 1e3),
        "gradientBytes": shape.bytes,
        "bucketBytes": max(LEAST_BUCKET, setup.bucket_bytes or max(one.bytes for one in shape.reductions)),
    }


def _read_trace(path: Path) -> tuple[StepShape, int]:
    """Return the step of the traces in a folder, and the number of ranks."""
    # Only files with a trace need these modules.
    from convoy.cli.trace.files import load_checked, trace_files  # noqa: PLC0415
    from convoy_workloads.traces.findings import InvalidTrace  # noqa: PLC0415
    from convoy_workloads.traces.predict.job import job_of  # noqa: PLC0415
    from convoy_workloads.traces.predict.shape import shape_of  # noqa: PLC0415

    try:
        job = job_of([load_checked(one, ignore_dangling=False) for one in trace_files([path])])
        return shape_of(job), len(job.traces)
    except InvalidTrace as error:
        raise InvalidInput("step.trace", f"{path}: {error}") from error


def _as_json(one: Point) -> dict[str, Any]:
    found = one.prediction
    link = found.bottleneck
    return {
        **one.values,
        "stepSeconds": found.seconds,
        "exposedSeconds": found.exposed_seconds,
        "communicationSeconds": found.communication_seconds,
        "bottleneckLink": link and {"name": link.name, "bytes": link.bytes, "utilisation": link.utilisation},
    }


def _print(points: Sequence[Point]) -> None:
    axes = list(points[0].values)
    shown = table.new_table()
    for name in axes:
        shown.add_column(name, justify="right" if _is_number(points[0].values[name]) else "left")
    for head in _HEADS:
        shown.add_column(head, justify="left" if head == "BOTTLENECK" else "right")
    first = points[0].prediction.seconds
    for one in points:
        found, link = one.prediction, one.prediction.bottleneck
        shown.add_row(
            *(_cell(one.values[name]) for name in axes),
            *(
                f"{seconds * 1e3:,.3f}"
                for seconds in (found.seconds, found.exposed_seconds, found.communication_seconds)
            ),
            f"{first / found.seconds:.2f}x",
            "" if link is None else link.name,
            "" if link is None else f"{link.utilisation:.0%}",
        )
    table.print_table(shown)
    best = min(points, key=lambda one: one.prediction.seconds)
    if len(points) > 1:
        typer.echo(f"Fastest: {_named(best.values)}")
    if plot := _plot(points, best):
        typer.echo()
        typer.echo(plot)


def _plot(points: Sequence[Point], best: Point) -> str:
    """Return the curve over the first axis with at least three numbers, through the fastest point."""
    for name, value in best.values.items():
        others = {other: chosen for other, chosen in best.values.items() if other != name}
        along = sorted(
            (one.values[name], one.prediction.seconds * 1e3)
            for one in points
            if _is_number(value) and all(one.values[other] == chosen for other, chosen in others.items())
        )
        if len(along) > 2:
            return curve(along, f"step in ms, by {name}{f'; {_named(others)}' if others else ''}")
    return ""


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_cell(value)}" for name, value in values.items())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
