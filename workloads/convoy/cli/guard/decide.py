"""What people say of a node: it is written into `spec` of its NodeHealth, with who says so and why."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from convoy.cli.cluster import Cluster, Context, Failure
from convoy.cli.guard.finding import meant
from convoy.cli.guard.why import Node
from convoy_crds.nodehealth import MOST_EXEMPT_HOURS, NodeHealth

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
    at = _text(datetime.now(UTC))
    _say(node, {"release": {"at": at, **_said(reason, user)}, "condemned": None}, context)
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
    until = datetime.now(UTC) + timedelta(hours=hours)
    said = None if undo else {"until": _text(until), **_said(reason, user)}
    _say(node, {"exempt": said}, context)
    typer.echo(f"{node} is guarded again" if undo else f"{node} is left alone for {hours} h")


def condemn(
    node: Node,
    reason: UnlessUndone = None,
    user: User = None,
    undo: Undo = False,
    context: Context = None,
) -> None:
    """Take a node out of service until this is taken back."""
    _say(node, {"condemned": None if undo else _said(reason, user)}, context)
    typer.echo(f"{node} is retested" if undo else f"{node} takes no more pods")


def _said(reason: str | None, user: str | None) -> dict[str, str]:
    if not reason:
        raise typer.BadParameter("say why", param_hint="--reason")
    return {"reason": reason, "user": user or getpass.getuser()}


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _say(node: str, spec: dict[str, Any], context: str | None) -> None:
    cluster = Cluster.connect(None, context)
    cluster.patch_node_health(one_of(cluster, node).metadata.name, {"spec": spec})


def one_of(cluster: Cluster, node: str) -> NodeHealth:
    """The one that is meant; Failure when there is none, or more than one."""
    found = meant(cluster.node_healths(), node)
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failure(f"nothing is known of node {node}: see kubectl get nodehealths")
    names = ", ".join(one.metadata.name for one in found)
    raise Failure(f"{node} was the name of several machines, say which is meant: {names}")
