"""The whole guard around one simulated job: what is seen becomes evidence, sweeps, drains and repairs."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from convoy_controllers.guard.suspicions import SuspicionRecord
from convoy_controllers.guard.sweep.verdict import Verdict as Said
from convoy_controllers.guard.synthetic import Job
from convoy_controllers.nodehealth.observed import HardwareFacts, Suspicion, SweepResult
from convoy_controllers.nodehealth.record import IN_SERVICE
from convoy_controllers.simulate.guard.harm import Harm, Ills
from convoy_controllers.simulate.guard.sweeping import Machine, Sweeps
from convoy_controllers.simulate.guard.telling import Way
from convoy_controllers.simulate.guard.training import Training
from convoy_controllers.simulate.health import Hardware, HealthWorld
from convoy_crds.guardpolicy import BreakerState
from convoy_crds.nodehealth import NodeHealthStatus, State, Verdict

JOB = "ns/train"
PER_RACK = 4
POLICY: dict[str, Any] = {
    "mode": "Act",
    "drain": {"swapCost": "2m"},
    "sweeps": {"timePercent": 1},
    "repair": {"ladder": [{"action": "Reset", "owner": "agent", "timeout": "1h"}]},
}
"""A job is swapped off a node once the node has cost it as much as two minutes of the job."""
SIXTEEN_NODES = Job(stages=2, replicas=16, per_node=2, seconds=20.0)
"""One window of about half a minute."""
_PROOF = 12
"""Windows after a swap until its outcome is known."""


@dataclass(frozen=True)
class Setup:
    """A job, a fleet, and what goes wrong."""

    harms: tuple[Harm, ...] = ()
    job: Job = SIXTEEN_NODES
    spares: int = 8
    minutes: float = 44.0
    """For which it trains."""
    hours: float = 30.0
    """After it."""
    policy: dict[str, Any] = field(default_factory=dict)
    way: Way = field(default_factory=Way)
    young: bool = False
    """All hardware is new, and no job is there yet."""
    dies: bool = False
    """The operator dies at random within every second look."""
    every: float = 60.0
    """Seconds between two looks."""

    @property
    def machines(self) -> int:
        """Of the fleet."""
        return self.job.size // self.job.per_node + self.spares


@dataclass
class _Swap:
    """Off a node, whose outcome is not known yet."""

    hardware: str
    wall: float
    gain: float
    others: frozenset[str]
    """Accused at the same time: as long as they are there, nothing is gained."""


class GuardWorld(HealthWorld):
    """Hardware, its job, and the operator of both."""

    def __init__(self, setup: Setup, seed: int = 0) -> None:
        super().__init__({**POLICY, **setup.policy}, setup.machines, seed=seed)
        self.setup, self.ills = setup, Ills(setup.harms)
        self.visited: dict[str, set[State]] = {name: set() for name in self.hardware}
        """All states that a node was ever in."""
        self.breakers: list[BreakerState] = [BreakerState.CLOSED]
        """All that it went through, in order."""
        self.drained: list[str] = []
        self.verdicts: dict[str, list[Said]] = {}
        self._chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
        self._sweeps = Sweeps(seed, self._slow_racks)
        self._swaps: list[_Swap] = []
        for number, one in enumerate(self.hardware.values()):
            one.rack = f"r{number // PER_RACK}"
            one.created = self.kernel.time if setup.young else one.created
        self._seed, self._born = seed, self.kernel.now
        self.training: Training | None = None
        if not setup.young:
            self.launch(list(range(setup.job.size // setup.job.per_node)))

    @property
    def minute(self) -> float:
        """Since the beginning."""
        return (self.kernel.now - self._born) / 60

    def launch(self, nodes: list[int], seed: int | None = None) -> Training:
        """A job begins on these machines."""
        chance = self._seed if seed is None else seed
        one = Training(self.kernel, self.setup.job, nodes, self.ills, self.setup.way, chance)
        one.born = self._born
        self.training, one.on_step, self._swaps = one, lambda: self._stepped(one), []
        self._place(one)
        return one

    def finish(self) -> None:
        """The job ends."""
        if self.training is not None:
            self.training.end()
        for one in self.hardware.values():
            one.job = ""

    def train(self, minutes: float) -> None:
        """Lets time pass while the job runs."""
        self.run(minutes * 60, self.setup.every)

    def rest(self, hours: float) -> None:
        """The job has ended, and time passes."""
        self.finish()
        self.run(min(hours, 3.0) * 3600, 600.0)
        self.run(max(0.0, hours - 3.0) * 3600, 3600.0)
        # What is in service shows once nothing is swept as a matter of routine.
        sweeps = self.guard().spec.sweeps
        self.configure(sweeps={**(sweeps.to_dict() if sweeps is not None else {}), "timePercent": 0})
        self.run(3600, 600.0)

    def operate(self, dies_after: int | None = None) -> bool:
        """One look, and what was seen of it."""
        if self.setup.dies and dies_after is None and self._chance.random() < 0.5:
            super().operate(dies_after=self._chance.randrange(12))
        done = super().operate(dies_after)
        for name in self.stored:
            self.visited[name].add(self.state(name))
        breaker = self.guard().status.breaker.state
        if breaker is not self.breakers[-1]:
            self.breakers.append(breaker)
        return done

    def facts(self, name: str) -> HardwareFacts:
        """As of a job of that size, which saves its state now and then."""
        found = super().facts(name)
        if found.node is None or self.training is None or not self.hardware[name].job:
            return found
        node = replace(found.node, gpus=self.training.job.size)
        saved = datetime.fromtimestamp(self.training.saved, UTC)
        return replace(found, node=node, saved=saved, noticed=self._said(self.training.noticed.get(name)))

    def machine(self, name: str) -> Machine:
        """As sweeps meet it."""
        number = int(name.removeprefix("hw"))
        return Machine(number, self.hardware[name].rack, tuple(self.ills.of(number, self.minute)))

    def free(self, least: int = 1) -> list[int]:
        """Hardware that pods may be put on; that which had better not be, only if there are too few."""
        by_taint = {effect: list[int]() for effect in ("", "PreferNoSchedule", "NoSchedule")}
        for one in self.idle():
            effects = [taint["effect"] for taint in self.hardware[one.name].taints]
            by_taint[min(effects, default="")].append(one.number)
        clean = by_taint[""]
        return clean if len(clean) >= least else clean + by_taint["PreferNoSchedule"]

    def idle(self) -> list[Machine]:
        """Those in service without pods."""
        return [
            self.machine(name)
            for name, one in self.hardware.items()
            if one.present and one.agent_connected and not one.job and self.state(name) in IN_SERVICE
        ]

    def sweep(self, name: str) -> Said:
        """All tests of one node, as people ask for them."""
        return self._sweeps.node(self.machine(name), self.idle())

    def pairs(self) -> tuple[Said, ...]:
        """A sweep of pairs over all that is idle, as people ask for one."""
        return self._sweeps.pairs(self.idle())

    def crowd(self) -> tuple[Said, ...]:
        """A sweep of many at once."""
        return self._sweeps.crowd(self.idle())

    def silence(self, number: int) -> None:
        """The agent of that hardware is not heard any more."""
        self.hardware[f"hw{number}"].agent_connected = False
        if self.training is not None:
            self.training.deaf.add(number)

    def _suspicions(self, one: Hardware, now: datetime) -> tuple[Suspicion, ...]:
        if self.training is None or not one.agent_connected or not one.job:
            return ()
        return self._said(self.training.held.get(one.name))

    def _said(self, known: SuspicionRecord | None) -> tuple[Suspicion, ...]:
        if known is None or not known.lasting:
            return ()
        since, seen = (datetime.fromtimestamp(at, UTC) for at in (known.since, known.seen))
        return (Suspicion(JOB, since, seen, 1 + known.slowdown, known.loss, known.cause.value),)

    def _slow_racks(self) -> list[str]:
        harms = [one for one in self.setup.harms if one.kind == "uplink" and one.lasts(self.minute)]
        return [f"r{rack}" for harm in harms for rack in harm.where]

    def _swept(self, name: str, sweep: str) -> None:
        said = self.sweep(name)
        self.verdicts.setdefault(name, []).append(said)
        verdict = Verdict.INCONCLUSIVE if self.hardware[name].mute else Verdict(said.outcome.value)
        self.sweeps[sweep] = SweepResult(sweep, self.kernel.time, verdict, said.words[:500])

    def _mend(self, name: str) -> None:
        super()._mend(name)
        self.ills.mend(int(name.removeprefix("hw")))

    def _check(self, name: str, before: NodeHealthStatus, after: NodeHealthStatus) -> None:
        super()._check(name, before, after)
        if after.state is State.DRAINING and before.state is not State.DRAINING:
            self.drained.append(name)

    def _evict(self, name: str) -> None:
        self.hardware[name].recovered = None
        super()._evict(name)
        if not self.hardware[name].blocked:
            self.kernel.after(31, lambda: self._replace(name))

    def _replace(self, name: str) -> None:
        """The job goes on, on a spare in the place of that node."""
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

    def _place(self, training: Training) -> None:
        for number, one in enumerate(self.hardware.values()):
            one.job = JOB if number in training.nodes else ""

    def _stepped(self, training: Training) -> None:
        """What moves have brought is known once the next incarnation has made some steps, and nobody else
        keeps it waiting.
        """
        here = {f"hw{number}" for number in training.nodes}
        waits = any(one.lasting for one in training.held.values())
        if not self._swaps or len(training.walls) < _PROOF or waits:
            return
        for swap in self._swaps:
            if not swap.others & here:
                gained = swap.wall - _recent(training.walls)
                self.hardware[swap.hardware].recovered = gained / max(swap.gain, 1e-9)
        self._swaps = [swap for swap in self._swaps if swap.others & here]


def played(setup: Setup, seed: int = 0) -> GuardWorld:
    """From the beginning to the end."""
    world = GuardWorld(setup, seed)
    if not setup.young:
        world.train(setup.minutes)
    world.rest(setup.hours)
    return world


def _recent(walls: list[float]) -> float:
    return statistics.median(walls[-_PROOF:])
