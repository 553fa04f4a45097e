"""What people say of a node."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy.cli.cluster import Context, connect
from convoy.cli.guard.why import Node
from convoy_crds.nodehealth import MOST_EXEMPT_HOURS

Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with the node.")]
UnlessUndone = Annotated[
    str | None, typer.Option("--reason", help="Why; it is kept with the node. Needed without --undo.")
]
User = Annotated[str | None, typer.Option("--user", help="Who says so; by default who runs this.")]
Hours = Annotated[
    int, typer.Option("--hours", min=1, max=MOST_EXEMPT_HOURS, help="How long it is left alone.")
]
Undo = Annotated[bool, typer.Option("--undo", help="Take it back.")]


def release(node: Node, reason: Reason, user: User = None, context: Context = None) -> None:
    """Put a node back into service, on probation, and forget what was held against it."""
    connect(None, context).node_healths.release(node, reason, user)
    typer.echo(f"{node} goes back into service")


def exempt(
    node: Node,
    reason: UnlessUndone = None,
    hours: Hours = 24,
    user: User = None,
    undo: Undo = False,
    context: Context = None,
) -> None:
    """Leave a node alone for a while, whatever speaks against it."""
    healths = connect(None, context).node_healths
    if undo:
        healths.end_exemption(node)
    else:
        healths.exempt(node, _why(reason), hours, user)
    typer.echo(f"{node} is guarded again" if undo else f"{node} is left alone for {hours} h")


def condemn(
    node: Node,
    reason: UnlessUndone = None,
    user: User = None,
    undo: Undo = False,
    context: Context = None,
) -> None:
    """Take a node out of service until this is taken back. It ends an exemption for good."""
    healths = connect(None, context).node_healths
    if undo:
        healths.end_condemnation(node)
    else:
        healths.condemn(node, _why(reason), user)
    typer.echo(f"{node} is retested" if undo else f"{node} takes no more pods")


def _why(reason: str | None) -> str:
    if not reason:
        raise typer.BadParameter("say why", param_hint="--reason")
    return reason
