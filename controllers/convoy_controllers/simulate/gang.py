"""The ranks of one incarnation. They step together or not at all.

Steps between two events have equal length, so the step at any moment is computed and not simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from convoy_controllers.simulate.kernel import Timer
from convoy_controllers.simulate.program import Program

_SLACK = 1e-6
"""Tolerance for rounding errors of step times, in seconds."""
_KEPT = 4
"""Number of past stretches to keep. Callers need at most the last second."""


@dataclass(slots=True)
class Stretch:
    """Steps without interruption. Step `step` ended at `begin`; each later step ends one step length after
    it.
    """

    begin: float
    step: int
    end: float = math.inf


@dataclass(slots=True)
class Gang:
    """The process group of one incarnation. Times are Unix seconds."""

    job: str
    job_uid: str
    incarnation: int
    world_size: int
    program: Program
    joined: dict[str, int] = field(default_factory=dict)
    """Number of ranks that joined, by uid of their pod."""
    members: frozenset[str] = frozenset()
    """Uids of all pods, set when the last one has joined."""
    stretches: list[Stretch] = field(default_factory=list)
    first_step: float = 0.0
    """When the first step ended; 0 before."""
    saved: float = 0.0
    """When the newest save began; before the first save, when the first step ended."""
    timer: Timer | None = None
    """The gang's next event."""
    saving: bool = False
    """True while a checkpoint pauses the gang."""
    paused_seconds: float = 0.0
    """Seconds that checkpoints have paused the gang."""
    broken: bool = False
    """True if a rank has ended or hangs, so that the gang never steps again."""
    last: tuple[int, float] = (0, 0.0)
    """The newest step and its end, as of the last stop."""

    @property
    def whole(self) -> bool:
        """True if all ranks have joined."""
        return sum(self.joined.values()) == self.world_size

    @property
    def stepping(self) -> bool:
        """True if the gang makes steps."""
        return bool(self.stretches) and self.stretches[-1].end == math.inf

    def start(self, now: float, step: int) -> None:
        """Start to step. The last finished step is `step`."""
        self.stretches = [*self.stretches[-_KEPT:], Stretch(now, step)]

    def stop(self, now: float) -> None:
        """Stop stepping. An unfinished step is lost."""
        if self.stepping:
            self.last = self.at(now)
            self.stretches[-1].end = now

    def at(self, moment: float) -> tuple[int, float]:
        """Return the newest step that ended by this moment, and its end; (0, 0) before the first step."""
        length = self.program.step_seconds
        for stretch in reversed(self.stretches):
            if stretch.begin <= moment:
                steps = math.floor((min(moment, stretch.end) - stretch.begin + _SLACK) / length)
                if steps > 0:
                    return stretch.step + steps, stretch.begin + steps * length
        return self.last if self.first_step and moment >= self.first_step else (0, 0.0)

    def when(self, step: int) -> float:
        """Return when a step will end if nothing interrupts the current stretch."""
        stretch = self.stretches[-1]
        return stretch.begin + (step - stretch.step) * self.program.step_seconds
