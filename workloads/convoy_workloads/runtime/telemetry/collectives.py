"""The duration of collectives, by communicator. A collective is measured only if the program waits for it,
and if each member of the communicator waits for all other members.

The functions of `torch.distributed` are wrapped. The methods of `ProcessGroup` are not wrapped, because C++
would mistake a wrapper for an override by the program. So collectives that start in C++ are not measured:
those of DistributedDataParallel's reducer, functional collectives and compiled graphs. Asynchronous
collectives are not measured either, because the program waits for only a part of their duration. An error
in this module ends the measurement, never the program.

On a device such as a GPU, a call returns before the collective ends. So an event is recorded on the
device's stream before and after the collective, and the time between the two events is read later.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from convoy_workloads.runtime.telemetry.communicators import (
    MIN_BYTES,
    Communicator,
    Transfers,
    format_ranks,
    kind_of,
)
from convoy_workloads.runtime.telemetry.step_recorder import StepRecorder

MUTUAL = {
    "all_reduce": "tensor",
    "all_gather": "tensor_list",
    "all_gather_into_tensor": "output_tensor",
    "all_gather_single": "output_tensor",
    "reduce_scatter": "input_list",
    "reduce_scatter_tensor": "input",
    "reduce_scatter_single": "input",
    "all_to_all": "input_tensor_list",
    "all_to_all_single": "input",
}
"""Functions of `torch.distributed` in which each member waits for all other members. The value is the name
of the argument that holds all transferred data.
"""
MAX_PENDING = 1024
"""Maximum number of measured collectives whose events a device has not yet reached. If there are more, the
oldest are dropped.
"""


class Event(Protocol):
    """A point in the work of a device's stream, such as a torch.cuda.Event."""

    def query(self) -> bool:
        """Return True if the stream has reached this point."""
        ...

    def elapsed_time(self, end_event: Any, /) -> float:
        """Return the milliseconds from this event to `end_event`."""
        ...


@dataclass(frozen=True)
class Call:
    """One call of a collective that is measured."""

    communicator: Communicator
    bytes: int
    device: Any
    """The device of the data; None for the CPU."""


class Torch(Protocol):
    """The functions of torch that the measurement needs."""

    def compiling(self) -> bool:
        """Return True while torch traces a graph. In that case the wrappers measure nothing and only call
        the wrapped function.
        """
        ...

    def call(self, group: Any, moved: Any) -> Call | None:
        """Return the communicator, size and device of a collective; None if the collective is not measured.

        `moved`: the transferred data, which is a tensor or a list of tensors.
        """
        ...

    def mark(self, device: Any) -> Event | None:
        """Return an event recorded now on the device; None if no event may be recorded."""
        ...


