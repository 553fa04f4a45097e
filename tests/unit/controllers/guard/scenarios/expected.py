"""Expected results of a scenario: states at its end, and states that must never occur."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convoy_controllers.simulate.guard.guarded_fleet import GuardedFleet, Setup, run_setup
from convoy_crds.guardpolicy import BreakerState
from convoy_crds.nodehealth import State

SERVING = {State.UNVERIFIED, State.QUALIFIED}
CYCLE = (
    State.SUSPECT,
    State.QUARANTINED,
    State.DRAINING,
    State.REPAIRING,
    State.REQUALIFYING,
    State.PROBATION,
)
"""States that a faulty node goes through, in order."""
MOST_OTHER = 0.1
"""Maximum fraction of windows that may report a cause other than the expected one. Such reports occur while
evidence accumulates or fades.
"""


@dataclass(frozen=True)
class Expected:
    """Expected results of a scenario. A number identifies hardware."""

    cause: str = ""
    """Cause that most windows must report while the fault exists; empty for any cause."""
    other_causes: frozenset[str] = frozenset()
    """Other causes that windows may report."""
    drained: frozenset[int] = frozenset()
    """Hardware that must be drained. No other hardware may be drained."""
    repeatedly: bool = False
    """True if the hardware in `drained` may be drained more than once."""
    undetermined: frozenset[int] = frozenset()
    """Hardware that may be drained or not."""
    suspect: frozenset[int] = frozenset()
    """Hardware that may become suspect without being drained."""
    states: Mapping[int, State] = field(default_factory=dict)
    """States at the end, by hardware. All other hardware is in service at the end and never left service."""
    breakers: tuple[BreakerState, ...] = (BreakerState.CLOSED,)
    """States of the breaker, in the order in which they occur."""
    qualified: str = "True"
    """Status of the Qualified condition of all drained hardware at the end."""
    further_checks: Callable[[GuardedFleet], list[str]] = lambda _: []
    """Further checks of the fleet. Returns their failures in words."""


@dataclass(frozen=True)
class Scenario:
    """One scenario: its setup, its events and its expected results."""

    number: str
    words: str
    setup: Setup
    expected: Expected
    events: Callable[[GuardedFleet], None] | None = None
    """Runs the scenario's events. Without this function the job trains to its end."""

    def __str__(self) -> str:
        return f"{self.number} {self.words}"

    def play(self, setup: Setup | None = None, seed: int = 0) -> GuardedFleet:
        """Run the scenario to its end and return its fleet."""
        setup = setup or self.setup
        if self.events is None:
            return run_setup(setup, seed)
        fleet = GuardedFleet(setup, seed)
        self.events(fleet)
        fleet.run_without_job(setup.hours)
        return fleet


def deviations(fleet: GuardedFleet, expected: Expected) -> list[str]:
    """Return all deviations of a fleet from the expected results, in words."""
    found = [*_causes(fleet, expected), *_states(fleet, expected), *expected.further_checks(fleet)]
    if tuple(fleet.breakers) != expected.breakers:
        found.append(f"the breaker was {fleet.breakers}")
    names = [f"hw{number}" for number in sorted(expected.drained)]
    drained = [name for name in fleet.drained if int(name[2:]) not in expected.undetermined]
    if set(drained) != set(names) or (len(drained) > len(names) and not expected.repeatedly):
        found.append(f"drained {fleet.drained}, not {names}")
    for name in names:
        values = {one.type: one.status for one in fleet.health(name).status.conditions}
        if values.get("Qualified") != expected.qualified:
            found.append(f"{name} is Qualified={values.get('Qualified')}")
    return found


def _causes(fleet: GuardedFleet, expected: Expected) -> list[str]:
    if fleet.training is None:
        return []
    detections = fleet.training.detections
    shares = {
        cause: count / max(1, detections.windows_while_faulty)
        for cause, count in detections.causes_while_faulty.items()
    }
    found = []
    if expected.cause and shares.get(expected.cause, 0.0) < 0.5:
        found.append(f"{expected.cause} is not detected: {shares}")
    others = {
        cause: round(share, 2)
        for cause, share in shares.items()
        if cause != expected.cause and cause not in expected.other_causes and share > MOST_OTHER
    }
    return [*found, *([f"causes {others} are detected"] if others else [])]


def _states(fleet: GuardedFleet, expected: Expected) -> list[str]:
    found = []
    for number, name in enumerate(fleet.hardware):
        visited, state = fleet.visited[name], fleet.state(name)
        if number in expected.undetermined:
            continue
        new_hardware = {State.GATED, State.SWEEPING} if fleet.setup.new_hardware else set[State]()
        if number in expected.drained:
            wanted = expected.states.get(number, State.QUALIFIED)
            if state is not wanted:
                found.append(f"{name} is {state}, not {wanted}")
            if not fleet.setup.new_hardware and (missing := {State.QUARANTINED, State.DRAINING} - visited):
                found.append(f"{name} was never {missing}")
            continue
        allowed = SERVING | new_hardware | ({State.SUSPECT} if number in expected.suspect else set())
        if visited - allowed:
            found.append(f"{name} was {sorted(visited - allowed)}")
        if state not in {expected.states.get(number, state)} & (SERVING | {State.SUSPECT}):
            found.append(f"{name} is {state}")
    return found
