"""The command why, which explains the state of a job or an experiment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from convoy.cli import provenance as records
from convoy.cli import why_experiment
from convoy.cli import why_serving as serving
from convoy.cli.cluster import Context, Failure, Namespace, connect
from convoy.cli.jobs import ObjectName, find, job_collection
from convoy.cli.messages import ShownMessages, advice_lines, indented
from convoy.cli.output import Output
from convoy.client import Client
from convoy.client.pod_logs import rank_container
from convoy_crds.experiment import Experiment
from convoy_crds.goodput import Cause, totals
from convoy_crds.placement_summary import key_label, placement_lines
from convoy_crds.servingjob import ServingJob
from convoy_crds.summaries import (
    NOT_RECONCILED,
    age,
    is_unwanted,
    metrics,
    no_checkpoints,
    restarts_in_window,
    saves,
    shorten_list,
    straggler,
)
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL

MAX_EVENTS = 10
"""Maximum number of Events to show."""
MAX_EQUAL_LINES = 4
"""Maximum number of pods with the same text that get one line each. If more pods have the same text, all of
them share one line.
"""
MAX_DOMAINS = 8
"""Maximum number of domains of a topology key to show. The output gives the number of further domains."""
MAX_METRICS = 8
"""Maximum number of the program's metrics to show. The output gives the number of further metrics."""
EVENTS_TRUNCATED = "  (some Events are left out: `kubectl describe pod NAME` shows all Events of a pod)"


