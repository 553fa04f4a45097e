"""Collects what one process spends its steps on, from whoever measures it.

The wrapper that averages gradients knows when this rank's own passes were over, and when all ranks' were, but
says so only when the next step begins. So a step is told when the one after it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.runtime.telemetry.communicators import Communicator, Transfers
from convoy_workloads.runtime.telemetry.windows import TimeSpent, Windows


@dataclass(frozen=True)
class Passes:
    """The forward and backward passes of a step, as the model's wrapper has measured them."""

    compute: float
    """Seconds from the first forward pass until the last gradient of this rank was there."""
    wait: float
    """Seconds from then until the gradients of all ranks were."""


@dataclass
class _Step:
    number: int = 0
    spent: TimeSpent = field(default_factory=TimeSpent)
    host: float = 0.0
    """On what is known to be the host's own: garbage collection."""
    forwards: list[tuple[float, float]] = field(default_factory=list)
    """When each forward pass began, and what had been spent on other things by then."""
    began_ns: int = 0
    """When the first of them did, by the system's clock; 0 before."""
    passed: float = 0.0
    """What had been spent on other things when the passes were over."""

    @property
    def other(self) -> float:
        """Seconds that are known to be no pass."""
        spent = self.spent
        return spent.optimizer + spent.data + spent.wait + spent.save + self.host


Measure = Callable[[int], "Passes | None"]
"""The passes of the step before the one that runs; the first of them began at this time (system's clock, in
nanoseconds)."""


class StepRecorder:
    """One process's. Only its own thread counts: what loads or writes beside the training costs no step."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.send: Callable[[dict[str, Any]], None] | None = None
        """Takes each window; nothing is measured before it is set."""
        self.collect: Callable[[], None] | None = None
        """Called when a step ends, before it is closed: what is known late counts to it."""
        self.measure: Measure | None = None
        """Without it, what is left of a step counts as its passes."""
        self._clock = clock
        self._thread = threading.get_ident()
        self._windows = Windows()
        self._began = 0.0
        self._open = _Step()
        self._before: _Step | None = None

    def spend(self, kind: str, seconds: float) -> None:
        """So much of the open step went to `kind`: optimizer, data, wait, save or host."""
        if self.send is None or threading.get_ident() != self._thread:
            return
        if kind == "host":
            self._open.host += seconds
        else:
            setattr(self._open.spent, kind, getattr(self._open.spent, kind) + seconds)

    @contextmanager
    def spending(self, kind: str) -> Iterator[None]:
        """Counts the time of a block."""
        began = self._clock()
        try:
            yield
        finally:
            self.spend(kind, self._clock() - began)

    def forward_started(self) -> None:
        """A forward pass of the model that is trained begins."""
        if self.send is None or threading.get_ident() != self._thread:
            return
        self._open.began_ns = self._open.began_ns or time.time_ns()
        self._open.forwards.append((self._clock(), self._open.other))

    def optimizer_started(self) -> None:
        """The passes of the open step are over: its optimizer begins."""
        self._open.passed = self._open.passed or self._open.other

    def record_transfers(self, communicator: Communicator, moved: Transfers) -> None:
        """A collective that is over in the open step."""
        if self.send is not None:
            self._open.spent.add_moved({communicator: moved})

    def tokens(self, count: int) -> None:
        """So many tokens, or samples, this rank has worked through in the open step."""
        self._open.spent.tokens += count

    def step(self, number: int) -> None:
        """Step `number` is done, the next begins."""
        if self.send is None:
            return
        if self.collect is not None:
            self.collect()
        now = self._clock()
        done, self._open = self._open, _Step()
        began, self._began = self._began, now
        if not began:
            return  # what was before the first end of a step belongs to none
        done.number, done.spent.wall = number, now - began
        if self.measure is None:
            done.spent.compute = max(0.0, done.spent.wall - done.other)
            self._close(done)
            return
        before, self._before = self._before, done
        if before is not None and before.number == number - 1:
            self._close_measured(before)

    def _close_measured(self, step: _Step) -> None:
        passes = self.measure(step.began_ns) if self.measure and step.began_ns else None
        if passes is None:
            return  # unknown is better than wrong: the window begins anew
        marks = [*step.forwards, (step.forwards[0][0] + passes.compute, step.passed)]
        micro = [
            max(0.0, (then - at) - (after - known))
            for (at, known), (then, after) in zip(marks, marks[1:])  # noqa: B905, RUF007 - Python 3.9
        ]
        step.spent.compute = sum(micro)
        step.spent.micro = micro if len(micro) > 1 else []
        step.spent.wait += passes.wait
        self._close(step)

    def _close(self, step: _Step) -> None:
        window = self._windows.step(step.number, step.spent)
        if window is not None and self.send is not None:
            self.send(window)
