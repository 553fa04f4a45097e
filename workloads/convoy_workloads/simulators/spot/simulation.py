"""Runs the trace against a policy in virtual time and computes the figures."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from convoy_controllers.spotpool.capacity import SpotNodeCounts, choose
from convoy_crds.perturbations import PerturbationKind
from convoy_crds.spotpool import Fallback
from convoy_crds.spotpool_status import MAX_NODES, CapacityMode, SpotPoolStatus
from convoy_workloads.simulators.perturbation import Perturbation, magnitude_at
from convoy_workloads.simulators.simulator import Outcome
from convoy_workloads.simulators.spot import capacity
from convoy_workloads.simulators.spot.fleet import Fleet
from convoy_workloads.simulators.spot.params import Params, Policy
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLabel
from convoy_workloads.spot.trace import SECONDS_PER_HOUR, Change, SpotTrace

TICK_SECONDS = 30.0
"""Time between two decisions while something may change without an event."""
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_DIGITS = 6
_SELECTOR = {"matchLabels": {"capacity": "simulated"}}


@dataclass(frozen=True, slots=True)
class Run:
    """The course and the result of one run."""

    figures: dict[str, float]
    workers: list[tuple[float, int]]
    """Hours, and the number of workers on nodes from then on."""
    achieved: float | None = None


def simulate(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    """Simulate the workers once and return their figures."""
    found = capacity.trace(params, seed, perturbation)
    run = run_trace(params, found, perturbation)
    return Outcome(run.figures, (), run.achieved)


def run_trace(params: Params, trace: SpotTrace, perturbation: Perturbation | None = None) -> Run:
    """Run the workers on the nodes of a trace."""
    loop = _Loop(params, trace, perturbation)
    loop.run()
    return Run(loop.figures(), loop.workers, _achieved(trace, perturbation))


@dataclass(order=True, slots=True)
class _Event:
    at: float
    order: int
    change: Change | None = field(default=None, compare=False)
    booted: tuple[str, float] | None = field(default=None, compare=False)


class _Loop:
    def __init__(self, params: Params, trace: SpotTrace, perturbation: Perturbation | None) -> None:
        self._params = params
        self._trace = trace
        self._perturbation = perturbation
        self._fleet = Fleet(params)
        self._events: list[_Event] = []
        self._order = 0
        self._tick_at: float | None = None
        self._fallback = Fallback.model_validate({**params.fallback.to_dict(), "onDemandSelector": _SELECTOR})
        self._status = SpotPoolStatus()
        self._losses = 0
        self._switches = 0
        self.workers: list[tuple[float, int]] = []

    def run(self) -> None:
        """Run to the end of the trace."""
        self._push(_Event(0.0, 0))
        if self._params.policy is not Policy.ON_DEMAND:
            for change in self._trace.changes():
                self._push(_Event(change.at, 0, change))
        while self._events:
            event = heapq.heappop(self._events)
            if event.at > self._trace.seconds:
                break
            self._apply(event)
            self._decide(event.at)

    def _push(self, event: _Event) -> None:
        self._order += 1
        event.order = self._order
        heapq.heappush(self._events, event)

    def _apply(self, event: _Event) -> None:
        if event.change is not None:
            for name in event.change.vanished:
                self._fleet.lose(name, event.at, event.change.notice_seconds)
            self._count_losses(len(event.change.vanished), event.at)
            for name in event.change.appeared:
                self._fleet.start_spot(name, event.at)
                self._push(_Event(event.at + self._boot_seconds(event.at), 0, booted=(name, event.at)))
        if event.booted is not None:
            name, started = event.booted
            self._fleet.boot(name, started, event.at)
        if self._tick_at is not None and self._tick_at <= event.at:
            self._tick_at = None

    def _decide(self, at: float) -> None:
        """Place the workers that have no node, and move workers back to spot nodes."""
        fleet = self._fleet
        if self._uses_spot(at):
            fleet.place_on_spot(fleet.waiting, at)
            fleet.return_to_spot(fleet.free, at)
        elif fleet.waiting:
            fleet.place_on_demand(fleet.waiting, at, at + self._boot_seconds(at))
        count = fleet.spot_workers + len(fleet.on_demand)
        if not self.workers or self.workers[-1][1] != count:
            self.workers.append((at / SECONDS_PER_HOUR, count))

    def _uses_spot(self, at: float) -> bool:
        """Return True if workers are placed on spot nodes, by the policy."""
        if self._params.policy is not Policy.POOL:
            return self._params.policy is Policy.SPOT_ONLY
        fleet, wanted = self._fleet, self._params.nodes
        counts = SpotNodeCounts(fleet.ready, wanted, room=fleet.free > 0)
        choice = choose(self._status, self._fallback, counts, wanted, _moment(at))
        if choice.mode is not self._status.mode:
            self._switches += 1
        self._status.mode, self._status.mode_since = choice.mode, choice.since
        self._status.internal.short_since = choice.short_since
        waits = choice.mode is CapacityMode.ON_DEMAND or choice.short_since is not None
        if waits and self._tick_at is None:
            self._tick_at = at + TICK_SECONDS
            self._push(_Event(self._tick_at, 0))
        return choice.spot

    def _count_losses(self, count: int, at: float) -> None:
        self._losses += count
        if count and self._params.policy is Policy.POOL:
            kept = [*self._status.internal.interruptions, *[_moment(at)] * count]
            self._status.internal.interruptions = kept[-MAX_NODES - 1 :]

    def _boot_seconds(self, at: float) -> float:
        extra = magnitude_at(self._perturbation, PerturbationKind.BOOT_DELAY, at, 0.0)
        return self._params.boot_seconds + extra

    def figures(self) -> dict[str, float]:
        """Return the figures of the whole run."""
        end = self._trace.seconds
        charges = self._fleet.ledger.charges(end)
        hours = dict.fromkeys(NodeLabel, 0.0)
        for one in charges:
            hours[one.label] += one.seconds / SECONDS_PER_HOUR
        cost, useful = sum(one.cost for one in charges), hours[NodeLabel.ROLLOUT]
        on_demand = sum(one.seconds for one in charges if one.capacity is Capacity.ON_DEMAND)
        wanted = self._params.nodes * end / SECONDS_PER_HOUR
        offered = self._trace.figures()
        figures = {
            "cost": cost,
            # Without any useful work the whole cost stands for one node-hour.
            "costPerUsefulNodeHour": cost / useful if useful else cost,
            "usefulShare": useful / wanted,
            "usefulNodeHours": useful,
            "lostNodeHours": hours[NodeLabel.LOST],
            "idleNodeHours": hours[NodeLabel.IDLE],
            "bootNodeHours": hours[NodeLabel.BOOT],
            "onDemandShare": on_demand / SECONDS_PER_HOUR / sum(hours.values())
            if any(hours.values())
            else 0.0,
            "losses": float(self._losses),
            "switches": float(self._switches),
            "availability": offered.availability,
            "offeredLossesPerNodeHour": offered.losses_per_node_hour,
            "residual": self._fleet.ledger.residual(end),
        }
        return {name: round(value, _DIGITS) + 0.0 for name, value in figures.items()}  # no -0.0


def _achieved(trace: SpotTrace, perturbation: Perturbation | None) -> float | None:
    if perturbation is None:
        return None
    if perturbation.kind is PerturbationKind.SPOT_TRACE:
        return capacity.achieved(trace, perturbation)
    return perturbation.magnitude if perturbation.start < trace.seconds else None


def _moment(at: float) -> datetime:
    return _EPOCH + timedelta(seconds=at)
