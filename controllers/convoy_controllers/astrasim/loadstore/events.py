"""Plays a run line by line.

Without skew all GPUs behave the same, so GPU 0 is played for all: what it sends to the offset d it receives
at the same time from the offset -d, and each link of another GPU is its own link of the same number. The
order of events of the same time does not depend on the GPU's number, so the figures equal those of a run of
every GPU. This needs a latency of the links above 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from convoy_controllers.astrasim.loadstore.machine import Machine
from convoy_controllers.astrasim.loadstore.parameters import Setup, Skew
from convoy_controllers.astrasim.loadstore.workgroup import Part, Workgroup


@dataclass(frozen=True, slots=True)
class Played:
    """The figures of a run of events. Times are ns."""

    time: Fraction
    """End of the last workgroup."""
    parts: dict[Part, Fraction]
    """Parts of the time of the workgroup that ends last."""
    events: int
    moved: int
    """Bytes of data that a GPU has received; with skew, of all GPUs."""
    links: dict[tuple[int, int], int]
    """Bytes that have crossed each link, by GPU and number."""


def play(setup: Setup, budget: int, skew: Skew | None = None) -> Played:
    """Play a run. Raises BudgetExhausted after `budget` events."""
    run = Machine(setup, skew)
    groups = [Workgroup(run, gpu, number) for gpu in range(run.gpus) for number in range(run.active)]
    for one in groups:
        run.groups[one.gpu].append(one)
    for one in groups:
        one.launch()
    events = run.play(budget)
    ends = [one.end for one in groups if one.end is not None]
    if len(ends) < len(groups):
        raise RuntimeError(f"{len(groups) - len(ends)} workgroups wait for ever")
    last = max(groups, key=lambda one: one.end or 0)
    return Played(
        Fraction(max(ends), run.scale),
        {part: Fraction(ticks, run.scale) for part, ticks in last.parts.items()},
        events,
        sum(one.moved for one in groups),
        {key: link.bytes for key, link in run.links.items()},
    )
