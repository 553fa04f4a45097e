"""Records the steps that the operator asks for, while the program trains on.

Without an order, this costs one comparison before a step and one after it. The recorder runs in the steps
that are asked for, and nowhere else. Afterwards another process of low priority converts the files and sends
the trace to the agent (trace_sender.py). What goes wrong is reported to the agent. It never ends the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.trace_protocol import Failure, failure_frame
from convoy_workloads.runtime.trace_sender import TraceSender

OFF = 2**63
"""Number that no step reaches."""
OLDEST = (3, 10)
"""Oldest Python that can convert a trace."""
CLOSE_SECONDS = 60.0
"""Maximum seconds for which the end of the program waits until its trace is sent."""
JSON_FACTOR = 7
"""Bytes of torch's files for each byte that the trace may have. Measured: 4 to 5 in trainings of linear
layers, convolutions and transformers, and 7 where nearly all nodes are communications (torch 2.13).
"""


@dataclass(frozen=True)
class Order:
    """Steps that this rank records."""

    recording: int
    attempt: int
    first: int
    count: int
    max_bytes: int

    @property
    def steps(self) -> range:
        """Return the numbers of the steps."""
        return range(self.first, self.first + self.count)

    def report(self, failure: Failure, message: str) -> Message:
        """Return the message that tells the agent of a failure."""
        return failure_frame(self.recording, self.attempt, failure, message)


NOTHING = Order(0, 0, 0, 0, 0)
"""The order before the first recording."""


def parse_order(found: Any, rank: int) -> Order | None:
    """Return the order in the agent's message for this rank; None if there is none, or a malformed one."""
    try:
        if not isinstance(found, Mapping) or rank not in found["ranks"]:
            return None
        names = ("recording", "attempt", "first", "count", "maxBytes")
        return Order(*(int(found[name]) for name in names))
    except (KeyError, TypeError, ValueError):
        return None


