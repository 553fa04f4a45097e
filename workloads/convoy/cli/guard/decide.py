"""The commands release, exempt and condemn, which record a decision about a node."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy.cli.cluster import Context, connect
from convoy.cli.guard.why import Node
from convoy_crds.nodehealth import MOST_EXEMPT_HOURS

Reason = Annotated[str, typer.Option("--reason", help="Reason to store in the NodeHealth.")]
UnlessUndone = Annotated[
    str | None, typer.Option("--reason", help="Reason to store in the NodeHealth. Required without --undo.")
]
User = Annotated[
    str | None, typer.Option("--user", help="Author of the decision. Default: your local user name.")
]
Hours = Annotated[
    int, typer.Option("--hours", min=1, max=MOST_EXEMPT_HOURS, help="Hours until the exemption ends.")
]
EndExemption = Annotated[bool, typer.Option("--undo", help="End the exemption.")]
EndCondemnation = Annotated[
    bool, typer.Option("--undo", help="End the condemnation. Convoy then tests the node again.")
]


def release(node: Node, reason: Reason, user: User = None, context: Context = None) -> None:
    """Return a node to service.

    Convoy discards the evidence against the node and puts the node on probation.
    """
    connect(None, context).node_healths.release(node, reason, user)
    typer.echo(f"node {node} returns to service")


def exempt(
    node: Node,
    reason: UnlessUndone = None,
    hours: Hours = 24,
    user: User = None,
    undo: EndExemption = False,
    context: Context = None,
) -> None:
    """Exempt a node from Convoy's actions for some hours.

    During the exemption Convoy also ignores evidence against the node.
    """
    healths = connect(None, context).node_healths
    if undo:
        healths.end_exemption(node)
    else:
        healths.exempt(node, _why(reason), hours, user)
    typer.echo(f"node {node} is no longer exempt" if undo else f"node {node} is exempt for {hours} h")


def condemn(
    node: Node,
    reason: UnlessUndone = None,
    user: User = None,
    undo: EndCondemnation = False,
    context: Context = None,
) -> None:
    """Take a node out of service until `condemn --undo`.

    The command also removes an exemption of the node.
    """
    healths = connect(None, context).node_healths
    if undo:
        healths.end_condemnation(node)
    else:
        healths.condemn(node, _why(reason), user)
    typer.echo(f"node {node} will be tested again" if undo else f"node {node} accepts no more pods")


def _why(reason: str | None) -> str:
    if not reason:
        raise typer.BadParameter("give a reason", param_hint="--reason")
    return reason
