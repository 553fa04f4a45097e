"""A simulated fleet with one job and the whole guard.

Findings of the detector become evidence against nodes, and lead to sweeps, drains and repairs.
"""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from convoy_controllers.guard.suspicions import SuspicionRecord
from convoy_controllers.guard.sweep.verdict import Verdict as NodeVerdict
from convoy_controllers.guard.synthetic import Job
from convoy_controllers.nodehealth.observed import HardwareFacts, Suspicion, SweepResult
from convoy_controllers.nodehealth.record import IN_SERVICE
from convoy_controllers.simulate.fleet import Hardware, SimulatedFleet
from convoy_controllers.simulate.guard.hardware_faults import FleetFaults, HardwareFault
from convoy_controllers.simulate.guard.simulated_sweeps import Machine, SimulatedSweeps
from convoy_controllers.simulate.guard.trained_job import TrainedJob
from convoy_controllers.simulate.guard.window_delivery import DeliveryFaults
from convoy_crds.guardpolicy import BreakerState
from convoy_crds.nodehealth import NodeHealthStatus, State, Verdict

JOB = "ns/run_with_job"
PER_RACK = 4
POLICY: dict[str, Any] = {
    "mode": "Act",
    "drain": {"swapCost": "2m"},
    "sweeps": {"timePercent": 1},
    "repair": {"ladder": [{"action": "Reset", "owner": "agent", "timeout": "1h"}]},
}
"""GuardPolicy that swaps a pod off a node once the node has cost the job two minutes."""
SIXTEEN_NODES = Job(stages=2, replicas=16, per_node=2, seconds=20.0)
"""A job on 16 nodes. Each of its steps, and so each telemetry window, lasts about half a minute."""
_OUTCOME_WINDOWS = 12
"""Number of telemetry windows after a swap. The outcome of the swap is measured from these windows."""


@dataclass(frozen=True)
class Setup:
    """A job, a fleet, and the faults that the fleet's hardware will have."""

    faults: tuple[HardwareFault, ...] = ()
    job: Job = SIXTEEN_NODES
    spares: int = 8
    minutes: float = 44.0
    """Minutes for which the job trains."""
    hours: float = 30.0
    """Hours for which the simulation continues after the job."""
    policy: dict[str, Any] = field(default_factory=dict)
    delivery: DeliveryFaults = field(default_factory=DeliveryFaults)
    new_hardware: bool = False
    """True if all hardware is new and no job runs at the start."""
    operator_crashes: bool = False
    """True if the operator also crashes. Before half of the reconciles, chosen at random, an extra
    reconcile runs and crashes after 0 to 11 writes.
    """
    every: float = 60.0
    """Seconds between two reconciles."""

    @property
    def machines(self) -> int:
        """Number of machines in the fleet."""
        return self.job.size // self.job.per_node + self.spares


@dataclass
class _Swap:
    """A swap whose outcome is not measured yet."""

    hardware: str
    wall: float
    gain: float
    others: frozenset[str]
    """Other machines that were suspected at the same time. While the job runs on any of them, the outcome
    of the swap cannot be measured.
    """


