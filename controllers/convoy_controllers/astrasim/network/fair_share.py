"""The fair-share network: all messages on a link share its bandwidth, with max-min fairness.

A message occupies all links of its route at once, as a fluid that does not wait in the nodes. Its rate
changes when messages start or end on links that it shares, directly or through others. A message leaves its
links when its last byte is sent, and arrives after the latencies of its route. As on the other networks,
times are whole ns, rounded down. A message that shares no link takes int(latency + size / B).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.delays import bytes_per_ns
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric, Link
from convoy_controllers.astrasim.network.max_min import SAME, max_min
from convoy_controllers.astrasim.network.medium import Deliver, Key
from convoy_controllers.astrasim.network.route_table import RouteTable
from convoy_controllers.astrasim.result import LinkUse

BELOW = 1 - 1e-9
"""Factor below which a rate is lower than another one for certain, despite rounding."""


class _Pipe:
    """A directed link."""

    __slots__ = ("bytes", "capacity", "flows", "link")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.capacity = bytes_per_ns(link.bandwidth)
        self.bytes = 0
        self.flows: dict[_Flow, None] = {}
        """The messages on the link, in the order of their start."""

    def left(self, floor: float) -> float:
        """Return the bandwidth that messages with rates below `floor` leave."""
        left = self.capacity
        # In the order in which progressive filling subtracts the rates, so that rounding is the same.
        for rate in sorted([flow.rate for flow in self.flows if 0 < flow.rate < floor]):
            left -= rate
        return left


class _Flow:
    """A message on its way."""

    __slots__ = ("due", "end", "key", "latency", "left", "rate", "route", "share", "since")

    def __init__(self, key: Key, route: tuple[_Pipe, ...]) -> None:
        self.key = key
        self.route = route
        self.latency = math.fsum(pipe.link.latency for pipe in route)
        self.left = float(key[3])
        """Bytes that were not sent at `since`, the time of the last change of the rate."""
        self.since = 0
        self.rate = 0.0
        """Bytes per ns; 0 before the first allocation."""
        self.share = 0.0
        """Share of a message on the link that limits the rate."""
        self.end = -1
        """Time at which the last byte is sent."""
        self.due = -1
        """Time of the earliest event that looks at the message; -1 without one."""


class FairShareMedium:
    """Carries messages over shared links."""

    def __init__(self, clock: Clock, fabric: Fabric, deliver: Deliver) -> None:
        self._clock = clock
        self._deliver = deliver
        self._table = RouteTable(fabric, _Pipe)
        self._changed: dict[_Pipe, None] = {}
        """Links on which messages have started or ended at the present time."""
        self._started: dict[_Pipe, None] = {}
        """Links on which messages have started at the present time."""
        self._lowest_ended = math.inf
        """Lowest rate of the messages that have ended at the present time."""
        self._leave_call = self._leave

    def send(self, key: Key) -> None:
        """Send a message now."""
        flow = _Flow(key, self._table.route(key[1], key[2]))
        flow.since = self._clock.now
        for pipe in flow.route:
            pipe.bytes += key[3]
            pipe.flows[flow] = None
            self._started[pipe] = None
        self._change(flow)

    def uses(self) -> Iterator[LinkUse]:
        """Yield the use of each used link so far."""
        return self._table.uses(self._clock.now)

    def _change(self, flow: _Flow) -> None:
        if not self._changed:
            # Many messages start and end together, so rates change once, after all events of this time.
            self._clock.before_next(self._allocate)
        for pipe in flow.route:
            self._changed[pipe] = None

    def _allocate(self) -> None:
        """Allocate the bandwidth of the changed links, and of those that share messages with them."""
        pipes, self._changed = self._changed, {}
        reached = list(pipes)
        flows: dict[_Flow, None] = {}
        for pipe in reached:
            for flow in pipe.flows:
                if flow not in flows:
                    flows[flow] = None
                    for other in flow.route:
                        # A link of one message leads to no other message.
                        if len(other.flows) > 1 and other not in pipes:
                            pipes[other] = None
                            reached.append(other)
        floor = self._lowest_change() * BELOW
        if len(flows) == 1:
            (flow,) = flows
            flow.share = min(pipe.capacity for pipe in flow.route)
            self._set_rate(flow, flow.share)
        elif flows:
            self._fill(*_split(flows, floor))
        self._clock.charge(len(flows))

    def _lowest_change(self) -> float:
        """Return the lowest rate that a message gives back, or takes, at the present time.

        Max-min fairness gives bandwidth out from the lowest rate upwards, so lower rates stay.
        """
        lowest = min(map(_share_of_new, self._started), default=math.inf)
        lowest = min(lowest, self._lowest_ended)
        self._started = {}
        self._lowest_ended = math.inf
        return lowest

    def _fill(self, flows: list[_Flow], floor: float) -> None:
        """Set the rates of some flows. The others on their links have rates below `floor` and keep them."""
        places: dict[_Pipe, int] = {}
        capacities: list[float] = []
        paths: list[list[int]] = []
        for flow in flows:
            path: list[int] = []
            alone = math.inf
            for pipe in flow.route:
                if len(pipe.flows) == 1:
                    alone = min(alone, pipe.capacity)
                    continue
                place = places.get(pipe)
                if place is None:
                    place = places[pipe] = len(capacities)
                    capacities.append(pipe.left(floor))
                path.append(place)
            if alone < math.inf:
                path.append(len(capacities))
                capacities.append(alone)
            paths.append(path)
        for flow, rate, share in zip(flows, *max_min(capacities, paths), strict=True):
            flow.share = share
            self._set_rate(flow, rate)

    def _set_rate(self, flow: _Flow, rate: float) -> None:
        if rate == flow.rate:
            return
        now = self._clock.now
        flow.left = max(0.0, flow.left - flow.rate * (now - flow.since))
        flow.since = now
        flow.rate = rate
        flow.end = now + int(flow.left / rate)
        # An event that is due before the end stays, and then schedules the next one.
        if flow.due < 0 or flow.end < flow.due:
            self._schedule(flow)

    def _schedule(self, flow: _Flow) -> None:
        flow.due = flow.end
        self._clock.at(flow.end, self._leave_call, flow)

    def _leave(self, flow: _Flow) -> None:
        now = self._clock.now
        if now != flow.due:
            return
        if now < flow.end:
            self._schedule(flow)
            return
        flow.due = -1
        self._lowest_ended = min(self._lowest_ended, flow.rate)
        for pipe in flow.route:
            del pipe.flows[flow]
        self._change(flow)
        self._clock.at(flow.since + int(flow.latency + flow.left / flow.rate), self._deliver, flow.key)


def _share_of_new(pipe: _Pipe) -> float:
    """Return the rate of new messages on a link if no other link limits them."""
    left, growing = pipe.capacity, len(pipe.flows)
    for rate in sorted([flow.rate for flow in pipe.flows if flow.rate > 0]):
        if rate * growing >= left:
            break
        left -= rate
        growing -= 1
    return left / growing


def _split(flows: Iterable[_Flow], floor: float) -> tuple[list[_Flow], float]:
    """Return the flows to which bandwidth must be given again, and the rate below which all others are.

    These are the flows from `floor` on, unless a lower rate differs from that of an allocation of all flows:
    links of almost the same share give the least of their shares.
    """
    kept = {(flow.share, flow.rate) for flow in flows if 0 < flow.rate < floor}
    level = 0.0
    for share, rate in sorted(kept):
        if share > level * SAME:
            level = share
        if rate != level:
            floor = level * BELOW
            break
    return [flow for flow in flows if not 0 < flow.rate < floor], floor
