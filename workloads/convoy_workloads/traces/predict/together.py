"""Replay of all ranks together: a communication begins when the last of its ranks has arrived."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from convoy_workloads.traces.attributes import number_of, value_of
from convoy_workloads.traces.findings import Finding, InvalidTrace, Rule
from convoy_workloads.traces.predict.job import Job, Place, Transfer
from convoy_workloads.traces.predict.links import Links, Network
from convoy_workloads.traces.replay import Played, Replay, topological
from convoy_workloads.traces.wire.chakra_pb2 import Node


@dataclass(frozen=True, slots=True)
class Together:
    """The replays of all ranks. Times are microseconds since the first rank's start."""

    replays: list[Replay]

    @property
    def span(self) -> float:
        """Return the microseconds from the start to the last end of all ranks."""
        return max((one.span for one in self.replays), default=0.0)

    def step_times(self) -> list[float]:
        """Return the microseconds of each step, in the order of the steps' numbers.

        A step lasts from the first start in it to the first start in the next one, and the last step to its
        last end. Without numbers of steps, all is one step.
        """
        starts, last = dict[int, float](), dict[int, float]()
        for one in (each for each_rank in self.replays for each in each_rank.played):
            step = value_of(one.node, "step")
            if isinstance(step, int):
                starts[step] = min(starts.get(step, one.start), one.start)
                last[step] = max(last.get(step, one.end), one.end)
        if not starts:
            return [self.span]
        numbers = sorted(starts)
        times = [starts[number] for number in numbers] + [last[numbers[-1]]]
        return [after - before for before, after in pairwise(times)]


def replay_together(job: Job, links: Links | None = None) -> Together:
    """Return the times of all nodes of all ranks.

    A node starts when its dependencies have ended and the recorded gap of the host has passed. Without
    `links`, a communication takes as long after the arrival of its last rank as recorded; then each rank's
    times equal those of a replay alone. A rank that waits for others does so in its communication.

    Shared links have the anomalies of all schedules: if a communication that delays another one comes later
    on a slower link, the whole may end earlier. Without sharing, slower links never make anything faster.

    Raises InvalidTrace for duplicate ids, unknown dependencies, and cycles, also such of several ranks.
    """
    return _Player(job, links).play()


class _Player:
    """The state of one replay. Events are in the order of time, and of one time in that of their creation."""

    def __init__(self, job: Job, links: Links | None) -> None:
        self._job = job
        self._network = None if links is None else Network(links)
        self._first = [job.first_start(number) for number in range(len(job.traces))]
        self._origin = min(self._first, default=0.0)
        self._transfers = {place: one for one in job.transfers for place in one.members}
        self._arrived = defaultdict[Transfer, int](int)
        self._starts: dict[Place, float] = {}
        self._ends: dict[Place, float] = {}
        self._because: dict[Place, int] = {}
        self._ready: dict[Place, float] = {}
        self._missing: dict[Place, int] = {}
        self._users = defaultdict[Place, list[Place]](list)
        self._events: list[tuple[float, int, bool, Place]] = []
        self._count = 0

    def play(self) -> Together:
        """Play all nodes."""
        for number in range(len(self._job.traces)):
            self._prepare(number)
        while True:
            change = self._network.next() if self._network else None
            if self._events and (change is None or self._events[0][0] <= change):
                time, _, starts, place = heapq.heappop(self._events)
                self._start(place, time) if starts else self._end(place, time)
            elif change is not None and self._network is not None:
                for transfer in self._network.finished(change):
                    for place in transfer.members:
                        self._end(place, change)
            else:
                break
        return Together([self._replay(number) for number in range(len(self._job.traces))])

    def _prepare(self, number: int) -> None:
        """Count the dependencies of each node of a trace, and start those without any."""
        trace = self._job.traces[number]
        topological(trace)  # The checks of a trace alone.
        places = {node.id: place for place, node in enumerate(trace.nodes)}
        for one, node in enumerate(trace.nodes):
            needed = {places[dependency] for dependency in (*node.data_deps, *node.ctrl_deps)}
            self._missing[number, one] = len(needed)
            self._ready[number, one] = self._first[number] - self._origin
            for other in needed:
                self._users[number, other].append((number, one))
            if not needed:
                self._push_start((number, one))

    def _node(self, place: Place) -> Node:
        return self._job.traces[place[0]].nodes[place[1]]

    def _push(self, time: float, starts: bool, place: Place) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, starts, place))

    def _push_start(self, place: Place) -> None:
        self._push(self._ready[place] + number_of(self._node(place), "host_gap_us"), True, place)

    def _start(self, place: Place, now: float) -> None:
        self._starts[place] = now
        transfer = self._transfers.get(place)
        if transfer is None:
            self._push(now + self._node(place).duration_micros, False, place)
            return
        self._arrived[transfer] += 1
        if self._arrived[transfer] < len(transfer.members):
            return
        if self._network is not None:
            self._network.start(transfer, now)
            return
        last, arrival = max(self._starts[one] for one in transfer.members), self._job.arrival(transfer)
        for one in transfer.members:
            # A rank may be through before the last one arrives, such as the root of a broadcast.
            self._push(max(last + self._job.end(one) - arrival, self._starts[one]), False, one)

    def _end(self, place: Place, now: float) -> None:
        self._ends[place] = now
        for user in self._users[place]:
            if user not in self._because or now > self._ready[user]:
                self._ready[user], self._because[user] = max(now, self._ready[user]), place[1]
            self._missing[user] -= 1
            if not self._missing[user]:
                self._push_start(user)

    def _replay(self, number: int) -> Replay:
        return Replay(list(self._played(number)))

    def _played(self, number: int) -> Iterator[Played]:
        for one, node in enumerate(self._job.traces[number].nodes):
            place = (number, one)
            if place not in self._ends:
                text = "the ranks wait for each other: their communications are in no common order"
                raise InvalidTrace([Finding(Rule.CYCLE, text, self._job.traces[number].rank, node.id)])
            yield Played(node, self._starts[place], self._ends[place], self._because.get(place))
