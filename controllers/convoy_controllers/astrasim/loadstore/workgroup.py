"""A workgroup that executes its program."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from heapq import heappush
from typing import Any

from convoy_controllers.astrasim.loadstore.journeys import Delays, Journey, Router
from convoy_controllers.astrasim.loadstore.machine import Machine, Message, Peer
from convoy_controllers.astrasim.loadstore.program import (
    Barrier,
    Move,
    Operation,
    ReduceLocal,
    Signal,
    Wait,
    program,
)
from convoy_controllers.astrasim.loadstore.timing import local_time


class Part(StrEnum):
    """A part of a workgroup's time."""

    LAUNCH = "launch"
    DATA = "data"
    """Stores and loads, until the last one is acknowledged or has arrived and is reduced."""
    REDUCE = "reduce"
    """Reductions from the own memory."""
    CONTROL = "control"
    """Flags, waits and barriers."""


_PARTS: dict[type[Operation], Part] = {
    Move: Part.DATA,
    ReduceLocal: Part.REDUCE,
    Signal: Part.CONTROL,
    Wait: Part.CONTROL,
    Barrier: Part.CONTROL,
}


class _Alarm(Message):
    """The end of an operation."""

    __slots__ = ("group",)

    def __init__(self, group: Workgroup, key: int) -> None:
        super().__init__(key)
        self.group = group

    def arrive(self, now: int) -> None:
        self.group.advance(now)


class _Line(Message):
    __slots__ = ("group", "number")

    def __init__(self, group: Workgroup, number: int) -> None:
        super().__init__(0)
        self.group = group
        self.number = number

    def arrive(self, now: int) -> None:
        self.group.complete(self, now)


class _Flag(Message):
    __slots__ = ("phase", "target")

    def __init__(self, target: Peer, key: int, phase: int) -> None:
        super().__init__(key)
        self.target = target
        self.phase = phase

    def arrive(self, now: int) -> None:
        self.target.receive_flag(self.phase, now)


