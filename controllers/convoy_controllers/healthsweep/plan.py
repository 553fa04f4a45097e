"""The next step of one HealthSweep: its status, the orders to nodes, and the values that classes learn.

Between the start of a sweep and a node's verdict nothing is stored. Agents remember their results, so they
report them again after a restart of the operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from convoy_controllers.healthsweep import classes, pairing
from convoy_controllers.healthsweep.observed import Order, ReportLookup, SweepNode
from convoy_controllers.healthsweep.participant import Participant, follow, prefix, with_pairs
from convoy_crds.hardwareclass import HardwareClassStatus
from convoy_crds.healthsweep import (
    MOST_NODES,
    HealthSweep,
    HealthSweepStatus,
    NodeVerdict,
    SweepPhase,
    Tier,
)
from convoy_crds.meta import seconds
from convoy_crds.nodehealth import Verdict

FILL_SECONDS = 900.0
"""Seconds a finished node waits for peers of its class: twice the duration of the tests."""
LEAST_KEPT = timedelta(minutes=2)
"""Minimum time for which a finished sweep is kept, so that the NodeHealths of its nodes can read the
verdicts.
"""
MANY = 100
"""Number of nodes above which only failed nodes keep their findings. Otherwise the status would not fit
into one object.
"""
_FEW_FINDINGS = 2


@dataclass(frozen=True, slots=True)
class Step:
    """The changes that one reconcile of a sweep decides on, in order of execution."""

    classes: Mapping[str, HardwareClassStatus] = field(default_factory=dict)
    """Changed hardware classes, by name. Learning the same run twice changes nothing."""
    status: HealthSweepStatus | None = None
    """The new status; None if the stored status is up to date."""
    orders: tuple[Order, ...] = ()
    cancels: tuple[Order, ...] = ()
    delete: bool = False
    expires: datetime | None = None
    """Time at which a finished sweep is deleted."""


def advance(
    sweep: HealthSweep,
    nodes: Sequence[SweepNode],
    lookup: ReportLookup,
    known: Mapping[str, HardwareClassStatus],
    now: datetime,
) -> Step:
    """Return the next step of a sweep. `known`: all HardwareClasses by name."""
    status = sweep.status
    if status.completion_time is not None:
        kept = timedelta(seconds=sweep.spec.ttl_seconds_after_finished)
        expires = status.completion_time + max(kept, LEAST_KEPT)
        return Step(delete=now >= expires, expires=expires)
    if status.start_time is None:
        return Step(status=_started(sweep, nodes, now))
    left = seconds(sweep.spec.deadline) - (now - status.start_time).total_seconds()
    return _RunningSweep(sweep, left, known, now).step(nodes, lookup, status.start_time)


def _started(sweep: HealthSweep, nodes: Sequence[SweepNode], now: datetime) -> HealthSweepStatus:
    spec = sweep.spec
    if spec.nodes is not None:
        chosen = sorted(set(spec.nodes))
    else:
        chosen = sorted(one.name for one in nodes if spec.selector and spec.selector.matches(one.labels))
    update = {"observed_generation": sweep.metadata.generation or 0, "start_time": now}
    status = sweep.status.model_copy(update=update)
    if not chosen or len(chosen) > MOST_NODES:
        why = (
            f"{len(chosen)} nodes are selected; a HealthSweep takes at most {MOST_NODES}"
            if chosen
            else "no node is selected: check spec.nodes or spec.selector"
        )
        ended = {"phase": SweepPhase.FAILED, "completion_time": now, "message": why, "progress": "0/0"}
        return status.model_copy(update=ended)
    hardware = {one.name: one.hardware for one in nodes}
    found = [NodeVerdict(node=name, hardware=hardware.get(name, "")) for name in chosen]
    return _counted(status.model_copy(update={"phase": SweepPhase.RUNNING, "nodes": found}), now)


def _counted(status: HealthSweepStatus, now: datetime) -> HealthSweepStatus:
    """Return the status with the numbers of nodes that have a verdict and that failed. Once every node has
    a verdict, the sweep is complete.
    """
    counts = {verdict: sum(1 for one in status.nodes if one.verdict is verdict) for verdict in Verdict}
    done = sum(counts.values())
    words = ", ".join(f"{count} {verdict.lower()}" for verdict, count in counts.items() if count)
    update = {
        "desired": len(status.nodes),
        "done": done,
        "failed": counts[Verdict.FAIL],
        "progress": f"{done}/{len(status.nodes)}",
        "message": words or "no node has a verdict yet",
    }
    if done == len(status.nodes):
        update |= {"phase": SweepPhase.COMPLETE, "completion_time": now}
    return status.model_copy(update=update)


def _short(one: NodeVerdict) -> NodeVerdict:
    """Return a node's status entry, shortened because the sweep has more than MANY nodes."""
    evidence = one.evidence[:_FEW_FINDINGS] if one.verdict is Verdict.FAIL else []
    return one.model_copy(update={"evidence": evidence})