class StepTracer:
    """Records the ordered steps of this rank. The training thread calls all methods except `on_message`."""

    def __init__(self, context: RankContext, group: Callable[[], str] = str) -> None:
        """`group`: returns the name of Convoy's own process group, whose bytes are not those of the
        program.
        """
        self.report: Callable[[Message], None] | None = None
        """Function that sends a message to the agent; None if there is none."""
        self._context = context
        self._group = group
        self._order = parse_order(_from_json(context.trace), context.rank)
        self.due = self._order.first if self._order else OFF
        """Number of the step before which `start_step` must be called."""
        self.active = False
        """True in a recorded step, after which `end_step` must be called."""
        self._recorder: Any = None
        self._step: Any = None
        self._folder = Path()
        self._recorded = NOTHING
        """The order of the newest recording."""
        self._sender: TraceSender | None = None
        self._lock = threading.Lock()
        """Lock of `_order` and `due`, which the link's thread changes too."""

    def steps(self, numbers: Iterable[int]) -> Iterator[int]:
        """Yield the numbers of steps, and record the ordered ones."""
        for step in numbers:
            if step >= self.due:
                self.start_step(step)
            yield step
            if self.active:
                self.end_step(step)

    def on_message(self, message: Message) -> None:
        """Take the agent's message of a new order, or that there is none. Any thread may call this."""
        order = parse_order(message.get("order"), self._context.rank)
        with self._lock:
            if order != self._order:
                self._order = order
                # At the next step, a recorder that runs must see that its order is over.
                self.due = 0 if self._recorder is not None or order is None else order.first

    def start_step(self, step: int) -> None:
        """Start to record `step` if it is one of the ordered steps."""
        order = self._order
        same = order is not None and order is self._recorded and step in order.steps
        if self._recorder is not None and not same:
            self._stop()
        if order is None or step < order.first:
            self._wait_for(order)
        elif self._recorder is None and step > order.first:
            self._fail(order, Failure.STEPS_PASSED, f"step {step} begins")
        elif self._recorder is not None or self._start(order):
            self._step = self._recorder.step(step)
            try:
                self._step.__enter__()
            except Exception as error:  # The program must not notice.
                self._stop()
                self._fail(order, Failure.NOT_RECORDED, f"{type(error).__name__}: {error}")
            else:
                self.active = True

    def end_step(self, step: int) -> None:
        """End the recording of `step`. After the last step, let another process send the trace."""
        self.active = False
        try:
            self._step.__exit__(None, None, None)
        except Exception as error:  # The program must not notice.
            self._stop()
            self._fail(self._recorded, Failure.NOT_RECORDED, f"{type(error).__name__}: {error}")
            return
        recorder, order = self._recorder, self._recorded
        if recorder.problem:
            self._stop()
            self._fail(
                order, Failure.TOO_LARGE if recorder.too_large else Failure.NOT_RECORDED, recorder.problem
            )
        elif recorder.files:
            self._recorder = None
            self._close_order(order)
            self._send(order)

    def close(
        self, seconds: float, extend: Callable[[float], None] = lambda _: None, *, ended: bool = True
    ) -> None:
        """Wait at most `seconds` until the trace is sent. Drop a recording that is not complete.

        `extend`: called with the seconds before a wait. `ended`: True if the program has no more steps. Then
        an order without a trace has failed; a job that was interrupted records again when it goes on.
        """
        recorder, order = self._recorder, self._order
        if recorder is not None:
            self._stop()
        if ended and order is not None and (recorder is not None or self.due != OFF):
            last = order.first + order.count - 1
            self._fail(order, Failure.NOT_RECORDED, f"the program ended before the end of step {last}")
        sender, self._sender = self._sender, None
        if sender is None or sender.wait(0):
            return
        extend(seconds)
        if not sender.wait(seconds):
            sender.stop(f"it was not stored within {seconds:.0f} s after the last step of the program")

    def _start(self, order: Order) -> bool:
        """Return True if the recorder has been made."""
        if sys.version_info[:2] < OLDEST:
            self._fail(order, Failure.NOT_RECORDED, f"traces need Python {OLDEST[0]}.{OLDEST[1]} or later")
            return False
        if "torch" not in sys.modules:
            self._fail(order, Failure.NOT_RECORDED, "the program does not use PyTorch")
            return False
        if self._sender is not None:
            self._sender.stop("another recording began")
        try:
            from convoy_workloads.traces.record import record  # noqa: PLC0415 - only ranks that record need it

            self._folder = _folder(self._context.rank)
            self._recorder = record(
                self._folder, order.steps, rank=self._context.rank, max_bytes=JSON_FACTOR * order.max_bytes
            )
        except (OSError, ImportError, ValueError) as error:
            self._fail(order, Failure.NOT_RECORDED, str(error))
            return False
        self._recorded = order
        return True

    def _send(self, order: Order) -> None:
        context = self._context
        task = {
            "folder": str(self._folder),
            "socket": context.socket,
            "incarnation": context.incarnation,
            "rank": context.rank,
            "recording": order.recording,
            "attempt": order.attempt,
            "maxBytes": order.max_bytes,
            "ownGroup": self._group(),
        }

        def report(failure: Failure, why: str) -> None:
            self._fail(order, failure, why)

        try:
            self._sender = TraceSender(self._folder, task, report)
        except (OSError, RuntimeError) as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._fail(order, Failure.NOT_RECORDED, f"the conversion does not start: {error}")

    def _fail(self, order: Order, failure: Failure, why: str) -> None:
        """Report that the order failed. Any thread may call this."""
        self._close_order(order)
        if self.report is not None:
            self.report(order.report(failure, why))
        log_line(f"rank {self._context.rank} has no trace: {why}")

    def _wait_for(self, order: Order | None) -> None:
        """Do nothing before the first step of the newest order; never if there is none."""
        with self._lock:
            if self._order is order:
                self.due = order.first if order else OFF

    def _close_order(self, order: Order) -> None:
        """Do nothing more for an order. It stays known, because the agent repeats it after a reconnect."""
        with self._lock:
            if self._order is order:
                self.due = OFF

    def _stop(self) -> None:
        """Stop the recorder and drop its files."""
        recorder, self._recorder, self.active = self._recorder, None, False
        with contextlib.suppress(Exception):  # The program must not notice.
            recorder.__exit__(None, InterruptedError(), None)
        shutil.rmtree(self._folder, ignore_errors=True)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _folder(rank: int) -> Path:
    """Return a new folder for the files of a recording. Raises OSError.

    Folders of earlier recordings are removed, but not those of other processes that run.
    """
    prefix = f"convoy-trace-{rank}-"
    try:
        place = tempfile.gettempdir()
    except FileNotFoundError:
        place = "/dev/shm"  # noqa: S108 - each pod has it; the image's own folders may be read-only
    own = str(os.getpid())
    for old in Path(place).glob(f"{prefix}*"):
        owner = old.name.removeprefix(prefix).partition("-")[0]
        if owner == own or not Path("/proc", owner).exists():
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{own}-", dir=place))
