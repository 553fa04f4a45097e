"""The what-if of a file with the member `loadStore`: a collective at the level of cache lines, or a sweep."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from convoy.cli import table
from convoy.cli.output import Output
from convoy_controllers.astrasim.loadstore.parsing import study
from convoy_controllers.astrasim.loadstore.run import Outcome, run
from convoy_controllers.astrasim.loadstore.sweep import ALGORITHM, SIZE, Crossover, Point, Sweep, sweep
from convoy_workloads.plot import curve


def predict(body: Any, events: int, output: Output, _folder: Path) -> bool:
    """Print the figures of a run or of a sweep. Return True: a run that is valid always ends."""
    found = study(body)
    if found.axes is None:
        outcome = run(found.setup, events)
        shown: dict[str, Any] = _as_json(outcome)
        if output is Output.TEXT:
            _print_outcome(outcome)
    else:
        swept = sweep(found.setup, found.axes, events)
        shown = _sweep_as_json(swept)
        if output is Output.TEXT:
            _print_sweep(swept)
    if output is Output.JSON:
        typer.echo(json.dumps(shown, indent=2))
    return True


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "timeNs": float(outcome.time),
        "receivedBytes": outcome.moved,
        "bytesPerNs": outcome.bandwidth,
        "events": outcome.events,
        "partsNs": outcome.parts and {part: float(time) for part, time in outcome.parts.items()},
    }


def _sweep_as_json(swept: Sweep) -> dict[str, Any]:
    return {
        "points": [{**one.values, **_as_json(one.outcome)} for one in swept.points],
        "crossovers": [
            {
                **one.values,
                "slower": one.slower,
                "faster": one.faster,
                "bytes": one.size,
                "closedFormBytes": one.closed_form,
            }
            for one in swept.crossovers
        ],
        "events": swept.events,
    }


def _print_outcome(outcome: Outcome) -> None:
    cells = {
        "TIME ns": f"{float(outcome.time):,.1f}",
        "RECEIVED": table.format_bytes(outcome.moved),
        "BYTES/ns": f"{outcome.bandwidth:,.3g}",
        "EVENTS": f"{outcome.events:,}",
    }
    if outcome.parts:
        cells |= {f"{part.upper()} ns": f"{float(time):,.1f}" for part, time in outcome.parts.items()}
    _print_rows(list(cells), [list(cells.values())])


def _print_sweep(swept: Sweep) -> None:
    names = [name for name in swept.axes if name != ALGORITHM]
    rows: dict[tuple[Any, ...], dict[str, Point]] = {}
    for one in swept.points:
        key = tuple(one.values[name] for name in names)
        rows.setdefault(key, {})[one.setup.algorithm] = one
    algorithms = list(dict.fromkeys(one.setup.algorithm for one in swept.points))
    heads = [*map(str.upper, names), *(f"{one} ns" for one in algorithms), "FASTEST"]
    shown = []
    for key, points in rows.items():
        times = [points[one].outcome.time for one in algorithms]
        fastest = algorithms[times.index(min(times))]
        shown.append([*map(_cell, key), *(f"{float(one):,.1f}" for one in times), fastest])
    _print_rows(heads, shown)
    if swept.crossovers:
        typer.echo()
        _print_crossovers(swept.crossovers)
        typer.echo()
        typer.echo(_plot(swept, swept.crossovers[0]))


def _print_crossovers(crossovers: Sequence[Crossover]) -> None:
    names = list(crossovers[0].values)
    heads = [*map(str.upper, names), "BELOW", "ABOVE", "CROSSOVER bytes", "CLOSED FORM bytes", "ERROR"]
    rows = [
        [
            *map(_cell, one.values.values()),
            one.slower,
            one.faster,
            f"{one.size:,}",
            "" if one.closed_form is None else f"{one.closed_form:,}",
            "" if one.error is None else f"{one.error:+.1%}",
        ]
        for one in crossovers
    ]
    _print_rows(heads, rows)


def _plot(swept: Sweep, crossover: Crossover) -> str:
    """Return the curve of the ratio of two algorithms' times over the sizes. It is 1 at the crossover."""
    times: dict[str, dict[int, float]] = {}
    for one in swept.points:
        if _matches(one.values, crossover.values):
            times.setdefault(one.setup.algorithm, {})[one.setup.size] = float(one.outcome.time)
    below, above = times[crossover.slower], times[crossover.faster]
    points = [(math.log2(size), below[size] / above[size]) for size in below]
    where = ", ".join(f"{name} {value}" for name, value in crossover.values.items())
    title = f"time of {crossover.slower} / time of {crossover.faster}, by log2 of the bytes"
    return curve(points, f"{title}; {where}" if where else title)


def _matches(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(values[name] == value for name, value in wanted.items() if name != SIZE)


def _print_rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    shown = table.new_table()
    for head in heads:
        shown.add_column(head, justify="right" if any(char in head for char in " /") else "left")
    for row in rows:
        shown.add_row(*row)
    table.print_table(shown)


def _cell(value: Any) -> str:
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )
