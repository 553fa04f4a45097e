"""A simulated fleet. Its hardware becomes slow, is suspected (rightly or not), swept, repaired and renamed.

The operator may crash after any write and keeps nothing in memory: each reconcile starts from the stored
JSON. This module checks every write against the guarantees. It counts nodes itself, without the operator's
code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any

from convoy_controllers.nodehealth import fleet as fleets
from convoy_controllers.nodehealth import wanted
from convoy_controllers.nodehealth.observed import (
    Fleet,
    HardwareFacts,
    Member,
    NodeFacts,
    Suspicion,
    SweepResult,
)
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.violation import InvariantViolation
from convoy_crds.guardpolicy import BreakerState, GuardPolicy
from convoy_crds.meta import seconds
from convoy_crds.nodehealth import EvidenceKind, NodeHealth, NodeHealthStatus, State, Verdict
from convoy_crds.terms import TAINTS

# Parsed models are cached, because no code changes them in place.
_health = lru_cache(4096)(NodeHealth.model_validate_json)
_policy = lru_cache(256)(GuardPolicy.model_validate_json)
OUT = (State.QUARANTINED, State.DRAINING, State.REPAIRING, State.REQUALIFYING)
HELD = (State.DRAINING, State.REPAIRING)
_GPUS = 8


class OperatorCrash(Exception):
    """Raised when the simulated operator crashes."""


@dataclass
class Hardware:
    """One machine, with its true state."""

    name: str
    node: str
    uid: str
    rack: str
    driver: str = "570"
    created: datetime | None = None
    boot: int = 0
    present: bool = True
    agent_connected: bool = True
    job: str = ""
    accused_since: datetime | None = None
    """Time since which the straggler detector accuses the machine, rightly or not; None if it does not."""
    bad: bool = False
    """True if the machine fails every sweep until it is repaired."""
    blocked: bool = False
    """True if a PodDisruptionBudget refuses the eviction of the machine's pods."""
    inconclusive: bool = False
    """True if all sweeps of the machine are inconclusive."""
    repaired: datetime | None = None
    recovered: float | None = None
    taints: list[dict[str, Any]] = field(default_factory=list)
    cordoned: bool = False


