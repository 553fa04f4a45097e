"""Observations of hardware: its node, its policy, and the reports of jobs and sweeps about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from convoy_controllers.nodehealth.binding import Bindings, ReportedNode
from convoy_controllers.nodehealth.following import without_followers
from convoy_controllers.nodehealth.observed import (
    Fleet,
    HardwareFacts,
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
class PlacedJob:
    """A job with pods on one or more nodes."""

    name: str
    """Namespace and name of the job: `namespace/name`."""
    nodes: Mapping[str, int]
    """Number of the job's pods, by node."""
    gpus: int = 1
    """Number of the job's ranks on all nodes. Each rank has an accelerator or a share of the processor."""
    swappable: bool = True
    """True if the job permits a swap and would continue from a saved state."""
    saved: datetime | None = None
    """Time of the last saved state. States in node memory count too, because the node from which a job is
    swapped still exists.
    """
    formed: datetime | None = None
    """Time at which the job's current incarnation started."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Nodes, policies, NodeHealths and reports of the whole cluster. The facts about hardware are derived
    from them.
    """

    policies: Sequence[GuardPolicy]
    """Policies in order of precedence, as `in_order` sorts them."""
    healths: Mapping[str, NodeHealth]
    """Stored NodeHealths by name."""
    bindings: Bindings
    jobs: Mapping[str, Sequence[PlacedJob]] = field(default_factory=dict)
    """Jobs with pods on each node, by node."""
    suspicions: Mapping[str, tuple[Suspicion, ...]] = field(default_factory=dict)
    """Suspicions of jobs against each node, by node."""
    noticed: Mapping[str, tuple[Suspicion, ...]] = field(default_factory=dict)
    """Hints of jobs about each node, by node. The cause of a hint may be the node or something else."""
    swept: Mapping[str, Sequence[SweepResult]] = field(default_factory=dict)
    """Verdicts of sweeps on each hardware, oldest first, by hardware name."""
    paces: Mapping[str, JobPace] = field(default_factory=dict)
    """Current speed of each job."""

    def policy_of(self, name: str) -> GuardPolicy | None:
        """Return the policy for hardware with a NodeHealth. Hardware without a node keeps its policy."""
        node = self.bindings.chosen.get(name)
        if node is not None:
            return policy_for(self.policies, node.labels)
        known = self.healths[name].status.policy
        return next((policy for policy in self.policies if policy.metadata.name == known), None)


def in_order(policies: Iterable[GuardPolicy]) -> list[GuardPolicy]:
    """Return the policies sorted by precedence. The first policy whose selector matches a node applies to
    the node.
    """
    return sorted(policies, key=lambda policy: (-policy.spec.priority, policy.metadata.name))


def policy_for(policies: Sequence[GuardPolicy], labels: Mapping[str, str]) -> GuardPolicy | None:
    """Return the first of the sorted policies that matches a node's labels."""
    return next((policy for policy in policies if policy.spec.selector.matches(labels)), None)


def fleet(policy: GuardPolicy, hardware: Hardware, now: datetime) -> Fleet:
    """Return a policy, all hardware under this policy that has a NodeHealth, and the current facts about
    this hardware.
    """
    held, noticed = (
        without_followers(one, hardware.healths.values(), hardware.paces, now)
        for one in (hardware.suspicions, hardware.noticed)
    )
    seen = replace(hardware, suspicions=held, noticed=noticed)
    members = [
        member(name, policy, seen, now)
        for name in hardware.healths
        if (own := hardware.policy_of(name)) is not None and own.metadata.name == policy.metadata.name
    ]
    return Fleet(policy, tuple(members))


def unknown(policy: GuardPolicy, hardware: Hardware) -> dict[str, str]:
    """Return the hardware without a NodeHealth on a policy's nodes. Each hardware name maps to its youngest
    node.
    """
    found = {}
    for name, nodes in hardware.bindings.claims.items():
        youngest = max(nodes, key=lambda node: node.created)
        own = policy_for(hardware.policies, youngest.labels)
        if name not in hardware.healths and own is not None and own.metadata.name == policy.metadata.name:
            found[name] = youngest.name
    return found


