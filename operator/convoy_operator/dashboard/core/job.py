"""The content of a job's page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from convoy_controllers.cached import Pod
from convoy_controllers.workers.pod_ends import describe_end
from convoy_crds.goodput import Cause, totals
from convoy_crds.layout import present
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.summaries import (
    is_unwanted,
    no_checkpoints,
    restarts_in_window,
    saves,
    shorten_list,
    tier_names,
)
from convoy_crds.terms import LABEL_ARM, LABEL_BLOCK, LABEL_EXPERIMENT, LABEL_MEMBERSHIP, ConditionType
from convoy_crds.trainingjob import EngineRef, TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Progress
from convoy_crds.trainingjob_straggler import Proof
from convoy_operator.dashboard.core import conditions
from convoy_operator.dashboard.core.formatting import (
    ago,
    clock,
    cluster_link,
    duration,
    experiment_link,
    figure,
    log_link,
    node_link,
    ranges,
    until,
)
from convoy_operator.dashboard.core.jobs import done, goodput
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

CONDITIONS = (
    Column("Condition"),
    Column("Status", badge=True),
    Column("Since", number=True),
    Column("Reason", wide=True),
)
RESULT = (
    Column("Name"),
    Column("Value", wide=True),
)
CHECKPOINTS = (
    Column("Tier"),
    Column("Step", number=True),
    Column("Incarnation", number=True),
    Column("Age", number=True),
)
STRAGGLERS = (
    Column("Ranks"),
    Column("Nodes", link=True),
    Column("Cause", badge=True),
    Column("Slowdown", number=True),
    Column("Time lost", number=True),
    Column("Since step", number=True),
    Column("Persistent", badge=True),
    Column("Proof"),
)
PODS = (
    Column("Ranks", link=True),
    Column("Pod"),
    Column("Phase", badge=True),
    Column("Node", link=True),
    Column("Rack"),
    Column("State", wide=True),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and its value."""

    label: str
    text: str
    tone: Tone = Tone.PLAIN
    href: str = ""
    """Path of the dashboard page to which the value links; empty if it has no link."""


@dataclass(frozen=True, slots=True)
class Share:
    """A cause, and the share of the job's time that was spent on it."""

    cause: str
    seconds: float
    share: float
    text: str


def facts(job: TrainingJob, now: datetime) -> list[Fact]:
    """Return the values at the top of the page."""
    status = job.status
    progress, restarts, share, ratio = status.progress, status.restarts, done(job), goodput(job, now)
    steps = "-"
    if progress:
        steps = f"{progress.step:,}" + (f" of {progress.total_steps:,}" if progress.total_steps else "")
    recent = restarts_in_window(job, now)
    counted = f"{restarts.total} ({recent} of {job.spec.recovery.max_restarts} in the window)"
    point = status.saved
    return [
        Fact("Step", steps),
        Fact("Progress", f"{share:.1%}" if share is not None else "-"),
        _loss(progress),
        Fact("Samples/s", figure(progress.samples_per_second) if progress else "-"),
        Fact(
            "Expected end", until(progress.eta_at, now) if progress and status.phase not in TERMINAL else "-"
        ),
        Fact("Ready", status.ready or "-"),
        *([Fact("Independent", status.independent)] if status.independent else []),
        Fact("Incarnation", str(status.incarnation)),
        Fact("Restarts", counted, Tone.WARN if recent else Tone.PLAIN),
        Fact("Goodput", f"{ratio:.1%}" if ratio is not None else "-"),
        Fact("Checkpoint", f"step {point.step:,}, {point.tier}, {ago(point.time, now)}" if point else "-"),
        Fact("Created", ago(job.metadata.creation_timestamp, now)),
        *engine_fact(job.spec.engine),
        *_experiment(job),
    ]


def engine_fact(engine: EngineRef | None) -> list[Fact]:
    """Return the Engine that a job names."""
    return [Fact("Engine", engine.name, href=cluster_link("engines", engine.name))] if engine else []