def why(
    name: ObjectName,
    provenance: Annotated[
        bool,
        typer.Option(
            "--provenance", help="Show the record of a TrainingJob that has ended: what a repetition needs."
        ),
    ] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="Output format; json only with --provenance.")
    ] = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Explain the state of a job or an experiment.

    The command shows the conditions, the last faults, the pods and the newest Events. For a TrainingJob it
    also shows the goodput and the newest checkpoint; for a ServingJob the model, the revisions and the
    replicas with a fault. For an Experiment it shows the failed runs and the jobs instead of pods.
    """
    if output is Output.JSON and not provenance:
        raise Failure("--output json needs --provenance")
    client = connect(namespace, context)
    found = find(client, name)
    if provenance:
        _print_record(found, output)
        return
    now, shown = datetime.now(UTC), ShownMessages()
    if isinstance(found, Experiment):
        lines = _about_experiment(client, found, now, shown)
    else:
        lines = _about_job(client, found, now, shown)
    for line in lines:
        typer.echo(line)


def _print_record(found: Any, output: Output) -> None:
    if not isinstance(found, TrainingJob):
        raise Failure(f"{found.metadata.name} is no TrainingJob: only TrainingJobs have a record")
    if output is Output.JSON:
        typer.echo(json.dumps(records.document(found), indent=2))
        return
    for line in records.lines(found):
        typer.echo(line)


def _about_job(
    client: Client, job: TrainingJob | ServingJob, now: datetime, shown: ShownMessages
) -> list[str]:
    jobs = job_collection(client, job)
    pods = jobs.pods(job.metadata.name)
    waiting = {pod.metadata.uid for pod in pods if pod.status.phase == "Pending"}
    events, whole = jobs.pod_events() if waiting else ({}, True)
    described = [
        (pod, events.get(pod.metadata.uid, []) if pod.metadata.uid in waiting else []) for pod in pods
    ]
    about = explanation(job, now, shown) if isinstance(job, TrainingJob) else serving.explain(job, now, shown)
    lines = [*about, "", "Pods:", *(pod_lines(described) or ["  none"])]
    lines += [] if whole else [EVENTS_TRUNCATED]
    return lines + _events(jobs.events(job.metadata.uid), now, shown)


def _about_experiment(
    client: Client, experiment: Experiment, now: datetime, shown: ShownMessages
) -> list[str]:
    lines = why_experiment.explain(experiment, now, shown)
    jobs, notes = why_experiment.jobs_of(client, experiment)
    lines += ["", "Jobs:", *(list(why_experiment.job_lines(jobs, now, shown)) + notes or ["  none"])]
    return lines + _events(client.experiments.events(experiment.metadata.uid), now, shown)


def _events(found: Iterable[Any], now: datetime, shown: ShownMessages) -> list[str]:
    return ["", "Events:", *(event_lines(found, now, shown) or ["  none"])]


def explanation(job: TrainingJob, now: datetime, shown: ShownMessages) -> list[str]:
    """Return the lines about the job itself. Lines about pods and Events are not included."""
    status = job.status
    lines = [f"{job.metadata.name} is {status.phase or 'new'}: {status.reason or 'not reconciled yet'}"]
    lines += indented(shown.add(status.message if status.phase else NOT_RECONCILED), 2)
    for condition in status.conditions:
        mark = "!" if is_unwanted(condition, status.phase) else " "
        since = age(condition.last_transition_time, now)
        lines.append(f"{mark} {condition.type}={condition.status} for {since}: {condition.reason}")
        lines += indented(shown.add(condition.message), 4)
    if any(is_unwanted(condition, status.phase) for condition in status.conditions):
        lines.append("  (! marks an unwanted condition)")
    lines += _placement(job)
    lines += _faults(job, now, shown)
    lines += _independent(job)
    lines += _stragglers(job)
    lines += _metrics(job)
    lines += advice_lines(job.status.advice)
    return lines + goodput(job, now) + _checkpoint(job, now)


def _placement(job: TrainingJob) -> Iterator[str]:
    found = placement_lines(job)
    if found:
        yield "Placement:"
    for label, text in found:
        yield f"  {label}: {text}"
    placed = job.status.placement
    for key in placed.keys if placed else []:
        named = [f"{one.name} {one.ranks}" for one in key.ranks]
        yield f"  Ranks by {key_label(key.key)}: {shorten_list(named, MAX_DOMAINS)}"


def _faults(job: TrainingJob, now: datetime, shown: ShownMessages) -> Iterator[str]:
    restarts, recovery = job.status.restarts, job.spec.recovery
    if last := restarts.last:
        where = f" (rank {last.rank} on node {last.node})" if last.rank is not None else ""
        yield f"Last restart {age(last.at, now)} ago: {last.reason}{where}"
        yield from indented(shown.add(last.message), 2)
        yield (
            f"  {restarts_in_window(job, now)} of {recovery.max_restarts} counted restarts used "
            f"in the last {recovery.window_seconds} s; {restarts.total} in total"
        )
    for offender in job.status.offenders:
        when = age(offender.at, now)
        faults = "1 fault" if offender.faults == 1 else f"{offender.faults} faults, the last"
        yield f"Node {offender.node}: {faults} {when} ago: {offender.reason}"


def _independent(job: TrainingJob) -> Iterator[str]:
    for role in job.status.roles:
        if (counts := role.independent) is not None:
            yield (
                f"Independent role {role.name}: {role.ready} of {role.desired} pods run, {counts.completed} "
                f"completed, {counts.given_up} given up; {counts.restarts} restarts after failures, "
                f"{counts.preemptions} preemptions"
            )


def _stragglers(job: TrainingJob) -> Iterator[str]:
    for one in job.status.stragglers if job.status.phase not in TERMINAL else []:
        yield f"Slow: {straggler(one)}"


def _metrics(job: TrainingJob) -> list[str]:
    found = metrics(job.status.progress) if job.status.progress else []
    return [f"Metrics: {shorten_list(found, MAX_METRICS)}"] if found else []


def _checkpoint(job: TrainingJob, now: datetime) -> list[str]:
    if point := job.status.saved:
        return [
            f"Newest checkpoint: step {point.step} of incarnation {point.incarnation}, tier {point.tier}, "
            f"{age(point.time, now)} ago"
        ]
    invalid = any(one.type == ConditionType.VALID and one.status == "False" for one in job.status.conditions)
    if saves(job) or invalid or job.status.phase in TERMINAL:
        return []
    return [f"No checkpoints: {no_checkpoints(job)}"]


def goodput(job: TrainingJob, now: datetime) -> list[str]:
    """Return one line that shows which causes took the job's time, the largest share first. While the job
    has no recorded time, return no line.
    """
    ledger = job.status.goodput
    spent = {cause: seconds for cause, seconds in totals(ledger, now).items() if seconds}
    if not spent:
        return []
    whole = sum(spent.values())
    ordered = sorted(spent.items(), key=lambda entry: -entry[1])
    parts = ", ".join(f"{cause} {seconds:.1f} s" for cause, seconds in ordered)
    return [f"Goodput {spent.get(Cause.PRODUCTIVE, 0.0) / whole:.0%} of {whole:.1f} s: {parts}"]


def pod_lines(pods: Iterable[tuple[Any, list[Any]]]) -> list[str]:
    """Return a line for each pod. Lines with the newest warnings follow if the pod has not started.

    If more than MAX_EQUAL_LINES pods have the same text, they share a line.
    """
    described = [(pod.metadata.name, (describe_pod(pod), *_warnings(events))) for pod, events in pods]
    equal = Counter(text for _, text in described)
    lines: list[str] = []
    for name, text in described:
        if (count := equal[text]) > MAX_EQUAL_LINES:
            names, equal[text] = f"{name} and {count - 1} more", 0
        elif count:
            names = name
        else:
            continue
        state, *warnings = text
        lines += [f"  {names:<40} {state}", *warnings]
    return lines


def _warnings(events: Iterable[Any]) -> list[str]:
    newest = in_order(events)[-3:]
    return [f"    {event.reason}: {event.message}" for event in newest if event.type == "Warning"]


def describe_pod(pod: Any) -> str:
    """Return the phase and node of a pod, and the reason why its rank container waits or has ended.

    Other containers are described only if they may keep the ranks from starting.
    """
    words = [pod.status.phase, f"on {pod.spec.node_name}" if pod.spec.node_name else "not scheduled"]
    ranks = rank_container(pod)
    statuses = pod.status.container_statuses or []
    words += [
        f"container {one.name} {state}"
        for one in [*(pod.status.init_container_statuses or []), *statuses]
        if one.name != ranks and (state := _blocking_state(one))
    ]
    words += [state for one in statuses if one.name == ranks and (state := _describe_state(one.state))]
    if pod.metadata.deletion_timestamp:
        words.append("being deleted")
    return ", ".join(words)


def _describe_state(state: Any) -> str:
    if state.waiting:
        return f"waiting: {state.waiting.reason}"
    if state.terminated:
        return f"ended: {state.terminated.reason} (exit code {state.terminated.exit_code})"
    return ""


def _blocking_state(container: Any) -> str:
    """Return the state of a container that may keep the ranks from starting. Return an empty text for any
    other container.
    """
    state = container.state
    if state.terminated:
        return _describe_state(state) if state.terminated.exit_code else ""
    waits = state.waiting and state.waiting.reason not in (None, "PodInitializing", "ContainerCreating")
    return _describe_state(state) if waits else ""


def in_order(events: Iterable[Any]) -> list[Any]:
    """Return the Events, oldest first. Events of the same second are in the order in which the API server
    stored them.
    """
    return sorted(
        events,
        key=lambda event: (
            str(event.last_timestamp or event.event_time or ""),
            int(event.metadata.resource_version or 0),
        ),
    )


def event_lines(events: Iterable[Any], now: datetime, shown: ShownMessages) -> list[str]:
    """Return the lines about the newest Events, oldest first."""
    lines = []
    for event in in_order(events)[-MAX_EVENTS:]:
        when = age(event.last_timestamp or event.event_time, now)
        first, *rest = indented(shown.add(event.message), 0) or ["as above"]
        lines.append(f"  {when:>4} ago  {event.type:<8} {event.reason}: {first}")
        lines += indented("\n".join(rest), 21)
    return lines
