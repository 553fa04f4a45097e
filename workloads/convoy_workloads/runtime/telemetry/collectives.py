"""How long this rank is held up by the collectives that Python calls, in all and by communicator.

Every one of them is a method of `ProcessGroup`, whatever function of torch the program calls, and Python
waits for it by `Work.wait`. Collectives that C++ calls by itself (DistributedDataParallel's reducer, compiled
graphs) are not seen here; the reducer has times of its own, see `torch_hooks`.

On the processor the wait is the caller's own time. On a device `wait` returns at once and only has the
current stream wait, so two events on that stream are asked later how far they were apart.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from convoy_workloads.runtime.telemetry.communicators import Communicator, Moved, kind, ranks
from convoy_workloads.runtime.telemetry.recorder import Recorder

MUTUAL = (
    "allreduce",
    "allreduce_coalesced",
    "allgather",
    "_allgather_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
)
"""In which every member waits for all: who comes last waits for nobody, and its time is the transfer's."""
ONE_SIDED = ("broadcast", "reduce", "gather", "scatter", "send", "recv", "recv_anysource", "barrier")
"""Whose times tell nothing of a transfer; waiting in them counts all the same."""
MAX_PENDING = 4096
"""Times that a device has not told yet; the oldest is forgotten first."""


class Event(Protocol):
    """A mark on a device's stream; torch.cuda.Event is one."""

    def query(self) -> bool:
        """Whether the stream has passed it."""
        ...

    def elapsed_time(self, end_event: Any, /) -> float:
        """Milliseconds until the other one."""
        ...


@dataclass(frozen=True)
class Call:
    """One collective."""

    communicator: Communicator | None
    """None where its time tells nothing."""
    bytes: int
    on_device: bool


class DeviceTimes:
    """Waits on a device, of which it tells when it has come so far. `mark`: an event, recorded just now."""

    def __init__(self, mark: Callable[[], Event]) -> None:
        self.mark = mark
        self._pending: deque[tuple[Call, Event, Event]] = deque(maxlen=MAX_PENDING)

    def waited(self, call: Call, began: Event, ended: Event) -> None:
        """The stream waited between these."""
        self._pending.append((call, began, ended))

    def told(self) -> Iterable[tuple[Call, float]]:
        """The calls whose times are known by now, once, in seconds."""
        while self._pending and self._pending[0][2].query():
            call, began, ended = self._pending.popleft()
            yield call, began.elapsed_time(ended) / 1000


class Collectives:
    """One process's."""

    def __init__(
        self, recorder: Recorder, device: DeviceTimes, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._recorder = recorder
        self._device = device
        self._clock = clock
        self._calls: WeakKeyDictionary[Any, Call] = WeakKeyDictionary()
        self._known: WeakKeyDictionary[Any, Communicator] = WeakKeyDictionary()

    def watch(self, groups: Any, works: Any) -> None:
        """Wraps the methods of torch's ProcessGroup and Work."""
        for name in MUTUAL + ONE_SIDED:
            if hasattr(groups, name):
                setattr(groups, name, self._called(getattr(groups, name), name in MUTUAL))
        works.wait = self._waited(works.wait)

    def collect(self) -> None:
        """Has the recorder know what devices have told by now."""
        for call, seconds in self._device.told():
            self._spend(call, seconds)

    def communicator(self, group: Any) -> Communicator:
        """Of a process group."""
        found = self._known.get(group)
        if found is None:
            import torch.distributed as dist  # noqa: PLC0415

            found = Communicator(kind(group.group_desc), ranks(sorted(dist.get_process_group_ranks(group))))
            self._known[group] = found
        return found

    def _called(self, method: Callable[..., Any], mutual: bool) -> Callable[..., Any]:
        @functools.wraps(method)
        def called(group: Any, *args: Any, **named: Any) -> Any:
            if self._recorder.tell is None:
                return method(group, *args, **named)
            call = self._call(group, (*args, *named.values()), mutual)
            began = self._clock()
            work = method(group, *args, **named)
            if work is None:
                self._spend(call, self._clock() - began)
            else:
                self._calls[work] = call
            return work

        return called

    def _call(self, group: Any, args: tuple[Any, ...], mutual: bool) -> Call:
        found = [_tensors(one) for one in args[:2]]
        first = next((tensor for one in found for tensor in one), None)
        on_device = first is not None and first.device.type == "cuda"
        if not mutual:
            return Call(None, 0, on_device)
        moved = max((sum(tensor.nbytes for tensor in one) for one in found), default=0)
        return Call(self.communicator(group), moved, on_device)

    def _waited(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def waited(work: Any, *args: Any, **named: Any) -> Any:
            call = self._calls.pop(work, None) or Call(None, 0, on_device=False)
            if call.on_device:
                before = self._device.mark()
                found = method(work, *args, **named)
                self._device.waited(call, before, self._device.mark())
                return found
            began = self._clock()
            try:
                return method(work, *args, **named)
            finally:
                self._spend(call, self._clock() - began)

        return waited

    def _spend(self, call: Call, seconds: float) -> None:
        self._recorder.spend("wait", seconds)
        if call.communicator is not None:
            self._recorder.moved(call.communicator, Moved(call.bytes, 1, seconds))


def _tensors(given: Any) -> list[Any]:
    """The tensors of an argument: one, or lists of them."""
    if hasattr(given, "nbytes") and hasattr(given, "device"):
        return [given]
    if isinstance(given, (list, tuple)):
        return [tensor for one in given for tensor in _tensors(one)]
    return []
