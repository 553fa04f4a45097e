"""Commands that show how jobs do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from convoy.cli.cluster import Cluster, Context, Namespace
from convoy_crds.goodput import Cause, totals
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import TERMINAL, Phase, TrainingJob

COLOURS = {
    Phase.RUNNING: "green",
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "red",
    Phase.RESTARTING: "yellow",
    Phase.SUSPENDED: "blue",
}


def age(since: datetime | None, now: datetime) -> str:
    """A time as kubectl shows it: `42s`, `7m`, `3h`, `2d`; a dash when unknown."""
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def row(job: TrainingJob, now: datetime) -> list[str]:
    """One line of `convoy get`."""
    status = job.status
    progress, checkpoint = status.progress, status.checkpoint
    step = "-"
    if progress:
        step = f"{progress.step}/{progress.total_steps}" if progress.total_steps else str(progress.step)
    ended = status.phase in TERMINAL
    eta = "-"
    if progress and progress.eta_at and not ended:
        eta = age(now, progress.eta_at)
    return [
        job.metadata.name,
        status.phase or "-",
        status.ready or "-",
        step,
        f"{progress.loss:.4f}" if progress and progress.loss is not None else "-",
        eta,
        f"step {checkpoint.step}, {age(checkpoint.time, now)} ago" if checkpoint else "-",
        str(status.restarts.total),
        "" if status.phase is Phase.RUNNING else status.reason,
        age(job.metadata.creation_timestamp, now),
    ]


def get(
    name: Annotated[str | None, typer.Argument(help="One job; all when left out.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A")] = False,
) -> None:
    """List jobs: phase, pods, step, loss, time left, last checkpoint, restarts."""
    cluster = Cluster.connect(namespace, context)
    jobs = [cluster.job(name)] if name else cluster.jobs(everywhere)
    if not jobs:
        typer.echo(
            f"no TrainingJobs in {'any namespace' if everywhere else f'namespace {cluster.namespace}'}"
        )
        return
    heads = ["NAME", "PHASE", "READY", "STEP", "LOSS", "ETA", "CHECKPOINT", "RESTARTS", "REASON", "AGE"]
    table = Table(*(["NAMESPACE"] if everywhere else []), *heads, box=None, pad_edge=False)
    now = datetime.now(UTC)
    for job in jobs:
        cells = row(job, now)
        colour = COLOURS.get(Phase(job.status.phase)) if job.status.phase else None
        cells[1] = f"[{colour}]{cells[1]}[/]" if colour else cells[1]
        table.add_row(*([job.metadata.namespace or ""] if everywhere else []), *cells)
    Console(soft_wrap=True).print(table)


def why(
    name: Annotated[str, typer.Argument(help="Name of the TrainingJob.")],
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Say why a job is where it is: its phase, conditions, last fault, pods and newest events."""
    cluster = Cluster.connect(namespace, context)
    job = cluster.job(name)
    now = datetime.now(UTC)
    for line in explanation(job, now):
        typer.echo(line)
    typer.echo("\nPods:")
    for pod in cluster.pods(name):
        typer.echo(f"  {pod.metadata.name:<40} {pod_words(pod)}")
        if pod.status.phase == "Pending":
            for event in cluster.events(pod.metadata.uid)[-3:]:
                if event.type == "Warning":
                    typer.echo(f"    {event.reason}: {event.message}")
    typer.echo("\nEvents:")
    for event in cluster.events(job.metadata.uid):
        when = age(event.last_timestamp or event.event_time, now)
        typer.echo(f"  {when:>4} ago  {event.type:<8} {event.reason}: {event.message}")


def explanation(job: TrainingJob, now: datetime) -> list[str]:
    """The answer of `convoy why`, but for pods and events."""
    status = job.status
    lines = [f"{job.metadata.name} is {status.phase or 'new'}: {status.reason or 'not looked at yet'}"]
    if status.message:
        lines.append(f"  {status.message}")
    if status.phase is None:
        lines.append("  no operator has looked at it: kubectl -n convoy-system get pods")
    for condition in status.conditions:
        trouble = (condition.status == "True") == (
            condition.type in (ConditionType.FAILED, ConditionType.RESTARTING)
        )
        mark = (
            "!"
            if trouble and condition.type != ConditionType.SUSPENDED and not _wanted(status.phase)
            else " "
        )
        since = age(condition.last_transition_time, now)
        lines.append(f"{mark} {condition.type}={condition.status} for {since}: {condition.reason}")
        if condition.message and condition.message != status.message:
            lines.append(f"    {condition.message}")
    last = status.restarts.last
    if last:
        where = f" (rank {last.rank} on node {last.node})" if last.rank is not None else ""
        lines.append(f"Last restart {age(last.at, now)} ago: {last.reason}{where}")
        lines.append(f"  {last.message}")
        lines.append(
            f"  {status.restarts.in_window} of {job.spec.recovery.max_restarts} counted restarts used "
            f"in the last {job.spec.recovery.window_seconds} s; {status.restarts.total} in all"
        )
    for offender in status.offenders:
        lines.append(
            f"Node {offender.node}: {offender.faults} faults, the last {age(offender.at, now)} ago: "
            f"{offender.reason}"
        )
    lines += goodput(job, now)
    if status.checkpoint:
        point = status.checkpoint
        lines.append(
            f"Newest checkpoint: step {point.step} of incarnation {point.incarnation}, tier {point.tier}, "
            f"{age(point.time, now)} ago"
        )
    elif job.spec.checkpoint.tiers.remote is None:
        lines.append("No checkpoints: spec.checkpoint.tiers is empty, so a restart begins at step 0")
    return lines


def _wanted(phase: Phase | None) -> bool:
    """Whether a job that does not run is as its owner wants it."""
    return phase in (Phase.SUCCEEDED, Phase.SUSPENDING, Phase.SUSPENDED)


def goodput(job: TrainingJob, now: datetime) -> list[str]:
    """Where the job's time went, largest first."""
    ledger = job.status.goodput
    spent = {cause: seconds for cause, seconds in totals(ledger, now).items() if seconds}
    if not spent:
        return []
    whole = sum(spent.values())
    ordered = sorted(spent.items(), key=lambda entry: -entry[1])
    parts = ", ".join(f"{cause} {seconds:.1f} s" for cause, seconds in ordered)
    return [f"Goodput {spent.get(Cause.PRODUCTIVE, 0.0) / whole:.0%} of {whole:.1f} s: {parts}"]


def pod_words(pod: Any) -> str:
    """A pod in a few words: phase, node, and what its first container waits for or ended with."""
    words = [pod.status.phase, f"on {pod.spec.node_name}" if pod.spec.node_name else "not placed"]
    for container in (pod.status.container_statuses or [])[:1]:
        state = container.state
        if state.waiting:
            words.append(f"waiting: {state.waiting.reason}")
        elif state.terminated:
            words.append(f"ended: {state.terminated.reason} (exit code {state.terminated.exit_code})")
    if pod.metadata.deletion_timestamp:
        words.append("being deleted")
    return ", ".join(words)