class CollectiveTimer:
    """Measures the collectives that the training thread of this process calls."""

    def __init__(
        self, recorder: StepRecorder, torch: Torch, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._recorder = recorder
        self._torch = torch
        self._clock = clock
        self._thread = threading.get_ident()
        self._pending: deque[tuple[Call, Event, Event]] = deque(maxlen=MAX_PENDING)
        self._inside = False
        self.broken = False
        """True after an error of the measurement. Then nothing more is measured."""

    def wrap(self, *modules: Any) -> None:
        """Wrap the measured functions in each of `modules`. The program may call these functions from any
        of the modules.
        """
        for function, moved in MUTUAL.items():
            wrapped: dict[Any, Any] = {}
            for module in modules:
                if (found := getattr(module, function, None)) is not None:
                    if found not in wrapped:
                        wrapped[found] = self._timed(found, moved)
                    setattr(module, function, wrapped[found])

    def collect(self) -> None:
        """Pass to the recorder the durations of those collectives that their devices have finished."""
        with self._guarded():
            while self._pending:
                call, began, ended = self._pending.popleft()
                if not ended.query():
                    self._pending.appendleft((call, began, ended))
                    break
                self._record(call, began.elapsed_time(ended) / 1000)

    def _timed(self, function: Callable[..., Any], moved: str) -> Callable[..., Any]:
        compiling, places = self._torch.compiling, list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            if compiling() or self._inside or not self._measures():
                return function(*args, **named)
            begun = self._on_call({**dict(zip(places, args)), **named}, moved)  # noqa: B905 - Python 3.9
            self._inside = True  # A measured function may call another one, which must not count again.
            try:
                found = function(*args, **named)
            finally:
                self._inside = False
            # If the call returned a handle, the collective was asynchronous and is not measured.
            if begun is not None and found is None:
                self._on_return(*begun)
            return found

        return timed

    def _measures(self) -> bool:
        return not self.broken and self._recorder.send is not None and threading.get_ident() == self._thread

    def _on_call(self, given: dict[str, Any], moved: str) -> tuple[Call, Any] | None:
        with self._guarded():
            if (
                given.get("async_op")
                or (call := self._torch.call(given.get("group"), given.get(moved))) is None
            ):
                return None
            return call, self._clock() if call.device is None else self._torch.mark(call.device)
        return None

    def _on_return(self, call: Call, began: Any) -> None:
        with self._guarded():
            if call.device is None:
                self._record(call, self._clock() - began)
            elif began is not None and (ended := self._torch.mark(call.device)) is not None:
                self._pending.append((call, began, ended))

    def _record(self, call: Call, seconds: float) -> None:
        self._recorder.record_transfers(call.communicator, Transfers(call.bytes, seconds))

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception:  # An error of the measurement must not stop the program.
            self.broken = True
            self._pending.clear()


class RealTorch:
    """The functions that CollectiveTimer needs, from the installed torch."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415
        import torch.distributed as dist  # noqa: PLC0415

        self._cuda, self._tensor, self._dist = torch.cuda, torch.Tensor, dist
        self.compiling = torch.compiler.is_compiling
        self._known: WeakKeyDictionary[Any, tuple[Communicator | None]] = WeakKeyDictionary()

    def call(self, group: Any, moved: Any) -> Call | None:
        """Return the communicator, size and device of a collective.

        Return None if the collective is small or coalesced, or if a member of the group is not a rank of
        the job.
        """
        group = self._dist.group.WORLD if group is None else group
        tensors = [moved] if isinstance(moved, self._tensor) else list(moved or ())
        world = self._dist.distributed_c10d._world
        if not tensors or not isinstance(group, self._dist.ProcessGroup):
            return None  # This rank is not a member of the group, or there is no data.
        if group not in world.pg_group_ranks or group in world.pg_coalesce_state:
            return None
        device = tensors[0].device
        if device.type not in ("cpu", "cuda") or any(one.is_sparse for one in tensors):
            return None
        size = sum(one.numel() * one.element_size() for one in tensors)
        communicator = self._communicator(group) if size >= MIN_BYTES else None
        if communicator is None:
            return None
        return Call(communicator, size, None if device.type == "cpu" else device)

    def mark(self, device: Any) -> Event | None:
        """Return an event on the current stream; None during graph capture, because events of a capture
        cannot be read.
        """
        if self._cuda.is_current_stream_capturing():
            return None
        event: Event = self._cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._cuda.current_stream(device))  # type: ignore[attr-defined]
        return event

    def _communicator(self, group: Any) -> Communicator | None:
        found = self._known.get(group)
        if found is None:
            found = self._known[group] = (self._named(group),)
        return found[0]

    def _named(self, group: Any) -> Communicator | None:
        members = self._dist.get_process_group_ranks(group)
        # A program may form groups of processes that are not ranks of this job. Leave out such groups.
        rank, world = int(os.environ.get("RANK", "-1")), int(os.environ.get("WORLD_SIZE", "0"))
        if members[group.rank()] != rank or max(members) >= world or len(members) < 2:
            return None
        return Communicator(kind_of(getattr(group, "group_desc", "")), format_ranks(sorted(members)))
