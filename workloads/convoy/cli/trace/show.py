"""The command show, which prints the nodes of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from convoy.cli.cluster import Failure
from convoy.cli.output import Output
from convoy.cli.table import new_table, print_table
from convoy.cli.trace.files import cell, load_trace

if TYPE_CHECKING:
    from convoy_workloads.traces.wire.chakra_pb2 import GlobalMetadata, Node

MAX_DEPENDENCIES = 6


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Trace file.")],
    node: Annotated[
        int | None, typer.Option(metavar="ID", help="Show only this node, with its attributes.")
    ] = None,
    communications: Annotated[
        bool, typer.Option("--communications", "-c", help="Show only communications.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Number of nodes to show.")] = 50,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TEXT,
) -> None:
    """Show the nodes of a Chakra trace."""
    from convoy_workloads.traces.trace import is_communication  # noqa: PLC0415

    trace = load_trace(file)
    chosen = [one for one in trace.nodes if node is None or one.id == node]
    if node is not None and not chosen:
        raise Failure(f"{file}: no node has the id {node}")
    if communications:
        chosen = [one for one in chosen if is_communication(one)]
    if output is Output.JSON:
        facts = {"version": trace.metadata.version, **attributes(trace.metadata)}
        typer.echo(json.dumps({"trace": facts, "nodes": [as_json(one) for one in chosen[:limit]]}, indent=2))
        return
    if node is not None:
        typer.echo(json.dumps(as_json(chosen[0]), indent=2))
        return
    begin = min((one.start_time_micros for one in trace.nodes), default=0)
    _print(chosen[:limit], begin)
    if len(chosen) > limit:
        typer.echo(f"... and {len(chosen) - limit} more nodes")


def as_json(node: Node) -> dict[str, Any]:
    """Return a node as JSON values."""
    from convoy_workloads.traces.trace import kind_of  # noqa: PLC0415

    return {
        "id": node.id,
        "name": node.name,
        "kind": kind_of(node),
        "startUs": node.start_time_micros,
        "durationUs": node.duration_micros,
        "dataDeps": list(node.data_deps),
        "ctrlDeps": list(node.ctrl_deps),
        "attributes": attributes(node),
        **{
            name: getattr(getattr(node, part), kind)
            for name, part, kind in _ARGUMENTS
            if node.HasField(cast(Any, part))
        },
    }


_ARGUMENTS = [
    (f"{part}{kind.capitalize()}", part, kind)
    for part in ("inputs", "outputs")
    for kind in ("values", "shapes", "types")
]


def attributes(owner: Node | GlobalMetadata) -> dict[str, Any]:
    """Return attributes by name. Lists become lists, and bytes their length."""
    found: dict[str, Any] = {}
    for one in owner.attr:
        field = one.WhichOneof("value")
        value: Any = getattr(one, field) if field else None
        listed = field is not None and field.endswith("_list")
        found[one.name] = [_plain(each) for each in value.values] if listed else _plain(value)
    return found


def _plain(value: Any) -> Any:
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


def _print(nodes: list[Node], begin: int) -> None:
    from convoy_workloads.traces.trace import group_of, is_communication, kind_of, size_of  # noqa: PLC0415

    shown = new_table()
    for head in ("ID", "START", "US", "KIND", "BYTES", "GROUP", "AFTER", "NAME"):
        shown.add_column(head, justify="right" if head in {"ID", "START", "US", "BYTES"} else "left")
    for one in nodes:
        needs = [str(id) for id in (*one.data_deps, *one.ctrl_deps)]
        after = ",".join(needs[:MAX_DEPENDENCIES]) + ("..." if len(needs) > MAX_DEPENDENCIES else "")
        talks = is_communication(one)
        shown.add_row(
            str(one.id), str(one.start_time_micros - begin), str(one.duration_micros), kind_of(one),
            str(size_of(one)) if talks else "", cell(group_of(one)) if talks else "", after, cell(one.name),
        )  # fmt: skip
    print_table(shown)