class Workgroup:
    """A workgroup that executes its program."""

    __slots__ = (
        "_alarm", "_awaited", "_began", "_cache", "_flags", "_flying", "_index", "_interval", "_journeys",
        "_latest", "_left", "_line", "_lines", "_move", "_operations", "_outstanding", "_ready", "_reduce",
        "_reduced", "_router", "_run", "_step", "_timing", "end", "gpu", "moved", "number", "parts",
    )  # fmt: skip

    def __init__(self, run: Machine, gpu: int, number: int) -> None:
        setup = run.setup
        timing = run.timings[gpu]
        self._run = run
        self.gpu = gpu
        self._timing = timing
        self._cache = run.ticks(timing.cache)
        self._interval = run.ticks(timing.issue)
        self._reduce = run.ticks(timing.reduce)
        self._line = setup.gpu.line
        self._outstanding = setup.gpu.outstanding
        self._router = Router(setup, gpu, run.link)
        self.number = number
        self.end: int | None = None
        self.moved = 0
        self.parts = dict.fromkeys(Part, 0)
        self._operations = program(setup, number)
        self._step = 0
        self._began = 0
        self._ready = 0
        """Tick of the next request, by the issue rate."""
        self._reduced = 0
        """Tick at which the reduction of the lines that have arrived ends."""
        self._latest = 0
        """Tick at which all lines of the move are complete, of those that have arrived."""
        self._left = self._index = self._flying = 0
        self._move: Move | None = None
        self._flags: dict[int, int] = {}
        self._awaited: Wait | None = None
        self._journeys: dict[tuple[bool, int], Journey] = {}
        self._alarm = _Alarm(self, self._key(0, self._outstanding + 1))
        self._lines: list[_Line] = []

    def launch(self) -> None:
        """Start the program after the launch of the kernel."""
        time = self._run.ticks(self._timing.launch)
        self.parts[Part.LAUNCH] = time
        heappush(self._run.due, (time, self._alarm.key, self._alarm))

    def advance(self, now: int) -> None:
        """Execute operations until one does not end now."""
        while self._step < len(self._operations):
            operation = self._operations[self._step]
            self._began = now
            end = _STARTS[type(operation)](self, operation, now)
            if end is None:
                return
            self._leave(end)
            if end > now:
                heappush(self._run.due, (end, self._alarm.key, self._alarm))
                return
        self.end = now

    def complete(self, line: _Line, now: int) -> None:
        """Take a line that was acknowledged or has arrived, and issue the next one in its place."""
        move = self._move
        assert move is not None  # noqa: S101 - a line belongs to a move
        done = now
        if move.reduces:
            done = self._reduced = max(now, self._reduced) + self._reduce
        self._latest = max(self._latest, done)
        if self._left:
            self._issue(line, move, done)
            return
        self._flying -= 1
        if not self._flying:
            self.resume(self._latest, now)

    def receive_flag(self, phase: int, now: int) -> None:
        """Count a flag. A workgroup that waits for it sees it one cache latency later."""
        self._flags[phase] = self._flags.get(phase, 0) + 1
        awaited = self._awaited
        if awaited is not None and self._flags.get(awaited.phase, 0) >= awaited.count:
            self._awaited = None
            self.resume(now + self._cache, now)

    def resume(self, end: int, now: int) -> None:
        """Leave an operation that ends at `end`."""
        self._leave(end)
        if end > now:
            heappush(self._run.due, (end, self._alarm.key, self._alarm))
        else:
            self.advance(now)

    def _leave(self, end: int) -> None:
        self.parts[_PARTS[type(self._operations[self._step])]] += end - self._began
        self._step += 1

    def _start_move(self, move: Move, now: int) -> int | None:
        self._move = move
        self._index = 0
        self._left = move.lines * len(move.peers)
        self._latest = now
        self._flying = min(self._left, self._outstanding)
        while len(self._lines) < self._flying:
            self._lines.append(_Line(self, len(self._lines)))
        for line in self._lines[: self._flying]:
            self._issue(line, move, now)
        return None

    def _issue(self, line: _Line, move: Move, now: int) -> None:
        """Issue the next line of the move. Neighbouring lines go to different peers."""
        begin = self._ready if self._ready > now else now
        self._ready = begin + self._interval
        index, count = self._index, len(move.peers)
        self._index = index + 1
        self._left -= 1
        peer = move.peers[(index + self.number) % count]
        size = move.last if index // count == move.lines - 1 else self._line
        self.moved += size
        run = self._run
        line.wire = size + run.header
        line.key = self._key(peer, line.number)
        journey = self._journeys.get((move.put, peer)) or self._make_journey(move.put, peer)
        line.hops = journey.hops
        line.place = 0
        heappush(run.due, (begin + journey.delay, line.key, line))

    def _start_reduce(self, operation: ReduceLocal, now: int) -> int:
        return now + self._run.ticks(local_time(self._timing, operation.lines, self._outstanding))

    def _start_signal(self, operation: Signal, now: int) -> int:
        run = self._run
        begin = max(now, self._ready)
        for peer in operation.peers:
            target = run.groups[(self.gpu + peer) % run.gpus][self.number]
            flag = _Flag(target, self._key(peer, self._outstanding), operation.phase)
            journey = self._router.flag(peer, self._delays(peer))
            flag.hops = journey.hops
            heappush(run.due, (begin + journey.delay, flag.key, flag))
            begin += self._interval
        self._ready = begin
        return begin

    def _start_wait(self, operation: Wait, now: int) -> int | None:
        if self._flags.get(operation.phase, 0) >= operation.count:
            return now + self._cache
        self._awaited = operation
        return None

    def _start_barrier(self, operation: Barrier, now: int) -> int | None:
        del operation
        joined = self._run.joined[self.gpu]
        joined.append(self)
        if len(joined) < self._run.active:
            return None
        end = now + self._run.ticks(self._timing.barrier)
        others = joined[:-1]
        joined.clear()
        for one in others:
            one.resume(end, now)
        return end

    def _make_journey(self, put: bool, peer: int) -> Journey:
        make = self._router.put if put else self._router.get
        journey = self._journeys[put, peer] = make(peer, self._delays(peer))
        return journey

    def _delays(self, peer: int) -> Delays:
        run = self._run
        target = run.timings[(self.gpu + peer) % run.gpus]
        return Delays(self._cache, run.ticks(target.memory), run.latency)

    def _key(self, peer: int, number: int) -> int:
        """Return the order of a message among those of a time: by offset, workgroup and number, then GPU."""
        run = self._run
        place = (peer * run.active + self.number) * (self._outstanding + 2) + number
        return place * run.gpus + self.gpu


_STARTS: dict[type[Operation], Callable[[Workgroup, Any, int], int | None]] = {
    Move: Workgroup._start_move,
    ReduceLocal: Workgroup._start_reduce,
    Signal: Workgroup._start_signal,
    Wait: Workgroup._start_wait,
    Barrier: Workgroup._start_barrier,
}
"""Start of each operation: (workgroup, operation, now) -> its end, or None if a later event ends it."""
