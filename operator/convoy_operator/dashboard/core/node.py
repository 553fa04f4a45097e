"""The content of a node's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from convoy_controllers.cached import Node, Pod
from convoy_controllers.nodehealth.manual import exempted_until
from convoy_crds.healthsweep import HealthSweep, NodeVerdict
from convoy_crds.nodehealth import EvidenceKind, NodeHealth, StateChange, Verdict
from convoy_crds.servingjob import ServingJob
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core import jobs, serving_jobs
from convoy_operator.dashboard.core.formatting import (
    ago,
    clock,
    cluster_link,
    duration,
    figure,
    job_link,
    serving_link,
    until,
)
from convoy_operator.dashboard.core.job import Fact
from convoy_operator.dashboard.core.nodes import TONES
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

HISTORY = (Column("Time"), Column("Change", badge=True), Column("Reason", wide=True))
EVIDENCE = (
    Column("Source", link=True),
    Column("Kind", badge=True),
    Column("Cause"),
    Column("Slowdown", number=True),
    Column("Cost", number=True),
    Column("Last seen", number=True),
    Column("Details", wide=True),
)
SWEEPS = (
    Column("Sweep", link=True),
    Column("Verdict", badge=True),
    Column("Tier"),
    Column("Time", number=True),
    Column("Reason", wide=True),
)
JOBS = (
    Column("Job", link=True),
    Column("Phase", badge=True),
    Column("Pods", number=True),
    Column("Why", wide=True),
)
VERDICTS = {Verdict.PASS: Tone.GOOD, Verdict.FAIL: Tone.BAD, Verdict.INCONCLUSIVE: Tone.WARN}


def facts(node: Node | None, health: NodeHealth | None, now: datetime) -> list[Fact]:
    """Return the values at the top of the page."""
    found = []
    if node is None:
        found.append(Fact("Node", "deleted", Tone.WARN))
    else:
        kubelet = Fact("Kubelet", "Ready", Tone.GOOD) if node.ready else Fact("Kubelet", "NotReady", Tone.BAD)
        agent = (
            Fact("Agent", "Ready", Tone.GOOD) if node.agent_ready else Fact("Agent", "NotReady", Tone.WARN)
        )
        found += [kubelet, agent, Fact("Schedulable", "no (cordoned)" if node.cordoned else "yes")]
    if health is None:
        return found
    status = health.status
    policy = cluster_link("guardpolicies", status.policy) if status.policy else ""
    return [
        *found,
        Fact("Health", status.state, TONES[status.state]),
        Fact("In this state for", duration((now - status.since).total_seconds()) if status.since else "-"),
        Fact("Rack", status.node_ref.rack or "-"),
        Fact("Driver", status.node_ref.driver or "-"),
        Fact("GuardPolicy", status.policy or "none", href=policy),
        Fact("Qualified until", until(status.qualified_until, now)),
        Fact("Last sweep", ago(status.swept, now)),
        Fact("Quarantines", f"{len(status.quarantines)} (lemon score {status.lemon_score:.2f})"),
        Fact("Hardware", health.metadata.name),
    ]


def notes(health: NodeHealth, now: datetime) -> Iterator[str]:
    """Yield texts about the node: notes that people wrote, unmet conditions, a job's unproven delay, and the
    current sweep or repair.
    """
    spec, status = health.spec, health.status
    end = exempted_until(status, spec, now)
    if spec.exempt and end:
        yield f"Exempt until {clock(end)}, by {spec.exempt.user}: {spec.exempt.reason}"
    if spec.condemned:
        yield f"Condemned by {spec.condemned.user}: {spec.condemned.reason}"
    for condition in status.conditions:
        if condition.status == "False" and condition.message and condition.message != status.message:
            yield f"{condition.type}=False, {condition.reason}: {condition.message}"
    if (hint := status.noticed) is not None:
        slower = f"{hint.job} was {hint.slowdown - 1:.0%} slower on this node ({hint.cause})"
        yield f"Noticed {ago(hint.at, now)}: {slower}. The node may or may not be the cause: a sweep can tell"
    if status.sweep:
        begun = ago(status.sweep.since, now)
        yield f"Tested by HealthSweep {status.sweep.name}, started {begun} ({status.sweep.cause})"
    if status.repair.action:
        owner = status.repair.owner or "manual"
        yield f"Repair step {status.repair.step + 1}: {status.repair.action}, by {owner}"


def history_rows(health: NodeHealth, now: datetime) -> list[Row]:
    """Return the node's state changes as table rows, newest first."""
    return [
        Row(
            f"{number}",
            (
                Cell(f"{ago(turn.at, now)} ({clock(turn.at)})", order=-turn.at.timestamp()),
                Cell(_change(turn), TONES[turn.after]),
                Cell(f"{turn.reason}: {turn.message}" if turn.message else turn.reason),
            ),
        )
        for number, turn in enumerate(reversed(health.status.history))
    ]


