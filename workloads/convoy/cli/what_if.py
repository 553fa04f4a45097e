"""The command what-if. It simulates collectives, messages and computation on a network model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from convoy.cli import load_store, step_study, table
from convoy.cli.cluster import Failure
from convoy.cli.output import Output
from convoy.cli.text_file import read_text
from convoy.cli.topology.network import read_network
from convoy_controllers.astrasim.loadstore.parsing import MEMBER as LOAD_STORE
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric
from convoy_controllers.astrasim.oracle import Case, cases, differences, play
from convoy_controllers.astrasim.parsing.fields import InvalidInput
from convoy_controllers.astrasim.parsing.simulation import simulation
from convoy_controllers.astrasim.result import RankFigures, Result
from convoy_controllers.astrasim.run import EVENTS, run
from convoy_controllers.astrasim.step.parsing import MEMBER as STEP

MOST_BYTES = 64 << 20
"""Size of the largest file."""
EXPECTED = (
    "what-if takes a simulation as JSON: a Chakra .et file is for `convoy trace predict` or "
    "`convoy trace replay`, an InfraGraph as YAML for --infra"
)


def what_if(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="JSON file with a simulation; - for stdin.")
    ] = None,
    oracle: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Play the cases in this file and print each one that differs."),
    ] = None,
    infra: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use the network of this InfraGraph file in place of FILE's own."),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=GBPS[,NS]",
            help="Bandwidth and latency of the links with this name in the InfraGraph file. Repeatable.",
        ),
    ] = None,
    events: Annotated[
        int, typer.Option(min=1, help="Events after which a simulation ends with a finding.")
    ] = EVENTS,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TEXT,
) -> None:
    """Predict the times of a training step on a network that need not exist.

    The command simulates collectives, messages and computation of each rank. A file with step describes a
    data-parallel step, or takes it from a trace, and may sweep links, placements, buckets and ranks. A file
    with loadStore describes one collective of GPUs by loads and stores of cache lines, or a sweep. With
    --oracle the command compares the figures with those in a file. The exit status is 1 if a case differs, or
    if a rank cannot finish.
    """
    if (file is None) == (oracle is None):
        raise Failure("what-if needs either FILE or --oracle FILE")
    if infra is None and link:
        raise Failure("--link needs --infra FILE")
    if infra is not None and file is None:
        raise Failure("--infra needs FILE, a simulation")
    if oracle is not None:
        compare(oracle, events, output)
    elif file is not None:
        predict(file, events, output, None if infra is None else read_network(infra, link or []))


def predict(file: Path, events: int, output: Output, fabric: Fabric | None = None) -> None:
    """Print the figures of what a file describes, with other links if a fabric is given."""
    body = _read(file)
    members = body if isinstance(body, dict) else {}
    form = next((form for member, form in FORMS.items() if member in members), None)
    if form is not None and fabric is not None:
        raise Failure(f"{file}: --infra is for a training step only")
    try:
        if form is None:
            ended = predict_nodes(body, events, output, fabric)
        else:
            ended = form(body, events, output, file.parent)
    except InvalidInput as error:
        raise Failure(f"{file}: {error}") from error
    raise typer.Exit(0 if ended else 1)


def predict_nodes(body: Any, events: int, output: Output, fabric: Fabric | None = None) -> bool:
    """Print the figures of the nodes of all ranks. Return True if all ranks finish."""
    result = run(simulation(body, fabric=fabric), events)
    if output is Output.JSON:
        typer.echo(json.dumps(_as_json(result), indent=2))
    else:
        _print(result)
    return result.finished and not result.findings


FORMS: Mapping[str, Callable[[Any, int, Output, Path], bool]] = {
    LOAD_STORE: load_store.predict,
    STEP: step_study.predict,
}
"""Predictions of files without nodes, by the member that marks such a file: (content, events, output format,
folder of the file) -> True if the run ended.
"""


def compare(file: Path, events: int, output: Output) -> None:
    """Play the cases in a file and print each one that differs."""
    try:
        listed = cases(_read(file))
        found = [(case, *_differences(case, events)) for case in listed]
    except InvalidInput as error:
        raise Failure(f"{file}: {error}") from error
    differing = [(case, wrong, result) for case, wrong, result in found if wrong]
    if output is Output.JSON:
        shown = [
            {"case": case.name, "differences": wrong, "findings": list(map(str, result.findings))}
            for case, wrong, result in differing
        ]
        typer.echo(json.dumps({"cases": len(listed), "differing": shown}, indent=2))
    else:
        for case, wrong, _ in differing:
            typer.echo(f"{case.name}: {'; '.join(wrong)}")
        typer.echo(f"{len(listed)} cases, {len(differing)} differ")
    raise typer.Exit(1 if differing else 0)


def _differences(case: Case, events: int) -> tuple[list[str], Result]:
    result = play(case, events)
    return differences(case, result), result


def _read(file: Path) -> Any:
    """Return the content of a JSON file. Raises Failure if the file is too large or not JSON."""
    text = read_text(file, MOST_BYTES, EXPECTED)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{file}: is no valid JSON: {error}; {EXPECTED}") from error


def _as_json(result: Result) -> dict[str, Any]:
    return {
        "finished": result.finished,
        "findings": [{**asdict(one), "text": str(one)} for one in result.findings],
        "messages": result.messages,
        "messageBytes": result.message_bytes,
        "events": result.events,
        "bottleneckLink": asdict(result.links[0]) if result.links else None,
        "links": [asdict(one) for one in result.links],
        "ranks": [one and _rank_as_json(one) for one in result.ranks],
    }


def _rank_as_json(one: RankFigures) -> dict[str, Any]:
    return {
        "finishNs": one.finish,
        "exposedNs": one.exposed,
        "communicationNs": one.communication,
        "computeNs": one.compute,
        "overlapNs": one.overlap,
        "nodesNs": {str(node): list(times) for node, times in one.nodes.items()},
    }


def _print(result: Result) -> None:
    shown = table.new_table()
    shown.add_column("RANKS")
    for head in ("FINISH ns", "EXPOSED ns", "COMMUNICATION ns", "COMPUTE ns", "OVERLAP ns"):
        shown.add_column(head, justify="right")
    for first, last, cells in _rows(result):
        shown.add_row(str(first) if first == last else f"{first}-{last}", *cells)
    table.print_table(shown)
    if result.links:
        busiest = result.links[0]
        typer.echo(f"Busiest link: {busiest.name}, {busiest.utilisation:.1%} of its bandwidth")
    for one in result.findings:
        typer.echo(str(one))


def _rows(result: Result) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the first and the last of the neighbouring ranks with the same figures, and these figures."""
    for cells, found in groupby(enumerate(result.ranks), key=lambda one: _cells(one[1])):
        numbers = [number for number, _ in found]
        yield numbers[0], numbers[-1], cells


def _cells(one: RankFigures | None) -> list[str]:
    if one is None:
        return ["does not finish", "", "", "", ""]
    values = (one.finish, one.exposed, one.communication, one.compute, one.overlap)
    return ["" if value is None else f"{value:,}" for value in values]