class GuardedFleet(SimulatedFleet):
    """A fleet, a job on it, and the operator that guards both."""

    def __init__(self, setup: Setup, seed: int = 0) -> None:
        super().__init__({**POLICY, **setup.policy}, setup.machines, seed=seed)
        self.setup, self.faults = setup, FleetFaults(setup.faults)
        self.visited: dict[str, set[State]] = {name: set() for name in self.hardware}
        """All states that each machine has ever been in."""
        self.breakers: list[BreakerState] = [BreakerState.CLOSED]
        """States of the circuit breaker, oldest first."""
        self.drained: list[str] = []
        self.verdicts: dict[str, list[NodeVerdict]] = {}
        self._chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
        self._sweeps = SimulatedSweeps(seed, self._slow_racks)
        self._swaps: list[_Swap] = []
        for number, one in enumerate(self.hardware.values()):
            one.rack = f"r{number // PER_RACK}"
            one.created = self.kernel.time if setup.new_hardware else one.created
        self._seed, self._time_origin = seed, self.kernel.now
        self.training: TrainedJob | None = None
        if not setup.new_hardware:
            self.launch(list(range(setup.job.size // setup.job.per_node)))

    @property
    def minute(self) -> float:
        """Minutes since the start of the simulation."""
        return (self.kernel.now - self._time_origin) / 60

    def launch(self, nodes: list[int], seed: int | None = None) -> TrainedJob:
        """Start a job on these machines. Return it."""
        chance = self._seed if seed is None else seed
        one = TrainedJob(self.kernel, self.setup.job, nodes, self.faults, self.setup.delivery, chance)
        one.time_origin = self._time_origin
        self.training, one.on_step, self._swaps = one, lambda: self._stepped(one), []
        self._place(one)
        return one

    def finish(self) -> None:
        """End the job."""
        if self.training is not None:
            self.training.end()
        for one in self.hardware.values():
            one.job = ""

    def run_with_job(self, minutes: float) -> None:
        """Run the simulation for `minutes`, with the job."""
        self.run(minutes * 60, self.setup.every)

    def run_without_job(self, hours: float) -> None:
        """End the job and run the simulation for `hours`."""
        self.finish()
        self.run(min(hours, 3.0) * 3600, 600.0)
        self.run(max(0.0, hours - 3.0) * 3600, 3600.0)
        # Stop routine sweeps for the last hour, so that every healthy node can return to service.
        sweeps = self.guard_policy().spec.sweeps
        self.configure(sweeps={**(sweeps.to_dict() if sweeps is not None else {}), "timePercent": 0})
        self.run(3600, 600.0)

    def reconcile(self, crash_after: int | None = None) -> bool:
        """Run one reconcile as `SimulatedFleet.reconcile` does, and record the resulting states."""
        if self.setup.operator_crashes and crash_after is None and self._chance.random() < 0.5:
            super().reconcile(crash_after=self._chance.randrange(12))
        done = super().reconcile(crash_after)
        for name in self.stored:
            self.visited[name].add(self.state(name))
        breaker = self.guard_policy().status.breaker.state
        if breaker is not self.breakers[-1]:
            self.breakers.append(breaker)
        return done

    def facts(self, name: str) -> HardwareFacts:
        """Return what the operator observes about a machine. It includes the job's size and last
        checkpoint.
        """
        found = super().facts(name)
        if found.node is None or self.training is None or not self.hardware[name].job:
            return found
        node = replace(found.node, gpus=self.training.job.size)
        saved = datetime.fromtimestamp(self.training.saved, UTC)
        return replace(
            found, node=node, saved=saved, noticed=self._suspicion(self.training.noticed.get(name))
        )

    def machine(self, name: str) -> Machine:
        """Return a machine with its active faults, as input of the simulated sweep tests."""
        number = int(name.removeprefix("hw"))
        return Machine(number, self.hardware[name].rack, tuple(self.faults.of_node(number, self.minute)))

    def free(self, min_count: int = 1) -> list[int]:
        """Return the numbers of machines that can run pods.

        If fewer than `min_count` have no taint, machines with the taint effect PreferNoSchedule follow them.
        """
        by_taint = {effect: list[int]() for effect in ("", "PreferNoSchedule", "NoSchedule")}
        for one in self.idle():
            effects = [taint["effect"] for taint in self.hardware[one.name].taints]
            by_taint[min(effects, default="")].append(one.number)
        clean = by_taint[""]
        return clean if len(clean) >= min_count else clean + by_taint["PreferNoSchedule"]

    def idle(self) -> list[Machine]:
        """Return the machines in service on which no job runs."""
        return [
            self.machine(name)
            for name, one in self.hardware.items()
            if one.present and one.agent_connected and not one.job and self.state(name) in IN_SERVICE
        ]

    def sweep(self, name: str) -> NodeVerdict:
        """Run all tests of one machine, as a user may request. Return the verdict."""
        return self._sweeps.node(self.machine(name), self.idle())

    def pairs(self) -> tuple[NodeVerdict, ...]:
        """Run pair tests on all idle machines, as a user may request. Return the verdicts."""
        return self._sweeps.pairs(self.idle())

    def group_tests(self) -> tuple[NodeVerdict, ...]:
        """Run group tests on all idle machines. Return the verdicts."""
        return self._sweeps.group_tests(self.idle())

    def silence(self, number: int) -> None:
        """Disconnect the agent of machine `number`."""
        self.hardware[f"hw{number}"].agent_connected = False
        if self.training is not None:
            self.training.silent.add(number)

    def _suspicions(self, one: Hardware, now: datetime) -> tuple[Suspicion, ...]:
        if self.training is None or not one.agent_connected or not one.job:
            return ()
        return self._suspicion(self.training.held.get(one.name))

    def _suspicion(self, known: SuspicionRecord | None) -> tuple[Suspicion, ...]:
        if known is None or not known.lasting:
            return ()
        since, seen = (datetime.fromtimestamp(at, UTC) for at in (known.since, known.seen))
        return (Suspicion(JOB, since, seen, 1 + known.slowdown, known.loss, known.cause.value),)

    def _slow_racks(self) -> list[str]:
        faults = [one for one in self.setup.faults if one.kind == "uplink" and one.active(self.minute)]
        return [f"r{rack}" for fault in faults for rack in fault.where]

    def _finish_sweep(self, name: str, sweep: str) -> None:
        found = self.sweep(name)
        self.verdicts.setdefault(name, []).append(found)
        verdict = Verdict.INCONCLUSIVE if self.hardware[name].inconclusive else Verdict(found.outcome.value)
        self.sweeps[sweep] = SweepResult(sweep, self.kernel.time, verdict, found.words[:500])

    def _finish_repair(self, name: str) -> None:
        super()._finish_repair(name)
        self.faults.repair(int(name.removeprefix("hw")))

    def _check_write(self, name: str, before: NodeHealthStatus, after: NodeHealthStatus) -> None:
        super()._check_write(name, before, after)
        if after.state is State.DRAINING and before.state is not State.DRAINING:
            self.drained.append(name)

    def _evict(self, name: str) -> None:
        self.hardware[name].recovered = None
        super()._evict(name)
        if not self.hardware[name].blocked:
            self.kernel.after(31, lambda: self._replace(name))

    def _replace(self, name: str) -> None:
        """Restart the job with a spare machine in place of `name`. Wait if there is no spare."""
        training, number = self.training, int(name.removeprefix("hw"))
        if training is None or training.ended or number not in training.nodes:
            return
        spares = self.free()
        if not spares:
            self.kernel.after(60, lambda: self._replace(name))
            return
        if name in training.held and training.walls:
            others = frozenset(one for one, known in training.held.items() if known.lasting) - {name}
            self._swaps.append(_Swap(name, _recent(training.walls), training.gains[name], others))
        training.restart([spares[0] if one == number else one for one in training.nodes])
        self._place(training)

    def _place(self, training: TrainedJob) -> None:
        for number, one in enumerate(self.hardware.values()):
            one.job = JOB if number in training.nodes else ""

    def _stepped(self, training: TrainedJob) -> None:
        """Measure the outcome of each swap from the step times after the swap.

        Do nothing until the present incarnation has made _OUTCOME_WINDOWS steps and the detector has no
        lasting suspicion against any machine of the job.
        """
        here = {f"hw{number}" for number in training.nodes}
        waits = any(one.lasting for one in training.held.values())
        if not self._swaps or len(training.walls) < _OUTCOME_WINDOWS or waits:
            return
        for swap in self._swaps:
            if not swap.others & here:
                gained = swap.wall - _recent(training.walls)
                self.hardware[swap.hardware].recovered = gained / max(swap.gain, 1e-9)
        self._swaps = [swap for swap in self._swaps if swap.others & here]


def run_setup(setup: Setup, seed: int = 0) -> GuardedFleet:
    """Simulate a setup from start to end. Return the fleet."""
    fleet = GuardedFleet(setup, seed)
    if not setup.new_hardware:
        fleet.run_with_job(setup.minutes)
    fleet.run_without_job(setup.hours)
    return fleet


def _recent(walls: list[float]) -> float:
    return statistics.median(walls[-_OUTCOME_WINDOWS:])