def _change(turn: StateChange) -> str:
    """Return the states before and after a change. The first entry of a node has only one state."""
    return turn.after if turn.before == turn.after else f"{turn.before} → {turn.after}"


def evidence_rows(health: NodeHealth, now: datetime) -> list[Row]:
    """Return the evidence against the node as table rows."""
    found = []
    for number, one in enumerate(health.status.evidence):
        online = one.kind is EvidenceKind.ONLINE
        namespace, _, name = one.source.partition("/")
        forgiven = online and one.loss <= one.forgiven
        cells = (
            Cell(one.source, href=job_link(namespace, name) if online and name else ""),
            Cell(one.kind),
            Cell(one.cause or "-"),
            Cell(f"{one.slowdown - 1:.0%}", order=one.slowdown) if online else Cell("-"),
            Cell(f"{one.loss:,.0f} GPU-s", order=one.loss) if online else Cell("-"),
            Cell(ago(one.seen, now), order=-one.seen.timestamp()),
            Cell(
                "forgiven: the node passed a later sweep, or a person released it"
                if forgiven
                else one.message or "-"
            ),
        )
        found.append(Row(f"{number}", cells))
    return found


def sweep_rows(
    sweeps: Iterable[ParsedObject[HealthSweep]], node: str, hardware: str, now: datetime
) -> list[Row]:
    """Return the sweeps that tested the node as table rows, newest first."""
    found: list[tuple[float, Row]] = []
    for parsed in sweeps:
        for one in parsed.model.status.nodes if parsed.model else ():
            if one.hardware != hardware if one.hardware and hardware else one.node != node:
                continue
            at = one.at or (parsed.model.status.start_time if parsed.model else None)
            verdict = Cell(one.verdict, VERDICTS[one.verdict]) if one.verdict else Cell("running", Tone.BUSY)
            name = Cell(parsed.name, href=cluster_link("healthsweeps", parsed.name))
            cells = (name, verdict, Cell(one.tier), Cell(ago(at, now)), Cell(findings(one)))
            found.append((at.timestamp() if at else float("inf"), Row(parsed.name, cells)))
    return [row for _, row in sorted(found, key=lambda pair: pair[0], reverse=True)]


def findings(one: NodeVerdict) -> str:
    """Return the measurements that decided a verdict, or the reason without measurements."""
    found = [
        f"{finding.name} {figure(finding.value)} {finding.unit} against {figure(finding.reference)}"
        if finding.value is not None and finding.reference is not None
        else f"{finding.name}: {finding.message or finding.verdict}"
        for finding in one.evidence
    ]
    return "; ".join(found) or one.message or "-"


def _by_job(pods: Iterable[Pod]) -> Counter[tuple[str, str, str | None]]:
    """Return the number of pods of each job, by namespace, name and uid of the job. Label and owner of a pod
    must agree, because any user can set either.
    """
    return Counter((pod.namespace, pod.job, pod.view.owner_uid) for pod in pods)


def job_rows(pods: Iterable[Pod], known: Iterable[ParsedObject[TrainingJob]]) -> list[Row]:
    """Return the jobs with pods on the node as table rows."""
    count = _by_job(pods)
    found = []
    for parsed in sorted(known, key=lambda parsed: (parsed.namespace, parsed.name)):
        number, job = count[parsed.namespace, parsed.name, parsed.uid], parsed.model
        if number and job is not None:
            cells = (
                Cell(f"{parsed.namespace}/{parsed.name}", href=job_link(parsed.namespace, parsed.name)),
                Cell(jobs.phase_name(job), jobs.phase_tone(job)),
                Cell(str(number), order=float(number)),
                Cell(jobs.why(job)),
            )
            found.append(Row(f"{parsed.namespace}/{parsed.name}", cells))
    return found


def server_rows(pods: Iterable[Pod], known: Iterable[ParsedObject[ServingJob]]) -> list[Row]:
    """Return the ServingJobs with pods on the node as table rows."""
    count = _by_job(pods)
    found = []
    for parsed in sorted(known, key=lambda parsed: (parsed.namespace, parsed.name)):
        number, job = count[parsed.namespace, parsed.name, parsed.uid], parsed.model
        if number and job is not None:
            state, name = serving_jobs.state(job), f"{parsed.namespace}/{parsed.name}"
            cells = (
                Cell(name, href=serving_link(parsed.namespace, parsed.name)),
                Cell(state, serving_jobs.TONES[state]),
                Cell(str(number), order=float(number)),
                Cell(serving_jobs.why(job)),
            )
            found.append(Row(f"serving/{name}", cells))
    return found
