"""The ranks of one incarnation, which step together or not at all.

Between two events steps are evenly spaced, so where a gang stands at any moment is computed, not played.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from convoy_controllers.simulate.kernel import Timer
from convoy_controllers.simulate.program import Program

_SLACK = 1e-6
"""Seconds by which sums of step lengths may miss a step's end."""
_KEPT = 4
"""Stretches that are kept; only the moments of the last second are ever asked for."""


@dataclass(slots=True)
class Stretch:
    """Steps without interruption: step `step` had ended at `begin`, the next end a step length apart."""

    begin: float
    step: int
    end: float = math.inf


@dataclass(slots=True)
class Gang:
    """One formation of a job's process group. Times are Unix seconds."""

    job: str
    job_uid: str
    incarnation: int
    world_size: int
    program: Program
    joined: dict[str, int] = field(default_factory=dict)
    """By uid, the pods whose ranks run and are in it: how many those are."""
    members: frozenset[str] = frozenset()
    """Uids of all its pods, once the last has joined."""
    stretches: list[Stretch] = field(default_factory=list)
    first_step: float = 0.0
    """When its first step ended; 0 before."""
    saved: float = 0.0
    """When its newest checkpoint was begun to be written, or its first step ended."""
    timer: Timer | None = None
    """Of what it does next."""
    saving: bool = False
    """A checkpoint holds it up."""
    paused_seconds: float = 0.0
    """Seconds for which checkpoints held it up."""
    broken: bool = False
    """A rank is gone or stands still: it will never step again."""
    last: tuple[int, float] = (0, 0.0)
    """Its newest step and when that ended, as of the last stop."""

    @property
    def whole(self) -> bool:
        """Whether all of its ranks run."""
        return sum(self.joined.values()) == self.world_size

    @property
    def stepping(self) -> bool:
        """Whether it makes steps now."""
        return bool(self.stretches) and self.stretches[-1].end == math.inf

    def start(self, now: float, step: int) -> None:
        """Steps from now on; `step` is done."""
        self.stretches = [*self.stretches[-_KEPT:], Stretch(now, step)]

    def stop(self, now: float) -> None:
        """Makes no further step. A step that is not through is lost."""
        if self.stepping:
            self.last = self.at(now)
            self.stretches[-1].end = now

    def at(self, moment: float) -> tuple[int, float]:
        """The newest step that had ended by then, and when it did; (0, 0) before the first."""
        length = self.program.step_seconds
        for stretch in reversed(self.stretches):
            if stretch.begin <= moment:
                steps = math.floor((min(moment, stretch.end) - stretch.begin + _SLACK) / length)
                if steps > 0:
                    return stretch.step + steps, stretch.begin + steps * length
        return self.last if self.first_step and moment >= self.first_step else (0, 0.0)

    def when(self, step: int) -> float:
        """When a step ends, if nothing comes between, in the stretch that runs."""
        stretch = self.stretches[-1]
        return stretch.begin + (step - stretch.step) * self.program.step_seconds
