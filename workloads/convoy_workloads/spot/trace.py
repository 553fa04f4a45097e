"""Traces of spot nodes: when nodes appear, when they vanish, and how long before that a notice comes.

The same trace drives simulations in virtual time and the nodes of the local cluster.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

SECONDS_PER_HOUR = 3600.0
MAX_NODES = 10_000


class Change(NamedTuple):
    """Nodes that appear or vanish at one moment."""

    at: float
    """Seconds since the start of the trace."""
    appeared: tuple[str, ...]
    vanished: tuple[str, ...]
    notice_seconds: float
    """Seconds from the notice to the loss of the nodes; 0 if they vanish without a notice."""


@dataclass(frozen=True, slots=True)
class Notices:
    """The notices before nodes vanish. Nodes that vanish together get their notice together."""

    seconds: float = 30.0
    share: float = 1.0
    """Share of the losses with a notice. The others come without one."""


@dataclass(frozen=True, slots=True)
class TraceFigures:
    """Figures of a trace."""

    availability: float
    """Node-seconds with a node / (largest number of nodes x seconds)."""
    any_share: float
    """Share of the time with at least one node."""
    losses: int
    losses_per_node_hour: float
    largest_drop: int
    """Largest number of nodes that vanished at one moment."""
    node_hours: float


@dataclass(frozen=True, slots=True)
class SpotTrace:
    """The nodes of a trace over time. Names return with the next node in the same place."""

    seconds: float
    """Length of the trace."""
    nodes: int
    """Number of places for nodes."""
    events: tuple[Change, ...]

    def changes(self) -> Iterator[Change]:
        """Yield the changes in the order of time. Nodes that are there at the start appear at 0."""
        yield from self.events

    def counts(self) -> Iterator[tuple[float, int]]:
        """Yield the time of each change with the number of nodes after it."""
        count = 0
        for change in self.events:
            count += len(change.appeared) - len(change.vanished)
            yield change.at, count

    def window(self, start: float, seconds: float) -> SpotTrace:
        """Return a part of the trace, with times from its own start."""
        alive: dict[str, None] = {}
        kept: list[Change] = []
        for change in self.events:
            if change.at >= start + seconds:
                break
            if change.at > start:
                kept.append(change._replace(at=change.at - start))
                continue
            for name in change.vanished:
                del alive[name]
            alive |= dict.fromkeys(change.appeared)
        first = [Change(0.0, tuple(alive), (), 0.0)] if alive else []
        return SpotTrace(min(seconds, max(0.0, self.seconds - start)), self.nodes, (*first, *kept))

    def faster(self, factor: float) -> SpotTrace:
        """Return the trace at `factor` times the speed. Notices keep their length in seconds."""
        events = tuple(change._replace(at=change.at / factor) for change in self.events)
        return replace(self, seconds=self.seconds / factor, events=events)

    def figures(self) -> TraceFigures:
        """Return the figures of the trace."""
        node_seconds = any_seconds = 0.0
        last, count = 0.0, 0
        for at, following in [*self.counts(), (self.seconds, 0)]:
            node_seconds += count * (at - last)
            any_seconds += (count > 0) * (at - last)
            last, count = at, following
        losses = sum(len(change.vanished) for change in self.events)
        hours = node_seconds / SECONDS_PER_HOUR
        return TraceFigures(
            availability=node_seconds / (self.nodes * self.seconds) if self.nodes and self.seconds else 0.0,
            any_share=any_seconds / self.seconds if self.seconds else 0.0,
            losses=losses,
            losses_per_node_hour=losses / hours if hours else 0.0,
            largest_drop=max((len(change.vanished) for change in self.events), default=0),
            node_hours=hours,
        )


def from_counts(
    counts: Sequence[tuple[float, int]], seconds: float, notices: Notices | None = None, seed: int = 0
) -> SpotTrace:
    """Return the trace of numbers of nodes over time: pairs of a time and the number from then on.

    The seed chooses the nodes that vanish.
    """
    stream = random.Random(f"{seed}/spot/counts")  # noqa: S311 - must be repeatable
    alive: list[str] = []
    moves: list[tuple[float, list[str], list[str]]] = []
    for at, count in counts:
        if count > len(alive):
            taken = set(alive)
            free = [name for name in map(node_name, range(count)) if name not in taken]
            appeared = free[: count - len(alive)]
            alive.extend(appeared)
            moves.append((at, appeared, []))
        elif count < len(alive):
            vanished = stream.sample(alive, len(alive) - count)
            gone = set(vanished)
            alive = [name for name in alive if name not in gone]
            moves.append((at, [], vanished))
    nodes = max((count for _, count in counts), default=0)
    return SpotTrace(seconds, nodes, tuple(with_notices(moves, notices or Notices(), seed)))


def with_notices(
    moves: Iterable[tuple[float, Sequence[str], Sequence[str]]], notices: Notices, seed: int
) -> Iterator[Change]:
    """Yield the moves as changes. No notice comes before its nodes have appeared."""
    stream = random.Random(f"{seed}/spot/notices")  # noqa: S311 - must be repeatable
    since: dict[str, float] = {}
    for at, appeared, vanished in moves:
        lead = 0.0
        if vanished and stream.random() < notices.share:
            lead = min(notices.seconds, at - max(since[name] for name in vanished))
        since |= dict.fromkeys(appeared, at)
        yield Change(at, tuple(appeared), tuple(vanished), lead)


def node_name(number: int) -> str:
    """Return the name of the place of a node."""
    return f"spot-{number}"


def join(first: SpotTrace, second: SpotTrace) -> SpotTrace:
    """Return one trace after the other. Nodes that are there on both sides of the joint stay."""
    alive: dict[str, None] = {}
    for change in first.events:
        for name in change.vanished:
            del alive[name]
        alive |= dict.fromkeys(change.appeared)
    rest = [change._replace(at=first.seconds + change.at) for change in second.events]
    following = rest.pop(0).appeared if rest and rest[0].at == first.seconds else ()
    appeared = tuple(name for name in following if name not in alive)
    vanished = tuple(name for name in alive if name not in set(following))
    joint = [Change(first.seconds, appeared, vanished, 0.0)] if appeared or vanished else []
    nodes = max(first.nodes, second.nodes)
    return SpotTrace(first.seconds + second.seconds, nodes, (*first.events, *joint, *rest))


def steady(nodes: int, seconds: float) -> SpotTrace:
    """Return a trace whose nodes never vanish."""
    names = tuple(map(node_name, range(nodes)))
    return SpotTrace(seconds, nodes, (Change(0.0, names, (), 0.0),) if names else ())