def _experiment(job: TrainingJob) -> Iterator[Fact]:
    """Yield the Experiment and the block of a job that is one of its runs."""
    labels = job.metadata.labels
    if name := labels.get(LABEL_EXPERIMENT):
        run = ", ".join(
            f"{what} {labels[label]}"
            for what, label in (("block", LABEL_BLOCK), ("arm", LABEL_ARM))
            if label in labels
        )
        link = experiment_link(job.metadata.namespace or "", name)
        yield Fact("Experiment", f"{name}: {run}" if run else name, href=link)


def _loss(progress: Progress | None) -> Fact:
    if progress and progress.diverged:
        return Fact("Loss", "NaN", Tone.BAD)
    return Fact("Loss", figure(progress.loss) if progress else "-")


def shares(job: TrainingJob, now: datetime) -> list[Share]:
    """Return the shares of the job's time, in the order of `Cause`. Causes without time are left out."""
    spent = totals(job.status.goodput, job.status.completion_time or now)
    whole = sum(spent.values())
    known = [*(cause.value for cause in Cause), *sorted(set(spent) - set(Cause))]
    return [
        Share(
            cause, spent[cause], spent[cause] / whole, f"{duration(spent[cause])}, {spent[cause] / whole:.1%}"
        )
        for cause in known
        if whole and spent.get(cause)
    ]


def condition_rows(job: TrainingJob, now: datetime) -> list[Row]:
    """Return the job's conditions as table rows. A status that shows a problem in the job's phase is
    marked.
    """
    return conditions.rows(
        job.status.conditions,
        now,
        lambda one: conditions.marked(one, is_unwanted(one, job.status.phase)),
    )


def result_rows(job: TrainingJob) -> list[Row]:
    """Return the fields of the job's result as table rows."""
    return [
        Row(
            name,
            (
                Cell(name),
                Cell(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)),
            ),
        )
        for name, value in (job.status.result or {}).items()
    ]


def checkpoint_rows(job: TrainingJob, now: datetime) -> list[Row]:
    """Return one table row for each configured tier, with the newest checkpoint that all ranks have
    committed in the tier.
    """
    point = job.status.checkpoint
    marks = point.watermarks if point else None
    found = []
    for tier in tier_names(job):
        mark = getattr(marks, tier, None)
        cells = (Cell(tier), Cell("none yet", Tone.QUIET), Cell("-"), Cell("-"))
        if mark is not None:
            cells = (
                Cell(tier),
                Cell(f"{mark.step:,}", order=float(mark.step)),
                Cell(str(mark.incarnation), order=float(mark.incarnation)),
                Cell(f"{ago(mark.time, now)} ({clock(mark.time)})", order=-mark.time.timestamp()),
            )
        found.append(Row(tier, cells))
    return found


def checkpoint_note(job: TrainingJob) -> str:
    """Describe the job's checkpoint interval and the reason for it."""
    if not saves(job):
        return f"No checkpoints: {no_checkpoints(job)}."
    chosen = job.status.checkpoint.interval if job.status.checkpoint else None
    if chosen is not None:
        return f"Saved every {duration(chosen.seconds)}: {chosen.reason}"
    by_default = "" if job.spec.checkpoint.tiers.any else ", by default"
    return f"Saved every {job.spec.checkpoint.interval}{by_default}"


def straggler_rows(job: TrainingJob) -> list[Row]:
    """Return the stragglers with their evidence as table rows; no rows if the job has ended."""
    if job.status.phase in TERMINAL:
        return []
    return [
        Row(
            f"{number}",
            (
                Cell(f"rank {ranges(one.ranks)}" if one.ranks else f"no single rank ({one.place})"),
                Cell(
                    shorten_list(one.nodes, 4) or "-",
                    href=node_link(one.nodes[0]) if len(one.nodes) == 1 else "",
                ),
                Cell(one.cause, Tone.WARN),
                Cell(f"{one.slowdown:+.0%}", order=one.slowdown),
                Cell(f"{one.lost:.0%}" if one.lost else "-", order=one.lost),
                Cell(f"{one.since_step:,}", order=float(one.since_step)),
                Cell("yes", Tone.WARN) if one.persistent else Cell("not yet"),
                Cell(
                    "-" if not one.ranks else "peers" if one.proof is Proof.PEERS else "few peers: a suspect"
                ),
            ),
        )
        for number, one in enumerate(job.status.stragglers)
    ]


