"""The fair-share network: all messages on a link share its bandwidth, with max-min fairness.

A message occupies all links of its route at once, as a fluid that does not wait in the nodes. Its rate
changes when messages start or end on links that it shares, directly or through others. A message leaves its
links when its last byte is sent, and arrives after the latencies of its route. As on the other networks,
times are whole ns, rounded down. A message that shares no link takes int(latency + size / B).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.delays import bytes_per_ns
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric, Link
from convoy_controllers.astrasim.network.max_min import max_min
from convoy_controllers.astrasim.network.medium import Deliver, Key
from convoy_controllers.astrasim.network.route_table import RouteTable
from convoy_controllers.astrasim.result import LinkUse


class _Pipe:
    """A directed link."""

    __slots__ = ("bytes", "capacity", "flows", "index", "link")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.capacity = bytes_per_ns(link.bandwidth)
        self.bytes = 0
        self.flows: dict[_Flow, None] = {}
        """The messages on the link, in the order of their start."""
        self.index = 0
        """Place among the links of the current allocation."""


class _Flow:
    """A message on its way."""

    __slots__ = ("due", "end", "key", "latency", "left", "rate", "route", "since")

    def __init__(self, key: Key, route: tuple[_Pipe, ...]) -> None:
        self.key = key
        self.route = route
        self.latency = math.fsum(pipe.link.latency for pipe in route)
        self.left = float(key[3])
        """Bytes that were not sent at `since`, the time of the last change of the rate."""
        self.since = 0
        self.rate = 0.0
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
        self._leave_call = self._leave

    def send(self, key: Key) -> None:
        """Send a message now."""
        flow = _Flow(key, self._table.route(key[1], key[2]))
        flow.since = self._clock.now
        for pipe in flow.route:
            pipe.bytes += key[3]
            pipe.flows[flow] = None
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
                        if other not in pipes:
                            pipes[other] = None
                            reached.append(other)
        if len(flows) == 1:
            (flow,) = flows
            self._set_rate(flow, min(pipe.capacity for pipe in flow.route))
        elif flows:
            for index, pipe in enumerate(reached):
                pipe.index = index
            rates = max_min(
                [pipe.capacity for pipe in reached],
                [[pipe.index for pipe in flow.route] for flow in flows],
            )
            for flow, rate in zip(flows, rates, strict=True):
                self._set_rate(flow, rate)
        self._clock.charge(len(flows))

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
        for pipe in flow.route:
            del pipe.flows[flow]
        self._change(flow)
        self._clock.at(flow.since + int(flow.latency + flow.left / flow.rate), self._deliver, flow.key)