class SimulatedFleet:
    """The stored objects, the hardware, and an operator."""

    def __init__(self, policy: dict[str, Any], count: int, racks: int = 4, seed: int = 0) -> None:
        self.kernel = Kernel(seed)
        born = self.kernel.time
        spec = {"sweeps": {"timePercent": 0}, **policy}
        body = {"metadata": {"name": "p", "creationTimestamp": _text(born)}, "spec": spec}
        self.policy = json.dumps(GuardPolicy.model_validate(body).to_dict())
        self.hardware = {
            f"hw{i}": Hardware(f"hw{i}", f"n{i}", f"u{i}", f"r{i % racks}", created=born - timedelta(days=1))
            for i in range(count)
        }
        self.stored: dict[str, str] = {
            name: json.dumps({"metadata": {"name": name}}) for name in self.hardware
        }
        self.sweeps: dict[str, SweepResult | None] = {}
        self.drains: list[tuple[datetime, str, tuple[str, ...]]] = []
        """Start time, rack and jobs of every drain."""
        self.evicted = 0
        self.renamed = 0
        self._writes_left: int | None = None
        self._repairing: set[tuple[str, str]] = set()
        self._leaving: set[str] = set()

    def health(self, name: str) -> NodeHealth:
        """Return a NodeHealth as it is stored."""
        return _health(self.stored[name])

    def state(self, name: str) -> State:
        """Return the stored state of a machine."""
        return self.health(name).status.state

    def states(self) -> list[State]:
        """Return the stored states of all machines."""
        return [self.state(name) for name in self.stored]

    def guard_policy(self) -> GuardPolicy:
        """Return the GuardPolicy as it is stored."""
        return _policy(self.policy)

    def edit_spec(self, name: str, **spec: Any) -> None:
        """Change the spec of a NodeHealth as a user does."""
        body = json.loads(self.stored[name])
        body["spec"] = {key: value for key, value in {**body.get("spec", {}), **spec}.items() if value}
        self.stored[name] = json.dumps(NodeHealth.model_validate(body).to_dict())

    def configure(self, **spec: Any) -> None:
        """Change the GuardPolicy as a user does."""
        body = json.loads(self.policy)
        body["spec"] |= spec
        self.policy = json.dumps(GuardPolicy.model_validate(body).to_dict())

    def rename(self, name: str, rack: str | None = None) -> None:
        """Provision a machine again, as another node with another name."""
        one = self.hardware[name]
        self.renamed += 1
        one.node, one.uid = f"n{name}-{self.renamed}", f"u{name}-{self.renamed}"
        one.rack, one.taints, one.boot = rack or one.rack, [], one.boot + 1
        one.created, one.cordoned, one.job = self.kernel.time, False, ""

    def run(self, seconds: float, every: float = 15.0) -> None:
        """Advance the virtual time by `seconds`, with a reconcile every `every` seconds."""
        end = self.kernel.now + seconds
        while self.kernel.now < end:
            self.kernel.run(min(end, self.kernel.now + every))
            self.reconcile()

    def reconcile(self, crash_after: int | None = None) -> bool:
        """Run one reconcile and the actions that follow from it.

        With `crash_after`, the operator crashes after so many writes. Return False if it crashed.
        """
        self._writes_left = crash_after
        try:
            self._decide_states()
            self._taint_nodes()
            self._act_on_states()
        except OperatorCrash:
            return False
        finally:
            self._writes_left = None
        if crash_after is None:
            self.check_nodes()
        return True

    def facts(self, name: str) -> HardwareFacts:
        """Return what the operator can observe about a machine at present."""
        one, now = self.hardware[name], self.kernel.time
        if not one.present:
            return HardwareFacts(repaired=one.repaired)
        jobs = (one.job,) if one.job else ()
        node = NodeFacts(
            one.node, one.uid, one.created or now, one.rack, one.driver, f"b{one.boot}",
            one.agent_connected, not one.cordoned, len(jobs), jobs, _GPUS,
        )  # fmt: skip
        ref = self.health(name).status.sweep
        result = self.sweeps.get(ref.name) if ref is not None else None
        return HardwareFacts(node, self._suspicions(one, now), result, None, 0.0, one.repaired, one.recovered)

    def _suspicions(self, one: Hardware, now: datetime) -> tuple[Suspicion, ...]:
        if one.accused_since is None or not one.agent_connected or not one.job:
            return ()
        lost = (now - one.accused_since).total_seconds() * _GPUS / 4
        return (Suspicion(one.job, one.accused_since, now, 1.33, lost, "Compute"),)

    def _write(self) -> None:
        if self._writes_left is not None:
            if self._writes_left == 0:
                raise OperatorCrash
            self._writes_left -= 1

    def _decide_states(self) -> None:
        policy = self.guard_policy()
        members = tuple(Member(self.health(name), self.facts(name)) for name in sorted(self.stored))
        plan = fleets.decide(Fleet(policy, members), self.kernel.time)
        if plan.policy is not None:
            self._write()
            self.policy = json.dumps(policy.model_copy(update={"status": plan.policy}).to_dict())
        for name, status in plan.statuses.items():
            self._write()
            before = self.health(name)
            after = before.model_copy(update={"status": status})
            self.stored[name] = json.dumps(after.to_dict())
            self._check_write(name, before.status, self.health(name).status)

    def _taint_nodes(self) -> None:
        policy = self.guard_policy()
        for name, one in self.hardware.items():
            if one.present:
                marks = wanted.marks(self.health(name).status, policy)
                taints = wanted.retainted(one.taints, marks, self.kernel.time)
                if taints is not None:
                    self._write()
                    one.taints = [dict(taint) for taint in taints]

    def _act_on_states(self) -> None:
        """Start the sweeps, evictions and repairs that the stored states require. They end later."""
        policy = self.guard_policy()
        for name, one in self.hardware.items():
            status = self.health(name).status
            if status.sweep is not None and status.sweep.name not in self.sweeps:
                self._write()
                self.sweeps[status.sweep.name] = None
                self.kernel.after(
                    self.kernel.about(600), partial(self._finish_sweep, name, status.sweep.name)
                )
            if fleets.must_swap(status, policy) and one.job and name not in self._leaving:
                self._write()
                self._evict(name)
            since = status.repair.since
            if status.state is State.REPAIRING and since is not None:
                key = (name, since.isoformat())
                if key not in self._repairing:
                    self._repairing.add(key)
                    self.kernel.after(self.kernel.about(1200), partial(self._finish_repair, name))

    def _evict(self, name: str) -> None:
        if self.guard_policy().status.breaker.state is BreakerState.OPEN:
            raise InvariantViolation(f"pods of {name} were evicted while the breaker is open")
        self.evicted += 1
        if self.hardware[name].blocked:
            return
        self._leaving.add(name)

        def vacate() -> None:
            self._leaving.discard(name)
            self.hardware[name].job = ""

        self.kernel.after(30, vacate)

    def _finish_sweep(self, name: str, sweep: str) -> None:
        one = self.hardware[name]
        verdict = Verdict.INCONCLUSIVE if one.inconclusive else Verdict.FAIL if one.bad else Verdict.PASS
        self.sweeps[sweep] = SweepResult(sweep, self.kernel.time, verdict)

    def _finish_repair(self, name: str) -> None:
        one = self.hardware[name]
        one.bad, one.boot, one.repaired = False, one.boot + 1, self.kernel.time

    def _check_write(self, name: str, before: NodeHealthStatus, after: NodeHealthStatus) -> None:
        """Raise InvariantViolation if a status that is being written breaks a guarantee."""
        policy = self.guard_policy()
        rules, breaker = policy.spec.budgets, policy.status.breaker
        statuses = {other: self.health(other).status for other in self.stored}
        total = sum(1 for n, s in statuses.items() if self.hardware[n].present or s.state in OUT)
        drained = after.state is State.DRAINING and before.state is not State.DRAINING
        quarantined = after.state is State.QUARANTINED and before.state not in OUT
        if drained or quarantined:
            if breaker.state is BreakerState.OPEN:
                raise InvariantViolation(
                    f"{name} is {after.state} while the breaker is open: {breaker.message}"
                )
            swept = any(one.kind is EvidenceKind.SWEEP for one in after.evidence)
            if breaker.state is BreakerState.HALF_OPEN and not (swept and breaker.trial == name):
                raise InvariantViolation(
                    f"{name} is {after.state} but the half-open breaker tries {breaker.trial!r}"
                )
        if quarantined:
            out = sum(1 for status in statuses.values() if status.state in OUT)
            _check_limit("out of service", out, max(2, total * rules.quarantined_percent // 100))
        if drained:
            self._check_drain(policy, name, statuses, total)

    def _check_drain(
        self, policy: GuardPolicy, name: str, statuses: dict[str, NodeHealthStatus], total: int
    ) -> None:
        rules, now, one = policy.spec.budgets, self.kernel.time, self.hardware[name]
        held = [other for other, status in statuses.items() if status.state in HELD]
        _check_limit("drained or repaired", len(held), max(1, total * rules.pool_percent // 100))
        rack = statuses[name].node_ref.rack
        same = [other for other in held if statuses[other].actions[-1].rack == rack]
        _check_limit(f"of rack {rack}", len(same), rules.per_rack)
        jobs = (one.job,) if one.job else ()
        span = timedelta(seconds=seconds(rules.job_interval))
        for at, _, others in self.drains:
            if now - at < span and set(jobs) & set(others):
                raise InvariantViolation(f"{jobs} lost a second node within {span}")
        hour = sum(1 for at, _, _ in self.drains if now - at < timedelta(hours=1)) + 1
        _check_limit("drains in an hour", hour, max(1, total * rules.fleet_percent_per_hour // 100))
        self.drains.append((now, rack, jobs))

    def check_nodes(self) -> None:
        """Raise InvariantViolation unless each Node has exactly the taints that its state requires.

        Call it only after a reconcile that did not crash.
        """
        for name, one in self.hardware.items():
            if not one.present:
                continue
            status = self.health(name).status
            ours = {taint["key"].partition("/")[2] for taint in one.taints if taint["key"] in TAINTS}
            required = expected(status) if self.guard_policy().spec.mode == "Act" else set()
            if ours != required:
                raise InvariantViolation(
                    f"node {one.node} has the taints {ours}, but {status.state} requires {required}"
                )


def expected(status: NodeHealthStatus) -> set[str]:
    """Return the taints that a status requires. They are derived without the operator's code, so they can
    be compared with its results.
    """
    if status.state in (*OUT, State.CONDEMNED):
        return {"quarantined"}
    found = {"suspect"} if status.state is State.SUSPECT else set()
    tested = status.state in (State.GATED, State.SWEEPING) or status.sweep is not None
    return found | ({"unqualified"} if tested else set())


def _check_limit(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvariantViolation(f"{count} nodes {what}, but only {limit} are allowed")


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def foreign(taints: Iterable[dict[str, Any]]) -> list[str]:
    """Return the keys of those taints that are not Convoy's."""
    return [taint["key"] for taint in taints if taint["key"] not in TAINTS]
