"""Runs one collective, by events or in closed form.

The mode `hybrid` plays every line of a message of up to `seam` bytes. Above, the time is

    events(seam) + analytical(size) - analytical(seam)

so both meet at the seam without a jump, and above it the time grows with the size as the closed form does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from convoy_controllers.astrasim.loadstore import analytical
from convoy_controllers.astrasim.loadstore.algorithms import phases
from convoy_controllers.astrasim.loadstore.events import Played, play
from convoy_controllers.astrasim.loadstore.limits import EVENTS, check, check_events, plays_events
from convoy_controllers.astrasim.loadstore.parameters import Mode, Setup, Skew
from convoy_controllers.astrasim.loadstore.workgroup import Part

KEPT = 1024
"""Runs at the seam that are kept for other sizes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a run."""

    time: Fraction
    """End of the last workgroup in ns, exact in the model."""
    moved: int
    """Bytes of data that each GPU has received."""
    events: int
    """Events played; 0 in closed form."""
    parts: dict[Part, Fraction] | None
    """Parts of the time in ns; None in closed form."""

    @property
    def bandwidth(self) -> float:
        """Return the bytes that a GPU receives, per ns of the whole run."""
        return float(self.moved / self.time)


def run(setup: Setup, budget: int = EVENTS, skew: Skew | None = None, path: str = "loadStore") -> Outcome:
    """Run a collective. With `skew` the events of every GPU are played.

    Raises InvalidInput for a parameter that no run can use, or for more than `budget` events. `path` is the
    path of the setup in error messages.
    """
    check(setup, path)
    check_events(setup, budget, skew is not None, path)
    moved = sum(one.size * len(one.peers) for one in phases(setup))
    if plays_events(setup, skew is not None):
        played = play(setup, budget, skew)
        return Outcome(played.time, moved, played.events, played.parts)
    if setup.mode is Mode.ANALYTICAL:
        return Outcome(analytical.time(setup), moved, 0, None)
    at_seam = replace(setup, size=setup.seam)
    played = _at_seam(at_seam, budget)
    time = played.time + analytical.time(setup) - analytical.time(at_seam)
    return Outcome(time, moved, played.events, None)


@lru_cache(maxsize=KEPT)
def _at_seam(setup: Setup, budget: int) -> Played:
    return play(setup, budget)
