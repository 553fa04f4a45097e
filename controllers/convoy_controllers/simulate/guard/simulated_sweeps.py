"""Simulates the measurements of a sweep. The guard's own code makes the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.faults import CROWD
from convoy_controllers.guard.sweep import fingerprint, groups, judging, metric, pairs, reference
from convoy_controllers.guard.sweep.measuring import Better, Measured, Member, Pair
from convoy_controllers.guard.sweep.reference import Reference
from convoy_controllers.guard.sweep.state import Settings
from convoy_controllers.guard.sweep.verdict import Outcome, Reason, Verdict, worst
from convoy_controllers.simulate.guard.hardware_faults import MEASURES, METRICS, HardwareFault

MIN_PARTNERS = 5
"""Minimum number of idle partners for pair tests."""
_HEALTHY = 12
"""Number of healthy nodes whose measurements form the reference for verdicts."""
_SPREAD, _NOISE, _PAIR_NOISE = 0.007, 0.005, 0.02
_SAMPLES = 40
_RIGHT, _CORRUPT = "5f1d", "9c02"


@dataclass(frozen=True)
class Machine:
    """A machine that a sweep tests, with the faults that it has during the sweep."""

    number: int
    rack: str
    faults: tuple[HardwareFault, ...]

    @property
    def name(self) -> str:
        """Name of the machine in verdicts."""
        return f"hw{self.number}"

    def factor(self, measures: str) -> float:
        """Return the factor by which the test `measures` takes longer on this machine."""
        sizes = [fault.size for fault in self.faults if MEASURES.get(fault.kind) == measures]
        return float(np.prod([1 + size for size in sizes])) if sizes else 1.0


class SimulatedSweeps:
    """All tests of one fleet. They have their own random generator."""

    def __init__(self, seed: int, racks_slow: Callable[[], Iterable[str]] = tuple) -> None:
        self._rng = np.random.default_rng((seed, 77))
        self._racks_slow = racks_slow
        self._references = {name: self._reference(name) for name in METRICS}

    def node(self, machine: Machine, idle: list[Machine]) -> Verdict:
        """Run all tests of one machine, and return the worst verdict.

        Pair tests and group tests are included if enough machines are idle.
        """
        found = [self._metric(machine, name) for name in METRICS]
        found.append(self._hash(machine))
        others = [one for one in idle if one.number != machine.number]
        if len(others) >= MIN_PARTNERS:
            found.append(self._of(machine, self.pairs([machine, *others])))
        if len(others) + 1 >= CROWD + CROWD // 2:
            found.append(self._of(machine, self.group_tests([machine, *others])))
        return worst(found)

    def pairs(self, machines: list[Machine]) -> tuple[Verdict, ...]:
        """Run pair tests on these machines and return the verdicts."""
        by_name = {one.name: one for one in machines}
        members = [Member(one.name, one.rack) for one in machines]
        state = pairs.start(members, Settings(better=Better.LOWER), int(self._rng.integers(1 << 30)))
        while todo := pairs.next_round(state):
            state = pairs.apply_results(state, [Measured(one, self._pair(one, by_name)) for one in todo])
        return judging.verdicts(state)

    def group_tests(self, machines: list[Machine]) -> tuple[Verdict, ...]:
        """Test a large group of machines and return the verdicts. If the group is slow, halve it to find
        the slow machine.
        """
        by_name = {one.name: one for one in machines}
        first = [one.name for one in machines[:CROWD]]
        if self._group(first, by_name) < 1.05:
            return ()
        state = groups.start(first, set(by_name) - set(first), 1.0, Better.LOWER)
        while todo := groups.next_round(state):
            state = groups.apply_results(state, [(one, self._group(one, by_name)) for one in todo])
        return groups.verdicts(state)

    def _of(self, machine: Machine, verdicts: Iterable[Verdict]) -> Verdict:
        passed = Verdict(machine.name, Outcome.PASS, Reason.MEETS_REFERENCE, "as fast as others")
        verdict = next((one for one in verdicts if one.subject == machine.name), passed)
        # With few partners a pair test can be inconclusive, so let the other tests decide.
        return passed if verdict.outcome is Outcome.INCONCLUSIVE else verdict

    def _reference(self, name: str) -> Reference:
        samples = {f"built-{at}": self._samples(1.0) for at in range(_HEALTHY)}
        return reference.freeze(name, "simulated", Better.HIGHER, 1, samples)

    def _samples(self, factor: float) -> list[float]:
        own = float(np.exp(self._rng.normal(0, _SPREAD)))
        return [own / factor * float(one) for one in np.exp(self._rng.normal(0, _NOISE, _SAMPLES))]

    def _metric(self, machine: Machine, name: str) -> Verdict:
        runs = [self._samples(machine.factor(name))]
        while True:
            verdict = metric.judge(machine.name, runs, self._references[name])
            if not verdict.again:
                return verdict
            runs.append(self._samples(machine.factor(name)))

    def _hash(self, machine: Machine) -> Verdict:
        wrong = any(fault.kind == "corrupt" for fault in machine.faults)
        return fingerprint.judge(machine.name, [_CORRUPT if wrong else _RIGHT], {}, frozen=_RIGHT)

    def _pair(self, pair: Pair, machines: dict[str, Machine]) -> float:
        one, other = (machines[name] for name in pair)
        took = max(self._alone(one), self._alone(other))
        if one.rack != other.rack and {one.rack, other.rack} & set(self._racks_slow()):
            took *= 1.5
        both = [fault for fault in one.faults if fault.kind == "link" and fault in other.faults]
        took *= max((1 + fault.size for fault in both), default=1.0)
        return took * float(np.exp(self._rng.normal(0, _PAIR_NOISE)))

    @staticmethod
    def _alone(machine: Machine) -> float:
        return max((1 + fault.size for fault in machine.faults if fault.kind == "nic"), default=1.0)

    def _group(self, names: Iterable[str], machines: dict[str, Machine]) -> float:
        inside = [machines[name] for name in names]
        slow = max((one.factor("groups") for one in inside), default=1.0) if len(inside) >= CROWD else 1.0
        return slow * float(np.exp(self._rng.normal(0, 0.005)))
