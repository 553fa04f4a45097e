"""From nodes, jobs and what is stored to what a look decides about: whose hardware is where, under which
policy.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from convoy_controllers.nodehealth.binding import chosen
from convoy_controllers.nodehealth.following import of_nodes
from convoy_controllers.nodehealth.observed import (
    Facts,
    Fleet,
    Member,
    NodeFacts,
    Suspicion,
    SweepResult,
)
from convoy_controllers.nodehealth.pacing import JobPace, followed, paces, recovered
from convoy_crds.guardpolicy import Budgets, GuardPolicy
from convoy_crds.healthsweep import HealthSweep, Tier
from convoy_crds.nodehealth import NodeHealth, Verdict

_DEFAULT_RACK = Budgets().rack_label


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A Node, and what its agent has told of it."""

    name: str
    uid: str
    created: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    machine_id: str = ""
    boot_id: str = ""
    driver: str = ""
    accelerators: tuple[str, ...] | None = None
    """UUIDs; None until its agent has told of them."""
    heard: bool = False
    """Whether its agent is heard."""
    schedulable: bool = True


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A job that has pods on nodes."""

    name: str
    """namespace/name."""
    nodes: Mapping[str, int]
    """By node, its pods there that would have to leave."""
    gpus: int = 1
    """Ranks, on all nodes: each has an accelerator, or a share of the processor."""
    moves: bool = True
    """Whether it may be moved, and would go on from what it has saved."""
    saved: datetime | None = None
    """When what it would go on from was saved. The node that it leaves is there still, with its memory."""
    formed: datetime | None = None
    """When what it does now began."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All hardware, sorted by who decides about it."""

    fleets: tuple[Fleet, ...] = ()
    alone: tuple[Member, ...] = ()
    """Of no policy."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Hardware that is nowhere stored yet, by name, and the node that has it."""
    policies: Mapping[str, GuardPolicy | None] = field(default_factory=dict)
    """By node, whichever policy is for it."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    """By node, the NodeHealth that speaks for it."""
    strangers: Mapping[str, Facts] = field(default_factory=dict)
    """By node, what is so of those that no NodeHealth speaks for."""
    named: Mapping[str, str] = field(default_factory=dict)
    """By node, the name of its hardware, as far as that is known, stored or not."""

    @property
    def all_facts(self) -> list[Facts]:
        """Of all hardware that is stored."""
        return [member.facts for fleet in self.fleets for member in fleet.members] + [
            member.facts for member in self.alone
        ]


def hardware_name(node: SeenNode) -> str:
    """The name of a node's hardware: a hash of its accelerators' UUIDs, else its machine id; empty while it
    is not known. Names of nodes come and go, and machine ids with reinstalled systems; accelerators stay.
    """
    if node.accelerators is None:
        return ""
    if not node.accelerators:
        return node.machine_id.lower()
    return hashlib.sha256("\n".join(sorted(node.accelerators)).encode()).hexdigest()[:32]


def see(
    policies: Iterable[GuardPolicy],
    healths: Iterable[NodeHealth],
    nodes: Sequence[SeenNode],
    jobs: Sequence[SeenJob],
    suspicions: Mapping[str, tuple[Suspicion, ...]],
    noticed: Mapping[str, tuple[Suspicion, ...]],
    swept: Mapping[str, Sequence[SweepResult]],
    pace: Mapping[str, JobPace],
    now: datetime,
) -> Seen:
    """`suspicions` and `noticed`: by node; `swept`: by hardware, the oldest first; `pace`: by job.
    Hardware whose node is away stays with the policy that it had.
    """
    in_order = sorted(policies, key=lambda policy: (-policy.spec.priority, policy.metadata.name))
    stored = {health.metadata.name: health for health in healths}
    suspicions = of_nodes(suspicions, stored.values(), pace, now)
    by_uid = {health.status.node_ref.uid: name for name, health in stored.items()}
    of_node = {node.name: _policy(in_order, node.labels) for node in nodes}
    jobs_on = _by_node(jobs)
    claims: dict[str, list[tuple[SeenNode, NodeFacts]]] = defaultdict(list)
    for node in nodes:
        # What its agent has not told of since this operator began is as it was.
        if name := hardware_name(node) or by_uid.get(node.uid, ""):
            claims[name].append((node, _node_facts(node, of_node[node.name], jobs_on.get(node.name, ()))))
    members: dict[str, list[Member]] = defaultdict(list)
    alone, hardware = [], {}
    for name, health in stored.items():
        found = claims.get(name, [])
        facts = chosen(health.status.node_ref, [one for _, one in found])
        policy = of_node[facts.name] if facts is not None else _named(in_order, health.status.policy)
        if facts is not None:
            hardware[facts.name] = name
        held = suspicions.get(facts.name, ()) if facts is not None else ()
        there = jobs_on.get(facts.name, ()) if facts is not None else ()
        result = _result(health, swept.get(name, ()))
        hints = noticed.get(facts.name, ()) if facts is not None else ()
        so = replace(_facts(facts, held, there, now), sweep=result, noticed=hints)
        last = health.status.actions[-1] if health.status.actions else None
        left = health.status.node_ref.name
        so = replace(
            so,
            paces=tuple(paces(so, pace)),
            recovered=recovered(last, left, pace),
            followed=followed(last, left, pace),
        )
        member = Member(health, so)
        if policy is None:
            alone.append(member)
        else:
            members[policy.metadata.name].append(member)
    return Seen(
        fleets=tuple(Fleet(policy, tuple(members[policy.metadata.name])) for policy in in_order),
        alone=tuple(alone),
        unknown={
            name: max(found, key=lambda one: one[0].created)[0].name
            for name, found in claims.items()
            if name not in stored
        },
        policies=of_node,
        hardware=hardware,
        strangers={
            node.name: Facts(node=_node_facts(node, of_node[node.name], jobs_on.get(node.name, ())))
            for node in nodes
            if node.name not in hardware
        },
        named={node.name: name for name, found in claims.items() for node, _ in found},
    )


def results(sweeps: Iterable[HealthSweep]) -> dict[str, list[SweepResult]]:
    """All verdicts of sweeps, by hardware, the oldest first. An inventory alone makes nobody pass."""
    found: dict[str, list[SweepResult]] = defaultdict(list)
    for sweep in sweeps:
        for one in sweep.status.nodes:
            shallow = one.verdict is Verdict.PASS and one.tier is Tier.L0
            if one.verdict is not None and one.at is not None and one.hardware and not shallow:
                name = sweep.metadata.name
                said = SweepResult(
                    name, one.at, one.verdict, one.message, one.provenance, sweep.status.start_time
                )
                found[one.hardware].append(said)
    return {hardware: sorted(several, key=lambda one: one.at) for hardware, several in found.items()}


def _result(health: NodeHealth, said: Sequence[SweepResult]) -> SweepResult | None:
    """Of the sweep that is waited for; else the last verdict, whoever has asked for it."""
    ref = health.status.sweep
    awaited = next((one for one in said if ref is not None and one.name == ref.name), None)
    verdicts = [one for one in said if one.verdict is not Verdict.INCONCLUSIVE]
    return awaited or (verdicts[-1] if verdicts else None)


def _policy(in_order: Sequence[GuardPolicy], labels: Mapping[str, str]) -> GuardPolicy | None:
    return next((policy for policy in in_order if policy.spec.selector.matches(labels)), None)


def _named(policies: Iterable[GuardPolicy], name: str) -> GuardPolicy | None:
    return next((policy for policy in policies if policy.metadata.name == name), None)


def _by_node(jobs: Iterable[SeenJob]) -> dict[str, list[SeenJob]]:
    found: dict[str, list[SeenJob]] = defaultdict(list)
    for job in jobs:
        for node in job.nodes:
            found[node].append(job)
    return found


def _node_facts(node: SeenNode, policy: GuardPolicy | None, jobs: Sequence[SeenJob]) -> NodeFacts:
    label = policy.spec.budgets.rack_label if policy is not None else _DEFAULT_RACK
    return NodeFacts(
        name=node.name,
        uid=node.uid,
        created=node.created,
        rack=node.labels.get(label, ""),
        driver=node.driver,
        boot_id=node.boot_id,
        telemetry=node.heard,
        schedulable=node.schedulable,
        pods=sum(job.nodes[node.name] for job in jobs),
        jobs=tuple(sorted(job.name for job in jobs)),
        gpus=max(1, sum(job.gpus for job in jobs)),
        stays=tuple(sorted(job.name for job in jobs if not job.moves)),
    )


def _facts(
    node: NodeFacts | None, suspicions: tuple[Suspicion, ...], jobs: Sequence[SeenJob], now: datetime
) -> Facts:
    times = [job.saved for job in jobs]
    saved = min((time for time in times if time is not None), default=None) if all(times) else None
    return Facts(
        node=node, suspicions=suspicions, saved=saved, unsaved=sum(_unsaved(job, now) for job in jobs)
    )


def _unsaved(job: SeenJob, now: datetime) -> float:
    """GPU-seconds since a job last saved its state, or since it formed."""
    since = max((time for time in (job.saved, job.formed) if time is not None), default=now)
    return max(0.0, (now - since).total_seconds()) * job.gpus
