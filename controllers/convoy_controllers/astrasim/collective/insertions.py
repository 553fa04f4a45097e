"""The way of data through the memory of a rank before a message can leave.

An algorithm passes data through the memory before each message, and once more at its end. Such a pass counts
in rounds: the first passes of a round bring the rank's own data, the others bring received data, which may be
reduced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from convoy_controllers.astrasim.collective.phase import RingPhase
from convoy_controllers.astrasim.parameters import AlgorithmKind, CollectiveType


class Insertion(NamedTuple):
    """One pass of data through the memory."""

    to_memory: bool
    """True if the processor sends its own data, False if received data comes back from memory."""
    reduced: bool
    sent_back: bool = False
    """True if the shared bus carries the data back to the side it came from."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The passes of an algorithm in one phase."""

    own: int
    """Passes of own data at the start of each round."""
    received: int
    """Passes of received data in each round."""
    reduces: bool
    """True if received data is reduced in every second round, from the first on."""
    always: bool
    """True if received data is reduced in every round."""

    def insertion(self, number: int) -> Insertion:
        """Return the pass with a running number."""
        round_, place = divmod(number, self.own + self.received)
        if place < self.own:
            return Insertion(True, False)
        reduced = self.always or (self.reduces and round_ % 2 == 0)
        left = self.received - (place - self.own)
        return Insertion(False, reduced, left > self.own)


def rounds(phase: RingPhase, at_once: int) -> Rounds:
    """Return the passes of a phase that sends `at_once` messages at once."""
    ranks = len(phase.ring.members)
    match phase.kind:
        case AlgorithmKind.HALVING_DOUBLING:
            received = int(math.log2(ranks) - 1)
        case AlgorithmKind.DIRECT if not phase.ring.group:
            received = at_once
        case _:
            received = (ranks - 1) * at_once
    return Rounds(
        at_once,
        received,
        reduces=phase.type is CollectiveType.ALL_REDUCE,
        always=phase.type is CollectiveType.REDUCE_SCATTER,
    )


@lru_cache(maxsize=256)
def reductions(passes: Rounds, count: int) -> tuple[bool, ...]:
    """Return for each of the first `count` passes whether it reduces; empty if none does."""
    if not passes.reduces and not passes.always:
        return ()
    return tuple(passes.insertion(number).reduced for number in range(count))
