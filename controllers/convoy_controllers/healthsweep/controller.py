"""The controller of HealthSweeps. It orders tests from agents, judges the results, and stores the values
that hardware classes learn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from convoy_controllers.cached import CachedObject, Node
from convoy_controllers.children import Event, PatchStatus
from convoy_controllers.commands import CancelSweep
from convoy_controllers.controller import Controller, Makes, Pace, all_agents, every
from convoy_controllers.healthsweep.observed import ReportLookup, SweepNode
from convoy_controllers.healthsweep.plan import Step, advance
from convoy_controllers.keys import Key
from convoy_controllers.nodehealth import sources
from convoy_controllers.nodehealth.observe import in_order, policy_for
from convoy_controllers.plan import Plan
from convoy_controllers.reader import Reader
from convoy_controllers.resources import HARDWARE_CLASSES, NODES
from convoy_crds import guardpolicy, hardwareclass
from convoy_crds.guardpolicy import Budgets, GuardPolicy
from convoy_crds.hardwareclass import HardwareClassStatus
from convoy_crds.healthsweep import KIND, HealthSweep, HealthSweepStatus, SweepPhase
from convoy_crds.nodehealth import Verdict
from convoy_crds.reasons.catalogue import Reasons

BUSY_SECONDS = 2.0
"""Seconds between two reconciles of a running sweep. They are needed because no event shows that a node is
idle.
"""
_RACK = Budgets().rack_label


@dataclass(frozen=True, slots=True)
class Observed:
    """A sweep, its nodes, and their reports."""

    sweep: HealthSweep
    reports: ReportLookup
    nodes: Sequence[SweepNode] = ()
    """The nodes of the sweep, or all nodes until the selector has been applied."""
    classes: Mapping[str, HardwareClassStatus] = field(default_factory=dict)
    """Status of each HardwareClass by name."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """resourceVersion of each HardwareClass by name, to detect that another sweep has updated the class."""


def observe(reader: Reader, key: Key) -> Observed | None:
    """Return the sweep; None if it does not exist. Its nodes and the classes are included only while the
    sweep runs.
    """
    sweep = reader.get(KIND, key.name)
    if sweep is None:
        return None
    if sweep.status.completion_time is not None:
        return Observed(sweep, reader.hub.sweeps)
    policies = in_order(reader.all(guardpolicy.KIND))
    return Observed(
        sweep=sweep,
        reports=reader.hub.sweeps,
        nodes=tuple(_node(reader, node, policies) for node in _concerned(reader, sweep)),
        classes={one.metadata.name: one.status for one in reader.all(hardwareclass.KIND)},
        versions={one.name: str(one.version) for one in reader.live(hardwareclass.KIND)},
    )


def plan(observed: Observed, now: datetime) -> Plan:
    """Store the classes' values first, then the verdicts. Then send orders to agents, and cancel unneeded
    orders.
    """
    sweep = observed.sweep
    step = advance(sweep, observed.nodes, observed.reports, observed.classes, now)
    if step.delete:
        return Plan(delete_parent=True)
    status = step.status
    return Plan(
        status=status.to_dict() if status is not None else None,
        children=tuple(
            PatchStatus(HARDWARE_CLASSES, name, learned.to_dict(), observed.versions.get(name, ""))
            for name, learned in step.classes.items()
        ),
        events=tuple(_events(sweep.status, status)) if status is not None else (),
        commands=(*(CancelSweep(one.node, one.name) for one in step.cancels), *step.orders),
        requeue_after=_wait(sweep, step, now),
    )


def _wait(sweep: HealthSweep, step: Step, now: datetime) -> float | None:
    if step.expires is not None:
        return (step.expires - now).total_seconds()
    ended = step.status is not None and step.status.completion_time is not None
    return None if ended else BUSY_SECONDS


def _events(before: HealthSweepStatus, after: HealthSweepStatus) -> Iterable[Event]:
    judged = {one.node for one in before.nodes if one.verdict is not None}
    for one in after.nodes:
        if one.verdict is Verdict.FAIL and one.node not in judged:
            yield Event(Reasons.NODE_FAILED, f"{one.node}: {one.message}")
    if after.phase is not before.phase and after.phase in (SweepPhase.COMPLETE, SweepPhase.FAILED):
        reason = Reasons.SWEPT if after.phase is SweepPhase.COMPLETE else Reasons.SWEEP_NOT_RUN
        yield Event(reason, after.message)


def _concerned(reader: Reader, sweep: HealthSweep) -> Iterable[Node]:
    """Return the nodes of a sweep, or all nodes until the selector has been applied."""
    started = sweep.status.start_time is not None
    names = [one.node for one in sweep.status.nodes] if started else sweep.spec.nodes
    if names is None:
        return reader.nodes()
    found = (reader.node(name) for name in sorted(set(names)))
    return [node for node in found if node is not None]


def _node(reader: Reader, node: Node, policies: Sequence[GuardPolicy]) -> SweepNode:
    policy = policy_for(policies, node.labels)
    rack = node.labels.get(policy.spec.budgets.rack_label, "") if policy is not None else ""
    return SweepNode(
        name=node.name,
        hardware=reader.bindings().name_of(node.name),
        rack=rack or node.labels.get(_RACK, ""),
        labels=node.labels,
        address=reader.hub.peer_address(node.name),
        agent_connected=reader.hub.agent_connected(node.name),
        pods=len(reader.members_on(node.name)),
    )


def _over(sweep: CachedObject) -> bool:
    return bool(sweep.status.get("completionTime"))


CONTROLLER = Controller(
    KIND,
    summary="Orders tests from nodes, judges the results, and stores the values that hardware classes learn.",
    observe=observe,
    plan=plan,
    validity=None,
    makes=(Makes(HARDWARE_CLASSES, (PatchStatus,), owned=False),),
    watches=(every(KIND, NODES, sources.concern, own=False),),
    waits_for=all_agents,
    over=_over,
    deletes=True,
    pace=Pace(min_seconds=0.5, max_seconds=BUSY_SECONDS),
    in_thread=True,
    reflector=True,
)
