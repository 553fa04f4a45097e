"""The command guard why, which explains the health of a node."""

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
"""Maximum number of state changes, and of actions, to show."""
Node = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node or of a NodeHealth.")]


def why(node: Node, context: Context = None) -> None:
    """Explain why a node is in service or out of service.

    The command shows the node's state, evidence, tests, past drains and earlier states, and the decisions
    of administrators.
    """
    found = connect(None, context).node_healths.of(node)
    if not found:
        raise Failure(
            f"no NodeHealth for node {node}: check that a GuardPolicy selects it (kubectl get guardpolicies) "
            "and that its agent runs (kubectl get pods -A -o wide -l app.kubernetes.io/component=agent)"
        )
    now = datetime.now(UTC)
    for number, health in enumerate(found):
        if number:
            typer.echo("")
        for line in explanation(health, now):
            typer.echo(line)


def explanation(health: NodeHealth, now: datetime) -> list[str]:
    """Return the lines that explain one NodeHealth."""
    status = health.status
    since = f" for {age(status.since, now)}" if status.since else ""
    lines = [
        f"node {status.node_ref.name or '(none)'}, hardware {health.metadata.name}: {status.state}{since}"
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
        lines.append(f"In HealthSweep {sweep.name} for {age(sweep.since, now)} ({sweep.cause})")
    if (hint := status.noticed) is not None:
        lines.append(
            f"Noticed: {hint.job} was {hint.slowdown - 1:.0%} slower on this node ({hint.cause}), "
            f"{age(hint.at, now)} ago; the node may or may not be the cause. A GuardPolicy in mode Act with "
            "sweeps tests the node when it is idle, and swaps the job off a suspect at a checkpoint"
        )
    lines += _decisions(health, now)
    if status.quarantines:
        lines.append(
            f"Quarantines: {len(status.quarantines)}, lemon score {status.lemon_score:.2f} "
            "(the weight of a quarantine halves every 30 days)"
        )
    lines += _actions(status, now)
    return [*lines, *_history(status, now)]


def _evidence(status: NodeHealthStatus, now: datetime) -> Iterator[str]:
    if not status.evidence:
        yield "There is no evidence against this node."
        return
    yield "Evidence against this node:"
    for one in status.evidence:
        if one.kind is EvidenceKind.SWEEP:
            yield f"  HealthSweep {one.source}, {age(one.seen, now)} ago: {one.message}"
            continue
        forgiven = (
            " (forgiven: the node has passed a sweep or was released since)"
            if one.loss <= one.forgiven
            else ""
        )
        yield (
            f"  {one.source}: {one.slowdown - 1:.0%} slower than its peers ({one.cause or 'Unknown'}) from "
            f"{age(one.since, now)} to {age(one.seen, now)} ago; lost {one.loss:.0f} GPU-seconds{forgiven}"
        )


def _decisions(health: NodeHealth, now: datetime) -> Iterator[str]:
    spec = health.spec
    end = exempted_until(health.status, spec, now)
    if spec.exempt and end:
        yield f"Exempt until {end:%Y-%m-%dT%H:%M:%SZ}, by {spec.exempt.user}: {spec.exempt.reason}"
    if spec.condemned:
        yield f"Condemned by {spec.condemned.user}: {spec.condemned.reason}"


def _actions(status: NodeHealthStatus, now: datetime) -> Iterator[str]:
    for action in status.actions[-MAX_ENTRIES:]:
        jobs = ", ".join(action.jobs) or "no job"
        done = "Emptied for a test" if action.test else "Drained"
        yield f"{done} {age(action.at, now)} ago ({jobs}): {action.outcome}"
        for one in action.paces:
            again = "; the same ranks were as slow on other nodes" if one.followed else ""
            share = f"{one.gain:.3g} s of it because of this node"
            yield f"  {one.job}: a step took {one.seconds:.3g} s, {share}{again}"


def _history(status: NodeHealthStatus, now: datetime) -> Iterator[str]:
    if status.history:
        yield "History:"
    for change in status.history[-MAX_ENTRIES:]:
        why = change.message or change.reason
        yield f"  {age(change.at, now):>4} ago  {change.before} -> {change.after}: {why}"
