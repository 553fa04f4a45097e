"""The state of a pair sweep between two rounds, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from convoy_controllers.guard.sweep.measuring import Better, Measured, Member, Pair


class Stage(IntEnum):
    """Stage of a sweep: the purpose of its tests."""

    INSIDE = 0
    """Test every node with a partner in its own rack."""
    ACROSS = 1
    """Test every node with a partner in another rack."""
    CONFIRM = 2
    """Test suspects with good partners, and good nodes with each other."""
    MORE = 3
    """Test suspects near the limit with more partners, and repeat the tests of slow links."""
    LINKS = 4
    """Test each node of a slow link with another partner."""
    DONE = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of slowness, and numbers of tests. The values were chosen on seeds 0 to 9 of `make
    bench-guard-sweep`.
    """

    better: Better = Better.HIGHER
    deficit: float = 0.05
    """Smallest slowdown that is a fault. Healthy silicon varies by up to this much."""
    detectable: float = 0.10
    """Slowdown that must be detected. If the noise could hide such a slowdown, no node passes."""
    suspect_sigmas: float = 2.1
    """Minimum excess of a suspect's score over the median score, in standard deviations of the scores."""
    suspect_share: float = 0.5
    """Minimum excess of a suspect's score over the median score, as a share of `deficit`."""
    references: int = 10
    """Number of pairs of good nodes to test next to the suspects."""
    partners: int = 3
    """Number of good partners of a suspect, in different racks."""
    more: int = 2
    """Number of further partners if the first partners give no clear result."""
    false_alarm: float = 0.01
    """Probability that noise alone makes at least one suspect of a sweep fail."""
    power: float = 0.8
    """Minimum probability that a node slower by `detectable` would have become a suspect. If the
    probability is lower, no node passes.
    """
    link_sigmas: float = 4.0
    """Minimum excess of a slow test's cost, in standard deviations of the noise. The excess must also be
    above `deficit`.
    """
    rack_share: float = 0.6
    """Minimum share of a rack's nodes that must fail for the rack to be blamed. At least three nodes must
    fail.
    """
    at_once: int = 0
    """Maximum number of pairs in a round; 0 means unlimited."""


@dataclass(frozen=True, slots=True)
class Test:
    """The result of a test, and the stage that requested the test."""

    stage: Stage
    measured: Measured


@dataclass(frozen=True, slots=True)
class PairState:
    """State of one sweep. `wanted` holds the tests that are still to run in this stage."""

    members: tuple[Member, ...]
    settings: Settings
    seed: int
    stage: Stage
    wanted: tuple[Pair, ...] = ()
    tests: tuple[Test, ...] = ()
    left: frozenset[str] = frozenset()
    """Nodes that departed during the sweep. They are not tested again."""
    suspects: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    """Good nodes that serve as partners for suspects, the best first."""
    links: tuple[Pair, ...] = ()
    """Pairs that were slow although both nodes were fast with other partners."""
