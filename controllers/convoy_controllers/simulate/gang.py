"""A gang: the ranks of one incarnation. Either all of them step or none.

All steps of a stretch have the same length, so the step at any moment is computed, not simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from convoy_controllers.simulate.kernel import Timer
from convoy_controllers.simulate.program import Program
from convoy_controllers.views import RankView

_SLACK = 1e-6
"""Tolerance in seconds for rounding errors of step times."""
_KEPT = 4
"""Number of past stretches that a gang remembers. A stretch is a period of steps without interruption.

Callers need only the steps of the last second, so this number is enough.
"""


@dataclass(slots=True)
class Stretch:
    """A period in which a gang steps without interruption. Step `step` ended at `begin`, and each later
    step takes `length` seconds.
    """

    begin: float
    step: int
    length: float
    end: float = math.inf


@dataclass(slots=True)
class Gang:
    """The ranks of one incarnation. Times are Unix seconds."""

    job: str
    job_uid: str
    incarnation: int
    world_size: int
    program: Program
    joined: dict[str, int] = field(default_factory=dict)
    """Number of ranks that have joined, by uid of their pod."""
    members: frozenset[str] = frozenset()
    """Uids of all pods of the gang. Empty until the last one has joined."""
    stretches: list[Stretch] = field(default_factory=list)
    first_step: float = 0.0
    """Virtual time in seconds at which the first step ended; 0 if it has not ended."""
    saved: float = 0.0
    """Virtual time in seconds at which the newest save ended; before the first save, that of the end of the
    first step.
    """
    timer: Timer | None = None
    """Timer of the gang's next event."""
    saving: bool = False
    """True while a checkpoint pauses the gang."""
    paused_seconds: float = 0.0
    """Total seconds for which checkpoints have paused the gang."""
    broken: bool = False
    """True if a rank has ended or hangs, so that the gang makes no more steps."""
    last: tuple[int, float] = (0, 0.0)
    """The newest step and its end, as they were when the gang last stopped."""

    @property
    def whole(self) -> bool:
        """True if all ranks have joined."""
        return sum(self.joined.values()) == self.world_size

    @property
    def stepping(self) -> bool:
        """True if the gang makes steps."""
        return bool(self.stretches) and self.stretches[-1].end == math.inf

    def start(self, now: float, step: int, length: float) -> None:
        """Start to make steps of `length` seconds. `step` is the last step that is already finished."""
        self.stretches = [*self.stretches[-_KEPT:], Stretch(now, step, length)]

    def change_length(self, now: float, length: float) -> None:
        """Continue with steps of another length. The unfinished step keeps the share that is done."""
        stretch = self.stretches[-1]
        done = (now - stretch.begin) / stretch.length
        whole = math.floor(done + _SLACK)
        self.stop(now)
        self.start(now - max(0.0, done - whole) * length, stretch.step + whole, length)

    def stop(self, now: float) -> None:
        """Stop making steps. An unfinished step is lost."""
        if self.stepping:
            self.last = self.at(now)
            self.stretches[-1].end = now

    def at(self, moment: float) -> tuple[int, float]:
        """Return the newest step that has ended by `moment`, and the time of its end; (0, 0.0) if there is
        none.
        """
        for stretch in reversed(self.stretches):
            if stretch.begin <= moment:
                steps = math.floor((min(moment, stretch.end) - stretch.begin + _SLACK) / stretch.length)
                if steps > 0:
                    return stretch.step + steps, stretch.begin + steps * stretch.length
        return self.last if self.first_step and moment >= self.first_step else (0, 0.0)

    def progress(self, ranks: tuple[RankView, ...], moment: float) -> tuple[RankView, ...]:
        """Return ranks of the gang with the steps that they had made by `moment`."""
        step, at = self.at(moment)
        if not step:
            return ranks
        return tuple(
            replace(
                rank,
                step=step,
                time=at,
                first_step=self.first_step,
                checkpoint_seconds=round(self.paused_seconds, 3),
                save_seconds=self.program.save_seconds if self.paused_seconds else 0.0,
                copy_seconds=self.program.commit_seconds if self.paused_seconds else 0.0,
                total_steps=self.program.total_steps,
            )
            if rank.state == "RUNNING"
            else rank
            for rank in ranks
        )

    def when(self, step: int) -> float:
        """Return the virtual time in seconds at which a step will end if nothing interrupts the current
        stretch.
        """
        stretch = self.stretches[-1]
        return stretch.begin + (step - stretch.step) * stretch.length
