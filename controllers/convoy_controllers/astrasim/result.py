"""The result of a simulation: the figures of each rank, and findings about what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FindingKind(StrEnum):
    """Kind of a finding."""

    INVALID_INPUT = "InvalidInput"
    """A field of the input has a value that no run can use."""
    INVALID_NODE = "InvalidNode"
    """A node cannot run."""
    ENDLESS = "Endless"
    """A collective would never end."""
    CLOCK = "Clock"
    """An event is due at time 0, at which no event can run."""
    STUCK = "Stuck"
    """A rank waits for a message that nobody sends."""
    NEVER_ISSUED = "NeverIssued"
    """A node never runs because its dependencies never end."""
    TOO_LARGE = "TooLarge"
    """The run does not fit in memory."""
    BUDGET = "Budget"
    """The run needs more events than its budget has."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    kind: FindingKind
    message: str
    rank: int | None = None
    node: int | None = None

    def __str__(self) -> str:
        where = [] if self.rank is None else [f"rank {self.rank}"]
        where += [] if self.node is None else [f"node {self.node}"]
        return f"{self.kind}: {', '.join(where)}{': ' if where else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class RankFigures:
    """The figures of one rank. Times are ns."""

    finish: int
    """End of the last node."""
    exposed: int
    """Finish minus the sum of the GPU nodes. Waiting counts as exposed."""
    communication: int | None
    """Union of the intervals of communication nodes; None without such nodes."""
    compute: int | None
    """Union of the intervals of GPU nodes; None without such nodes."""
    nodes: Mapping[int, tuple[int, int]]
    """Issue and end of each node by id."""
    on_cpu: bool = False
    """True if the rank has CPU nodes."""

    @property
    def overlap(self) -> int:
        """Return `communication + compute - finish`, or 0 if the rank lacks one of the two."""
        if self.communication is None or self.compute is None:
            return 0
        return self.communication + self.compute - self.finish


@dataclass(frozen=True, slots=True)
class LinkUse:
    """The use of a directed link during a run."""

    name: str
    """The two nodes, such as `3 -> switch`."""
    bytes: int
    utilisation: float
    """Bytes over the bytes that the link can send during the run. Above 1 if messages never share links."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run."""

    ranks: tuple[RankFigures | None, ...]
    """Figures of each rank; None for a rank that did not finish."""
    findings: tuple[Finding, ...] = ()
    messages: int = 0
    """Messages that arrived."""
    message_bytes: int = 0
    """Bytes of the messages that arrived."""
    events: int = 0
    links: tuple[LinkUse, ...] = ()
    """The busiest links first, up to a few; empty if the network has no links."""
    collapsed: bool = False
    """True if one rank was played for all, because all ranks behave the same."""

    @property
    def finished(self) -> bool:
        """Return True if every rank ended its last node."""
        return bool(self.ranks) and all(one is not None for one in self.ranks)
