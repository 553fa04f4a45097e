"""What must be true of a scenario at its end, and what never on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convoy_controllers.simulate.guard.world import GuardWorld, Setup, played
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
"""What a culprit goes through."""
MOST_OTHER = 0.1
"""Share of the windows in which another cause may be told, while evidence gathers or is given up."""


@dataclass(frozen=True)
class Expected:
    """Hardware by its number."""

    cause: str = ""
    """Told most of the time that the fault is there; empty: none need be."""
    also: frozenset[str] = frozenset()
    """Causes that may be told besides."""
    drained: frozenset[int] = frozenset()
    """Exactly these."""
    again: bool = False
    """Each of them may be more than once."""
    either: frozenset[int] = frozenset()
    """Of these nothing is asked: both is right."""
    suspect: frozenset[int] = frozenset()
    """May come to be suspect without being drained."""
    states: Mapping[int, State] = field(default_factory=dict)
    """At the end; all others are in service and have never been anything else."""
    breakers: tuple[BreakerState, ...] = (BreakerState.CLOSED,)
    """States of the breaker, in order."""
    qualified: str = "True"
    """The condition of those drained, at the end."""
    besides: Callable[[GuardWorld], list[str]] = lambda _: []
    """What else is wrong."""


@dataclass(frozen=True)
class Scenario:
    """One of the list in its order, and what is to come of it."""

    number: str
    words: str
    setup: Setup
    expected: Expected
    happens: Callable[[GuardWorld], None] | None = None
    """In place of training to the end: what people and machines do meanwhile."""

    def __str__(self) -> str:
        return f"{self.number} {self.words}"

    def play(self, setup: Setup | None = None, seed: int = 0) -> GuardWorld:
        """To its end."""
        setup = setup or self.setup
        if self.happens is None:
            return played(setup, seed)
        world = GuardWorld(setup, seed)
        self.happens(world)
        world.rest(setup.hours)
        return world


def wrong(world: GuardWorld, expected: Expected) -> list[str]:
    """Everything that is not as expected, in words."""
    found = [*_causes(world, expected), *_states(world, expected), *expected.besides(world)]
    if tuple(world.breakers) != expected.breakers:
        found.append(f"the breaker was {world.breakers}")
    names = [f"hw{number}" for number in sorted(expected.drained)]
    drained = [name for name in world.drained if int(name[2:]) not in expected.either]
    if set(drained) != set(names) or (len(drained) > len(names) and not expected.again):
        found.append(f"drained {world.drained}, not {names}")
    for name in names:
        values = {one.type: one.status for one in world.health(name).status.conditions}
        if values.get("Qualified") != expected.qualified:
            found.append(f"{name} is Qualified={values.get('Qualified')}")
    return found


def _causes(world: GuardWorld, expected: Expected) -> list[str]:
    if world.training is None:
        return []
    told = world.training.told
    shares = {cause: count / max(1, told.harmed) for cause, count in told.while_harmed.items()}
    found = []
    if expected.cause and shares.get(expected.cause, 0.0) < 0.5:
        found.append(f"{expected.cause} is not told: {shares}")
    others = {
        cause: round(share, 2)
        for cause, share in shares.items()
        if cause != expected.cause and cause not in expected.also and share > MOST_OTHER
    }
    return [*found, *([f"causes {others} are told"] if others else [])]


def _states(world: GuardWorld, expected: Expected) -> list[str]:
    found = []
    for number, name in enumerate(world.hardware):
        visited, state = world.visited[name], world.state(name)
        if number in expected.either:
            continue
        young = {State.GATED, State.SWEEPING} if world.setup.young else set[State]()
        if number in expected.drained:
            wanted = expected.states.get(number, State.QUALIFIED)
            if state is not wanted:
                found.append(f"{name} is {state}, not {wanted}")
            if not world.setup.young and (missing := {State.QUARANTINED, State.DRAINING} - visited):
                found.append(f"{name} was never {missing}")
            continue
        allowed = SERVING | young | ({State.SUSPECT} if number in expected.suspect else set())
        if visited - allowed:
            found.append(f"{name} was {sorted(visited - allowed)}")
        if state not in {expected.states.get(number, state)} & (SERVING | {State.SUSPECT}):
            found.append(f"{name} is {state}")
    return found
