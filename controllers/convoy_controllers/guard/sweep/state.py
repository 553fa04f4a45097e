"""State of a pair sweep between two rounds, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from convoy_controllers.guard.sweep.measuring import Better, Measured, Member, Pair


class Stage(IntEnum):
    """Purpose of the tests that are wanted."""

    INSIDE = 0
    """Matching inside racks."""
    ACROSS = 1
    """Matching across racks."""
    CONFIRM = 2
    """Suspects with good partners, and good nodes with each other."""
    MORE = 3
    """More partners for suspects near the limit, and repeated tests of slow links."""
    LINKS = 4
    """Each node of a slow link with another partner."""
    DONE = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of slowness, and amounts of tests. Chosen on seeds 0 to 9 of `make bench-guard-sweep`."""

    better: Better = Better.HIGHER
    deficit: float = 0.05
    """Smallest slowdown that is a fault. Healthy silicon varies by up to this much."""
    detectable: float = 0.10
    """Slowdown that must not be missed. If noise hides it, no node passes."""
    suspect_sigmas: float = 2.1
    """A node is suspected if its score exceeds the median by this many standard deviations of the scores
    ...
    """
    suspect_share: float = 0.5
    """... and by at least this share of `deficit`."""
    references: int = 10
    """Pairs of good nodes to test next to the suspects."""
    partners: int = 3
    """Good partners of a suspect, in different racks."""
    more: int = 2
    """Further partners if the first ones leave a doubt."""
    false_alarm: float = 0.01
    """Probability that noise alone fails one of a sweep's suspects."""
    power: float = 0.8
    """Least probability that a node slower by `detectable` would have become a suspect. Below it no node
    passes.
    """
    link_sigmas: float = 4.0
    """A test is slow beyond this many standard deviations of the noise, and beyond `deficit`."""
    rack_share: float = 0.6
    """Share of a rack's nodes, at least three, whose failure is blamed on the rack."""
    at_once: int = 0
    """Most pairs in a round; 0: unlimited."""


@dataclass(frozen=True, slots=True)
class Test:
    """A result and the stage that requested it."""

    stage: Stage
    measured: Measured


@dataclass(frozen=True, slots=True)
class PairState:
    """State of one sweep. `wanted` holds the tests still to run in this stage."""

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
    """Pairs that are slow although both nodes are fast with others."""
