"""`convoy guard why`: what is known of a node's hardware, what speaks against it, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from convoy.cli.cluster import Context, Failure, connect
from convoy_controllers.nodehealth.manual import exempted_until
from convoy_crds.nodehealth import EvidenceKind, NodeHealth, NodeHealthStatus
from convoy_crds.summaries import age

MAX_ENTRIES = 8
"""Turns and actions that are shown."""
Node = Annotated[str, typer.Argument(help="Name of a node, or of a NodeHealth.")]


def why(node: Node, context: Context = None) -> None:
    """Say why a node is in service or not.

    Its state, what speaks against it, what is in the way of what is wanted, and what became of it so far.
    """
    found = connect(None, context).node_healths.of(node)
    if not found:
        raise Failure(
            f"nothing is known of node {node}: is there a GuardPolicy for it (kubectl get guardpolicies), "
            "and does its agent run?"
        )
    now = datetime.now(UTC)
    for number, health in enumerate(found):
        if number:
            typer.echo("")
        for line in explanation(health, now):
            typer.echo(line)


def explanation(health: NodeHealth, now: datetime) -> list[str]:
    """The whole answer about one piece of hardware."""
    status = health.status
    since = f" for {age(status.since, now)}" if status.since else ""
    lines = [
        f"node {status.node_ref.name or '(gone)'}, hardware {health.metadata.name}: {status.state}{since}"
    ]
    if status.message:
        lines.append(f"  {status.message}")
    lines.append(f"GuardPolicy: {status.policy or 'none'}")
    for condition in status.conditions:
        mark = "!" if condition.status == "False" else " "
        lines.append(f"{mark} {condition.type}={condition.status}: {condition.reason}")
        if condition.message and condition.message != status.message:
            lines.append(f"    {condition.message}")
    lines += _evidence(status, now)
    if (sweep := status.sweep) is not None:
        lines.append(f"Under HealthSweep {sweep.name} for {age(sweep.since, now)} ({sweep.cause})")
    if (hint := status.noticed) is not None:
        lines.append(
            f"To be swept once it is idle: {hint.job} was {hint.slowdown - 1:.0%} slower for it "
            f"({hint.cause}), {age(hint.at, now)} ago, which may lie in the node and need not"
        )
    lines += _decisions(health, now)
    if status.quarantines:
        lines.append(
            f"Quarantined {len(status.quarantines)} times, lemon score {status.lemon_score:.2f} "
            "(each counts half after 30 days)"
        )
    lines += _actions(status, now)
    return [*lines, *_history(status, now)]


def _evidence(status: NodeHealthStatus, now: datetime) -> Iterator[str]:
    if not status.evidence:
        yield "Nothing speaks against it."
        return
    yield "What speaks against it:"
    for one in status.evidence:
        if one.kind is EvidenceKind.SWEEP:
            yield f"  HealthSweep {one.source}, {age(one.seen, now)} ago: {one.message}"
            continue
        forgiven = ", forgiven: a sweep has passed it since, or people" if one.loss <= one.forgiven else ""
        yield (
            f"  {one.source}: {one.slowdown - 1:.0%} slower than its peers ({one.cause or 'Unknown'}) from "
            f"{age(one.since, now)} to {age(one.seen, now)} ago; cost {one.loss:.0f} GPU-seconds{forgiven}"
        )


def _decisions(health: NodeHealth, now: datetime) -> Iterator[str]:
    spec = health.spec
    end = exempted_until(health.status, spec, now)
    if spec.exempt and end:
        yield f"Left alone until {end:%Y-%m-%dT%H:%M:%SZ}, by {spec.exempt.user}: {spec.exempt.reason}"
    if spec.condemned:
        yield f"Condemned by {spec.condemned.user}: {spec.condemned.reason}"


def _actions(status: NodeHealthStatus, now: datetime) -> Iterator[str]:
    for action in status.actions[-MAX_ENTRIES:]:
        jobs = ", ".join(action.jobs) or "no job"
        yield f"Drained {age(action.at, now)} ago ({jobs}): {action.outcome}"
        for one in action.paces:
            again = "; the same ranks were as slow elsewhere" if one.followed else ""
            yield f"  {one.job}: a step took {one.seconds:.3g} s, {one.gain:.3g} s of it for this node{again}"


def _history(status: NodeHealthStatus, now: datetime) -> Iterator[str]:
    if status.history:
        yield "History:"
    for change in status.history[-MAX_ENTRIES:]:
        why = change.message or change.reason
        yield f"  {age(change.at, now):>4} ago  {change.before} -> {change.after}: {why}"
