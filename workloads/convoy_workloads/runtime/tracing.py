"""Records the steps that the operator asks for, while the program trains on.

Without an order, this costs one comparison before a step and one after it. The recorder runs in the steps
that are asked for, and nowhere else. Afterwards another process of low priority converts the files and sends
the trace to the agent (traces/send.py). What goes wrong is reported to the agent, and never ends the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import convoy_workloads
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.rank_context import RankContext

OFF = 2**63
"""Number that no step reaches."""
OLDEST = (3, 10)
"""Oldest Python that can convert a trace."""
NOT_RECORDED, STEPS_PASSED, TOO_LARGE, NOT_STORED = "NOT_RECORDED", "STEPS_PASSED", "TOO_LARGE", "NOT_STORED"
"""Names of failures (hub.proto TraceReport.Failure)."""
CLOSE_SECONDS = 60.0
"""Maximum seconds for which the end of the program waits until its trace is sent."""
JSON_FACTOR = 16
"""Bytes of torch's files for each byte that the trace may have. Usually they are four times as large."""


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

    def report(self, failure: str, message: str) -> Message:
        """Return the message that tells the agent of a failure."""
        return {
            "type": "traceFailed",
            "recording": self.recording,
            "attempt": self.attempt,
            "failure": failure,
            "message": message[:500],
        }


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
        self._sending: subprocess.Popen[bytes] | None = None
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
            self._fail(order, STEPS_PASSED, f"step {step} begins")
        elif self._recorder is not None or self._start(order):
            self._step = self._recorder.step(step)
            try:
                self._step.__enter__()
            except Exception as error:  # The program must not notice.
                self._stop()
                self._fail(order, NOT_RECORDED, f"{type(error).__name__}: {error}")
            else:
                self.active = True

    def end_step(self, step: int) -> None:
        """End the recording of `step`. After the last step, let another process send the trace."""
        self.active = False
        try:
            self._step.__exit__(None, None, None)
        except Exception as error:  # The program must not notice.
            self._stop()
            self._fail(self._recorded, NOT_RECORDED, f"{type(error).__name__}: {error}")
            return
        recorder, order = self._recorder, self._recorded
        if recorder.problem:
            self._stop()
            self._fail(order, TOO_LARGE if recorder.too_large else NOT_RECORDED, recorder.problem)
        elif recorder.files:
            self._recorder = None
            self._close_order(order)
            self._send(order)

    def close(self, seconds: float, extend: Callable[[float], None] = lambda _: None) -> None:
        """Wait at most `seconds` until the trace is sent. Drop a recording that is not complete.

        `extend`: called with the seconds before a wait.
        """
        if self._recorder is not None:
            self._stop()
        sending, self._sending = self._sending, None
        if sending is None:
            return
        try:
            if sending.poll() is None:
                extend(seconds)
                sending.wait(seconds)
        except subprocess.TimeoutExpired:
            sending.kill()
            sending.wait()
            self._fail(self._recorded, NOT_STORED, f"it was not stored within {seconds:.0f} s")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, order: Order) -> bool:
        """Return True if the recorder has been made."""
        if sys.version_info[:2] < OLDEST:
            self._fail(order, NOT_RECORDED, f"traces need Python {OLDEST[0]}.{OLDEST[1]} or later")
            return False
        if "torch" not in sys.modules:
            self._fail(order, NOT_RECORDED, "the program does not use PyTorch")
            return False
        self.close(0)
        try:
            from convoy_workloads.traces.record import record  # noqa: PLC0415 - only ranks that record need it

            self._folder = _folder(self._context.rank)
            self._recorder = record(
                self._folder, order.steps, rank=self._context.rank, max_bytes=JSON_FACTOR * order.max_bytes
            )
        except (OSError, ImportError, ValueError) as error:
            self._fail(order, NOT_RECORDED, str(error))
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
        command = [sys.executable, "-m", "convoy_workloads.traces.send", json.dumps(task)]
        try:
            self._sending = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, cwd=self._folder, env=_environment()
            )
        except OSError as error:
            self._fail(order, NOT_RECORDED, f"the conversion does not start: {error}")

    def _fail(self, order: Order, failure: str, why: str) -> None:
        """Report that the order failed."""
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


def _environment() -> dict[str, str]:
    """Return an environment in which another Python finds this package."""
    root = str(Path(convoy_workloads.__file__ or "").resolve().parents[1])
    path = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