def straggler_note(job: TrainingJob) -> str:
    """Return why a slow rank might not be found; empty if the ranks are compared, or if the job has ended."""
    found = (one for one in job.status.conditions if one.type == ConditionType.STRAGGLER_DETECTED)
    known = next(found, None)
    unknown = known is not None and known.status == "Unknown" and job.status.phase not in TERMINAL
    return f"{known.reason}: {known.message}" if known is not None and unknown else ""


def ranks(job: TrainingJob) -> dict[str, str]:
    """Return the ranks of each pod in the current incarnation, by pod name. The ranks are a text such as
    `0-7`.
    """
    return {
        slot.pod: str(slot.rank_offset)
        if slot.processes == 1
        else f"{slot.rank_offset}-{slot.rank_offset + slot.processes - 1}"
        for slot in present(job)
    }


def pod_state(pod: Pod) -> tuple[str, Tone]:
    """Describe the failure of a pod, its end, or what it waits for. Return a dash if the pod runs without a
    problem.
    """
    view = pod.view
    if view.failure is not None and not view.deleting and view.exit_code is None:
        message = f": {view.failure.message}" if view.failure.message else ""
        return f"container {view.failure.name} {describe_end(view.failure)}{message}", Tone.BAD
    if view.kubelet_reason and view.exit_code is None:
        return f"{view.kubelet_reason}: {view.kubelet_message}".rstrip(": "), Tone.BAD
    if view.exit_code is not None:
        tone = Tone.BAD if view.exit_code else Tone.PLAIN
        # The message of a pod that ended well is the job's result, which the page shows elsewhere.
        message = f": {view.termination_message}" if view.termination_message and view.exit_code else ""
        return f"ended: {view.termination_reason or 'Completed'} (exit code {view.exit_code}){message}", tone
    if view.deleting:
        return "deleting", Tone.QUIET
    if view.unschedulable:
        return f"cannot be scheduled: {view.unschedulable}", Tone.WARN
    if view.waiting_reason:
        message = f": {view.waiting_message}" if view.waiting_message else ""
        beside = view.waiting_container not in ("", view.container)
        who = f"container {view.waiting_container} is " if beside else ""
        return f"{who}waiting: {view.waiting_reason}{message}", Tone.WARN
    return "-", Tone.PLAIN


def pod_rows(job: TrainingJob, pods: Iterable[Pod], healths: Mapping[str, NodeHealth]) -> list[Row]:
    """Return the job's pods as table rows, in the order of their ranks."""
    known = ranks(job)
    order = {name: number for number, name in enumerate(known)}
    first = {slot.pod: slot.rank_offset for slot in present(job)}
    namespace, name = job.metadata.namespace or "", job.metadata.name
    found = []
    for pod in sorted(pods, key=lambda pod: (order.get(pod.name, len(order)), pod.name, pod.uid)):
        node = pod.view.node or ""
        rack = healths[node].status.node_ref.rack if node in healths else ""
        text, tone = pod_state(pod)
        phase_tone = {"Running": Tone.GOOD, "Failed": Tone.BAD, "Pending": Tone.BUSY}.get(pod.view.phase)
        cells = (
            Cell(
                known.get(pod.name, "independent" if LABEL_MEMBERSHIP in pod.view.labels else "-"),
                href=log_link(namespace, name, first[pod.name]) if pod.name in first else "",
                order=float(order.get(pod.name, len(order))),
            ),
            Cell(pod.name),
            Cell(pod.view.phase, phase_tone or Tone.PLAIN),
            Cell(node or "not scheduled", href=node_link(node) if node else ""),
            Cell(rack or "-"),
            Cell(text, tone),
        )
        found.append(Row(pod.uid, cells))
    return found