def member(name: str, policy: GuardPolicy | None, hardware: Hardware, now: datetime) -> Member:
    """Return one piece of hardware that has a NodeHealth, with the current facts about it."""
    health, node = hardware.healths[name], hardware.bindings.chosen.get(name)
    there = hardware.jobs.get(node.name, ()) if node is not None else ()
    held = hardware.suspicions.get(node.name, ()) if node is not None else ()
    facts = replace(
        _facts(node_facts(node, policy, there) if node is not None else None, held, there, now),
        sweep=_result(health, hardware.swept.get(name, ())),
        noticed=hardware.noticed.get(node.name, ()) if node is not None else (),
    )
    last = health.status.actions[-1] if health.status.actions else None
    left = health.status.node_ref.name
    facts = replace(
        facts,
        paces=tuple(paces(facts, hardware.paces)),
        recovered=recovered(last, left, hardware.paces),
        followed=followed(last, left, hardware.paces),
    )
    return Member(health, facts)


def results(sweeps: Iterable[HealthSweep], hardware: str = "") -> dict[str, list[SweepResult]]:
    """Return the verdicts of sweeps by hardware, oldest first. A pass of the inventory alone does not
    count.

    If `hardware` is not empty, only verdicts on that hardware are returned.
    """
    found: dict[str, list[SweepResult]] = defaultdict(list)
    for sweep in sweeps:
        for one in sweep.status.nodes:
            if hardware and one.hardware != hardware:
                continue
            shallow = one.verdict is Verdict.PASS and one.tier is Tier.L0
            if one.verdict is not None and one.at is not None and one.hardware and not shallow:
                name = sweep.metadata.name
                results_ = SweepResult(
                    name, one.at, one.verdict, one.message, one.provenance, sweep.status.start_time
                )
                found[one.hardware].append(results_)
    return {hardware: sorted(several, key=lambda one: one.at) for hardware, several in found.items()}


def _result(health: NodeHealth, results_: Sequence[SweepResult]) -> SweepResult | None:
    """Return the verdict of the awaited sweep, or else the last conclusive verdict of any sweep."""
    ref = health.status.sweep
    awaited = next((one for one in results_ if ref is not None and one.name == ref.name), None)
    verdicts = [one for one in results_ if one.verdict is not Verdict.INCONCLUSIVE]
    return awaited or (verdicts[-1] if verdicts else None)


def by_node(jobs: Iterable[PlacedJob]) -> dict[str, list[PlacedJob]]:
    """Return the jobs by node. A job is listed at every node on which it has pods."""
    found: dict[str, list[PlacedJob]] = defaultdict(list)
    for job in jobs:
        for node in job.nodes:
            found[node].append(job)
    return found


def node_facts(node: ReportedNode, policy: GuardPolicy | None, jobs: Sequence[PlacedJob]) -> NodeFacts:
    """Return the facts about a node and the jobs on it."""
    label = policy.spec.budgets.rack_label if policy is not None else _DEFAULT_RACK
    return NodeFacts(
        name=node.name,
        uid=node.uid,
        created=node.created,
        rack=node.labels.get(label, ""),
        driver=node.driver,
        boot_id=node.boot_id,
        agent_connected=node.agent_connected,
        schedulable=node.schedulable,
        pods=sum(job.nodes[node.name] for job in jobs),
        jobs=tuple(sorted(job.name for job in jobs)),
        gpus=max(1, sum(job.gpus for job in jobs)),
        unswappable=tuple(sorted(job.name for job in jobs if not job.swappable)),
    )


def _facts(
    node: NodeFacts | None, suspicions: tuple[Suspicion, ...], jobs: Sequence[PlacedJob], now: datetime
) -> HardwareFacts:
    times = [job.saved for job in jobs]
    saved = min((time for time in times if time is not None), default=None) if all(times) else None
    return HardwareFacts(
        node=node, suspicions=suspicions, saved=saved, unsaved=sum(_unsaved(job, now) for job in jobs)
    )


def _unsaved(job: PlacedJob, now: datetime) -> float:
    """Return the GPU-seconds since a job last saved its state, or since its incarnation started if it has
    not saved since then.
    """
    since = max((time for time in (job.saved, job.formed) if time is not None), default=now)
    return max(0.0, (now - since).total_seconds()) * job.gpus
