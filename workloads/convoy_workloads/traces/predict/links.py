"""Links of ranks: the times at which transfers end that share them.

Each rank has one link. A transfer uses the links of all its ranks from the moment at which the last of them
has arrived. It first takes the latency of its messages, then the time of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from convoy_workloads.traces.predict.job import Transfer
from convoy_workloads.traces.predict.sharing import Sharing

_DONE = 1e-6
"""Bytes that count as none: what the arithmetic of floating-point numbers leaves over."""


@dataclass(frozen=True, slots=True)
class Links:
    """Latency and bandwidth of the link of every rank."""

    latency_us: float
    bytes_per_us: float
    sharing: Sharing = Sharing.FAIR


class Network:
    """The transfers on the links at one time. Times are microseconds and must not decrease."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._now = 0.0
        self._latency: dict[Transfer, float] = {}
        """Transfers whose first messages are on their way, and the end of their latency."""
        self._left: dict[Transfer, float] = {}
        """Transfers that send, and the bytes that are left."""
        self._queue: list[Transfer] = []
        """Transfers that wait for links, with `Sharing.FIFO`."""

    def start(self, transfer: Transfer, now: float) -> None:
        """Begin a transfer: the last of its ranks has arrived."""
        self._advance(now)
        if self._links.sharing is Sharing.FIFO:
            self._queue.append(transfer)
            self._admit()
        else:
            self._latency[transfer] = now + transfer.steps * self._links.latency_us

    def next(self) -> float | None:
        """Return the time of the next change; None if no transfer is under way."""
        times = list(self._latency.values())
        rates = self._rates()
        times += [self._now + left / rates[one] for one, left in self._left.items()]
        return min(times, default=None)

    def finished(self, now: float) -> list[Transfer]:
        """Advance to the time that `next` has returned. Return the transfers that end then."""
        self._advance(now)
        for transfer in [one for one, end in self._latency.items() if end <= now]:
            del self._latency[transfer]
            self._left[transfer] = transfer.bytes
        # Time has a resolution, and so has what is sent in it.
        least = {one: _DONE + rate * abs(now) * 1e-14 for one, rate in self._rates().items()}
        ended = [one for one, left in self._left.items() if left <= least[one]]
        for transfer in ended:
            del self._left[transfer]
        self._admit()
        return ended

    def _advance(self, now: float) -> None:
        for transfer, rate in self._rates().items():
            self._left[transfer] = max(self._left[transfer] - (now - self._now) * rate, 0.0)
        self._now = now

    def _rates(self) -> dict[Transfer, float]:
        """Return the bytes a microsecond of each transfer: its part of its busiest link."""
        whole = self._links.bytes_per_us
        if self._links.sharing is not Sharing.FAIR:
            return dict.fromkeys(self._left, whole)
        users: dict[int, int] = {}
        for transfer in self._left:
            for number in transfer.traces:
                users[number] = users.get(number, 0) + 1
        return {one: whole / max(users[number] for number in one.traces) for one in self._left}

    def _admit(self) -> None:
        """Begin the queued transfers whose links are free, and no earlier one waits for."""
        busy = {number for one in (*self._latency, *self._left) for number in one.traces}
        waiting = []
        for transfer in self._queue:
            if busy.isdisjoint(transfer.traces):
                self._latency[transfer] = self._now + transfer.steps * self._links.latency_us
            else:
                waiting.append(transfer)
            busy.update(transfer.traces)
        self._queue = waiting


def ends(arrivals: Iterable[tuple[float, Transfer]], links: Links) -> dict[Transfer, float]:
    """Return the time at which each transfer ends, from the times at which its last rank arrives."""
    found: dict[Transfer, float] = {}
    network = Network(links)

    def drain(until: float) -> None:
        while (time := network.next()) is not None and time <= until:
            found.update(dict.fromkeys(network.finished(time), time))

    for arrival, transfer in sorted(arrivals, key=lambda one: one[0]):
        drain(arrival)
        network.start(transfer, arrival)
    drain(float("inf"))
    return found