class _RunningSweep:
    """One reconcile of a running sweep. `left`: seconds until its deadline."""

    def __init__(
        self, sweep: HealthSweep, left: float, known: Mapping[str, HardwareClassStatus], now: datetime
    ) -> None:
        self._sweep = sweep
        self._left = left
        self._stored = known
        self._known = dict(known)
        self._now = now
        self._pairs: tuple[Order, ...] = ()
        self._bandwidths = sweep.status.pairs

    def step(self, nodes: Sequence[SweepNode], lookup: ReportLookup, began: datetime) -> Step:
        """Return the next step of the sweep."""
        seen, status = {one.name: one for one in nodes}, self._sweep.status
        everyone = [
            follow(one, seen.get(one.node), self._sweep, int(self._left), lookup, self._known)
            for one in status.nodes
            if one.verdict is None
        ]
        learned = self._learn(everyone, began)
        for one in everyone:
            if one.runs and one.seen is not None and not one.ended:
                known = self._known.get(one.hardware_class, HardwareClassStatus())
                one.judged = one.judge(one.seen, known, self._sweep)
        found = {one.node: one for one in status.nodes} | self._verdicts(everyone, lookup)
        listed = [_short(found[name]) if len(found) > MANY else found[name] for name in sorted(found)]
        update = {"nodes": listed, "pairs": self._bandwidths}
        after = _counted(status.model_copy(update=update), self._now)
        orders = [one.order for one in everyone if one.order is not None]
        decided = {name for name, one in found.items() if one.verdict is not None}
        return Step(
            classes=learned,
            status=after if after != status else None,
            orders=tuple(one for one in (*orders, *self._pairs) if one.node not in decided),
            cancels=tuple(one for one in orders if one.node in decided),
        )

    def _learn(self, everyone: Sequence[Participant], began: datetime) -> dict[str, HardwareClassStatus]:
        """Return the changed classes. Their metrics are frozen once `_filling` returns False."""
        touched: set[str] = set()
        for one in everyone:
            if (name := one.hardware_class) and one.seen is not None and one.seen.hardware:
                known = self._known.get(name, HardwareClassStatus())
                self._known[name] = classes.learned(known, one.seen.hardware, one.runs[0], began)
                touched.add(name)
        freeze = not self._filling(everyone)
        for name in touched:
            self._known[name] = classes.settled(self._known[name], freeze=freeze)
        return {name: self._known[name] for name in touched if self._known[name] != self._stored.get(name)}

    def _filling(self, everyone: Sequence[Participant]) -> bool:
        """Return True while the sweep waits for nodes that will measure further values for the classes."""
        began = self._sweep.status.start_time or self._now
        patient = self._left > 0 and (self._now - began).total_seconds() < FILL_SECONDS
        return patient and any(one.measuring for one in everyone)

    def _verdicts(self, everyone: Sequence[Participant], lookup: ReportLookup) -> dict[str, NodeVerdict]:
        """Return the status entries by node, each with a verdict or with what the node waits for."""
        filling = self._filling(everyone)
        found: dict[str, NodeVerdict] = {}
        through: list[Participant] = []
        for one in everyone:
            name = one.stored.node
            open_ = one.judged is None or bool(one.judged.again) or one.order is not None
            if one.ended:
                found[name] = one.inconclusive(one.ended, self._now)
            elif open_ and self._left <= 0:
                found[name] = one.inconclusive(f"the sweep's deadline passed: {one.words}", self._now)
            elif open_:
                found[name] = one.pending(one.words)
            elif filling and not self._referenced(one):
                found[name] = one.pending("waits for other nodes of its class to be measured")
            else:
                through.append(one)
        if Tier.L2 not in self._sweep.spec.tiers:
            return found | self._alone(through)
        if any(one.verdict is None for one in found.values()):
            return found | {
                one.stored.node: one.pending("waits for all nodes before the pair tests") for one in through
            }
        return found | self._judge_together(through, lookup)

    def _referenced(self, one: Participant) -> bool:
        known = self._known.get(one.hardware_class)
        return known is not None and known.referenced > 0

    def _alone(self, through: Sequence[Participant]) -> dict[str, NodeVerdict]:
        tier = max((tier for tier in self._sweep.spec.tiers if tier is not Tier.L2), default=Tier.L0)
        return {
            one.stored.node: one.decided(one.judged, tier, self._now)
            for one in through
            if one.judged is not None
        }

    def _judge_together(self, through: Sequence[Participant], lookup: ReportLookup) -> dict[str, NodeVerdict]:
        """Return the status entries of nodes that have finished their own tests, with the results of pair
        tests.
        """
        there = [one for one in through if one.joins_pairs]
        apart = self._alone([one for one in through if not one.joins_pairs])
        members = [one.seen for one in there if one.seen is not None]
        absent = {one.hardware for one in members if not one.agent_connected or one.pods or not one.address}
        pairs = pairing.replay_rounds(prefix(self._sweep), members, absent, lookup)
        if pairs.verdicts is None and self._left > 0:
            self._pairs = pairs.orders
            return apart | {one.stored.node: one.pending("pair tests are running") for one in there}
        self._bandwidths = list(pairs.bandwidths)
        verdicts = pairs.verdicts or {}
        return apart | {
            one.stored.node: one.decided(
                with_pairs(one.judged, verdicts.get(one.seen.hardware)), Tier.L2, self._now
            )
            for one in there
            if one.judged is not None and one.seen is not None
        }
