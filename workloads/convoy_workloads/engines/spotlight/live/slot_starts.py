"""The times at which an actor may start in a slot of a node.

A slot whose actors fail is tried again after a pause, which doubles with each failure. It is never given up:
the cause may be gone, and the node costs as much as any other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

PAUSE_SECONDS = 20.0
"""Seconds from the end of an actor to the start of the next one in its slot. A lost node is known by then."""
LONGEST_PAUSE_SECONDS = 600.0
STEADY_SECONDS = 600.0
"""An actor that has run for so long has not failed at its start: its failure counts as the first one."""
JITTER = 0.25
"""Longest addition to a pause, as a share of it."""


@dataclass
class _Slot:
    started: float = 0.0
    failures: int = 0
    """Failures since the last actor that ran for long, or ended as it should."""
    next_start: float = 0.0


class SlotStarts:
    """Starts and ends of actors, by slot."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._slots: dict[str, _Slot] = {}

    def may_start(self, slot: str) -> bool:
        """Return True if an actor may start in the slot now."""
        known = self._slots.get(slot)
        return known is None or self._clock() >= known.next_start

    def started(self, slot: str) -> None:
        """Record the start of an actor."""
        self._slots.setdefault(slot, _Slot()).started = self._clock()

    def ended(self, slot: str, failed: bool = False) -> float:
        """Record the end of an actor. Return the seconds until the next one may start."""
        now, known = self._clock(), self._slots.setdefault(slot, _Slot())
        if not failed or now - known.started >= STEADY_SECONDS:
            known.failures = 0
        known.failures += failed
        doubled = PAUSE_SECONDS * 2.0 ** min(max(0, known.failures - 1), 10)
        pause = min(LONGEST_PAUSE_SECONDS, doubled) * random.uniform(1.0, 1.0 + JITTER)  # noqa: S311 - jitter
        known.next_start = now + pause
        return pause

    def keep(self, slots: Collection[str]) -> None:
        """Drop what is known of other slots: their nodes are gone."""
        self._slots = {name: one for name, one in self._slots.items() if name in slots}
