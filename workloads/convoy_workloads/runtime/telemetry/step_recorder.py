"""The recorder of the time that one process spends on the parts of a step. Hooks (torch_hooks.py) call it.

The DDP wrapper knows when this rank's own passes ended and when all ranks' passes ended. But the wrapper
publishes these times only when the next step starts. So a step is reported when the following step ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.runtime.telemetry.communicators import Communicator, Transfers
from convoy_workloads.runtime.telemetry.position import Position
from convoy_workloads.runtime.telemetry.windows import TimeSpent, Windows


@dataclass(frozen=True)
class Passes:
    """The forward and backward passes of a step, as measured by the DDP wrapper."""

    compute: float
    """Seconds from the start of the first forward pass until this rank's last gradient was ready."""
    wait: float
    """Seconds from the moment when this rank's last gradient was ready until the gradients of all ranks
    were ready.
    """


@dataclass
class _Step:
    number: int = 0
    spent: TimeSpent = field(default_factory=TimeSpent)
    host: float = 0.0
    """Seconds that Python's garbage collector took in this step."""
    forwards: list[tuple[float, float]] = field(default_factory=list)
    """For each forward pass: the time of its start, in seconds of the recorder's clock, and the value of
    `other` at that time.
    """
    began_ns: int = 0
    """Unix time in nanoseconds when the first forward pass started; 0 before that."""
    passed: float = 0.0
    """The value of `other` when the optimizer started. At that time all passes of the step are over. 0
    before the optimizer starts.
    """

    @property
    def other(self) -> float:
        """Seconds of this step that were measured for activities other than passes."""
        spent = self.spent
        return spent.optimizer + spent.data + spent.wait + spent.save + self.host


Measure = Callable[[int], "Passes | None"]
"""A function that returns the passes of the previous step.

Its argument is the Unix time in nanoseconds when the first forward pass of that step started.
"""


class StepRecorder:
    """Records how one process spends the time of its steps, and sends windows of steps to the agent.

    Only time of the training thread counts, because background loading and writing do not make a step
    longer.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.send: Callable[[dict[str, Any]], None] | None = None
        """Function that sends each window. The recorder measures nothing before this function is set."""
        self.collect: Callable[[], None] | None = None
        """Function that is called at the end of each step. It adds the durations of collectives that a
        device finished later than their calls.
        """
        self.measure: Measure | None = None
        """Function that measures the forward and backward passes. Without it, all time of a step that no
        other activity accounts for counts as passes.
        """
        self.position: Position | None = None
        """This rank's position in the parallel layout; None if it is not known."""
        self.find_position: Callable[[], Position | None] | None = None
        """Function that finds the position while it is not known. It is called once per window."""
        self._clock = clock
        self._thread = threading.get_ident()
        self._windows = Windows()
        self._began = 0.0
        self._open = _Step()
        self._before: _Step | None = None

    def spend(self, kind: str, seconds: float) -> None:
        """Add `seconds` to the activity `kind` of the open step: optimizer, data, wait, save or host. Calls
        from other threads than the training thread are ignored.
        """
        if self.send is None or threading.get_ident() != self._thread:
            return
        if kind == "host":
            self._open.host += seconds
        else:
            setattr(self._open.spent, kind, getattr(self._open.spent, kind) + seconds)

    @contextmanager
    def spending(self, kind: str) -> Iterator[None]:
        """Return a context whose duration is added to the activity `kind` of the open step."""
        began = self._clock()
        try:
            yield
        finally:
            self.spend(kind, self._clock() - began)

    def forward_started(self) -> None:
        """Record that a forward pass of the trained model starts."""
        if self.send is None or threading.get_ident() != self._thread:
            return
        self._open.began_ns = self._open.began_ns or time.time_ns()
        self._open.forwards.append((self._clock(), self._open.other))

    def optimizer_started(self) -> None:
        """Record that the passes of the open step are over, because its optimizer starts."""
        self._open.passed = self._open.passed or self._open.other

    def record_transfers(self, communicator: Communicator, moved: Transfers) -> None:
        """Record the duration and size of a collective in the open step."""
        if self.send is not None:
            self._open.spent.add_moved({communicator: moved})

    def exchanged(self) -> None:
        """Record that the rank exchanges data with a single other rank in the open step."""
        self._open.spent.exchanges = True

    def tokens(self, count: int) -> None:
        """Add tokens, or samples, that this rank processed in the open step."""
        self._open.spent.tokens += count

    def step(self, number: int) -> None:
        """Close the open step as step `number`, and open the next step."""
        if self.send is None:
            return
        if self.collect is not None:
            self.collect()
        now = self._clock()
        done, self._open = self._open, _Step()
        began, self._began = self._began, now
        if not began:
            return  # The start of the first step is unknown, so the first step is not recorded.
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
            # DDP has no times of this step's passes, so do not report the step. The missing step makes
            # Windows drop the open window and start another one.
            return
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
            if self.position is None and self.find_position is not None:
                self.position = self.find_position()
            self.send({**window, **(self.position.message() if self.position is not None else {})})
