"""A sweep of pairs between two rounds: all that is known of it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from convoy_controllers.guard.sweep.measuring import Better, Measured, Member, Pair


class Stage(IntEnum):
    """What the tests that are wanted are for."""

    INSIDE = 0
    """A matching inside racks."""
    ACROSS = 1
    """A matching across racks."""
    CONFIRM = 2
    """Suspects with good partners, and good partners with each other."""
    MORE = 3
    """More partners for those that are close to the limit; slow links once more."""
    LINKS = 4
    """Each end of a slow link with another partner."""
    DONE = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """What counts as slow, and how much is measured. Chosen on seeds 0 to 9 of `make bench-guard-sweep`."""

    better: Better = Better.HIGHER
    deficit: float = 0.05
    """The least slowdown that is a fault; healthy silicon varies by as much."""
    detectable: float = 0.10
    """A slowdown that must not be missed; where noise hides it nobody passes."""
    suspect_sigmas: float = 2.1
    """A node is suspected above the median score and so much of the scores' spread, ..."""
    suspect_share: float = 0.5
    """... but not below this share of `deficit`."""
    references: int = 10
    """Pairs of good nodes that are measured beside the suspects."""
    partners: int = 3
    """Good partners of a suspect, in different racks."""
    more: int = 2
    """Further ones where the first leave a doubt."""
    false_alarm: float = 0.01
    """The chance that noise alone fails one of a sweep's suspects."""
    power: float = 0.8
    """The least chance that a node slower by `detectable` would have become a suspect, for others to pass."""
    link_sigmas: float = 4.0
    """One test is slow beyond so much noise, and beyond `deficit`."""
    rack_share: float = 0.6
    """Of a rack's nodes: if so many fail, and at least three, it is the rack."""
    at_once: int = 0
    """The most pairs in a round; 0 for no bound."""


@dataclass(frozen=True, slots=True)
class Test:
    """A measurement and what it was made for."""

    stage: Stage
    measured: Measured


@dataclass(frozen=True, slots=True)
class PairState:
    """Of one sweep. `wanted` are the tests still to run in this stage."""

    members: tuple[Member, ...]
    settings: Settings
    seed: int
    stage: Stage
    wanted: tuple[Pair, ...] = ()
    tests: tuple[Test, ...] = ()
    left: frozenset[str] = frozenset()
    """Nodes that have left the sweep."""
    suspects: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    """Partners for suspects, the best first."""
    links: tuple[Pair, ...] = ()
    """Slow though both ends are fast with others."""
