"""The state of a run of events, and the loop that plays them."""

from __future__ import annotations

from fractions import Fraction
from heapq import heappop, heappush
from typing import Protocol

from convoy_controllers.astrasim.clock import BudgetExhausted
from convoy_controllers.astrasim.loadstore.journeys import Hop, Link
from convoy_controllers.astrasim.loadstore.parameters import Setup, Skew
from convoy_controllers.astrasim.loadstore.program import active_workgroups
from convoy_controllers.astrasim.loadstore.ticks import per_ns
from convoy_controllers.astrasim.loadstore.timing import gpu_timings, link_timing


class Message:
    """A line or flag on its way, or the end of an operation. `key` orders the messages of a time."""

    __slots__ = ("hops", "key", "place", "wire")

    def __init__(self, key: int) -> None:
        self.key = key
        self.hops: tuple[Hop, ...] = ()
        self.place = 0
        self.wire = 0
        """Bytes on a link, where the message has data."""

    def __lt__(self, other: Message) -> bool:
        return False

    def arrive(self, now: int) -> None:
        """Handle the end of the way."""
        raise NotImplementedError


class Peer(Protocol):
    """A workgroup, as others see it."""

    def receive_flag(self, phase: int, now: int) -> None:
        """Count a flag."""

    def resume(self, end: int, now: int) -> None:
        """Leave an operation that ends at `end`."""


class Machine:
    """The state of a run: the links, the messages that are due, and the workgroups."""

    def __init__(self, setup: Setup, skew: Skew | None) -> None:
        timings, link = gpu_timings(setup, skew), link_timing(setup)
        durations = [link.latency, link.byte, link.burst]
        for one in timings:
            durations += [one.issue, one.cache, one.memory, one.reduce, one.barrier, one.launch]
        self.setup = setup
        self.scale = per_ns(durations)
        self.due: list[tuple[int, int, Message]] = []
        self.links: dict[tuple[int, int], Link] = {}
        self.header = setup.links.header
        self.burst = self.ticks(link.burst)
        self.byte = self.ticks(link.byte)
        self.latency = self.ticks(link.latency)
        self.gpus = len(timings)
        """GPUs that are played: one for all, or every one."""
        self.timings = timings
        self.joined: list[list[Peer]] = [[] for _ in range(self.gpus)]
        """Workgroups of each GPU that wait at its barrier."""
        self.active = active_workgroups(setup)
        self.groups: list[list[Peer]] = [[] for _ in range(self.gpus)]
        """Workgroups of each GPU that is played."""

    def ticks(self, duration: Fraction) -> int:
        """Return a duration in ticks."""
        return int(duration * self.scale)

    def link(self, gpu: int, number: int) -> Link:
        """Return a link of a GPU."""
        return self.links.setdefault((gpu % self.gpus, number), Link())

    def play(self, budget: int) -> int:
        """Play all events, and return their number. Raises BudgetExhausted if there are more."""
        due, header, byte, burst = self.due, self.header, self.byte, self.burst
        first = self.setup.links.control_first
        for events in range(budget):
            if not due:
                return events
            now, key, message = heappop(due)
            place = message.place
            if place == len(message.hops):
                message.arrive(now)
                continue
            link, data, after, whole = message.hops[place]
            message.place = place + 1
            size = message.wire if data else header
            duration = size * byte
            free = link.free
            begin = free if free > now else now
            link.free = begin + duration
            link.bytes += size
            if not data and first:
                begin = now
            elif burst:
                begin = max(now, begin - burst)
            heappush(due, (begin + after + (duration if whole else 0), key, message))
        if due:
            raise BudgetExhausted
        return budget
