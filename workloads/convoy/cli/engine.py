"""`convoy engine`: what the engines of the catalogue are and take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from convoy.cli.cluster import Context, Failure, connect
from convoy.cli.table import plain, show
from convoy_crds.engine import Engine
from convoy_crds.suggest import suggestion

BOUNDS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
}


def parameters(schema: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Name, type with its bounds, default and meaning of each parameter, in the schema's order."""
    required = schema.get("required", ())
    return [
        (name, kind_of(entry), _default(entry, name in required), str(entry.get("description", "")))
        for name, entry in schema.get("properties", {}).items()
    ]


def kind_of(entry: Mapping[str, Any]) -> str:
    """The type of a parameter in a few words: `integer from 1 to 64`, `adam or sgd`."""
    if "enum" in entry:
        return " or ".join(map(str, entry["enum"]))
    if "anyOf" in entry:
        return " or ".join(kind_of(one) for one in entry["anyOf"])
    kind = entry.get("type", "anything")
    words = [kind if isinstance(kind, str) else " or ".join(kind)]
    return " ".join(words + [text.format(entry[bound]) for bound, text in BOUNDS.items() if bound in entry])


def _default(entry: Mapping[str, Any], required: bool) -> str:
    return str(entry["default"]) if "default" in entry else ("required" if required else "-")


def engine(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the Engine.")],
    context: Context = None,
) -> None:
    """Show what an engine does and takes.

    Its parameters with their type, default and meaning.
    """
    known = {one.metadata.name: one for one in connect(None, context).engines.list()}
    if name not in known:
        raise Failure(f"there is no Engine {name!r}{suggestion(name, known)}")
    describe(known[name])


def describe(found: Engine) -> None:
    """Prints one engine."""
    typer.echo(f"{found.metadata.name}: {found.spec.description or 'no description'}")
    typer.echo(f"image {found.spec.image}, command {' '.join(found.spec.command)}\n")
    lines = parameters(found.spec.params_schema)
    if not lines:
        typer.echo("It takes no parameters.")
        return
    table = plain()
    for head in ("PARAMETER", "TYPE", "DEFAULT", "MEANING"):
        table.add_column(head, overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    show(table)
