"""The ledger of node-seconds. Each second of a node has one label and one price.

A node is billed from its start to its end, boot included. The labels of a node divide exactly this time. The
bill and the labels are priced apart, so their difference, the residual, shows seconds or prices that went
missing. The ledger reads no clock: callers pass Unix seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from convoy_workloads.spot.ledger.encoding import decode, encode

MAX_SPANS = 1024
"""Number of spans of a running node that can still be labelled lost. Earlier ones are final."""


class NodeLabel(StrEnum):
    """Use of a node's time."""

    BOOT = "boot"
    PULL = "pull"
    """The node copies the image or weights."""
    ROLLOUT = "rollout"
    EXPLORE = "explore"
    REGROUP = "regroup"
    IDLE = "idle"
    LOST = "lost"
    """Work that was not saved when the node vanished."""


WORK = frozenset({NodeLabel.ROLLOUT, NodeLabel.EXPLORE})


class Capacity(StrEnum):
    """Price class of a node."""

    SPOT = "Spot"
    ON_DEMAND = "OnDemand"


class Prices(Protocol):
    """Prices of one class of nodes, such as convoy_crds.spot_prices.PriceSchedule."""

    def cost(self, start: float, end: float, now: float, /) -> float:
        """Return the cost of a node from `start` to `end`, with the prices known at `now`."""
        ...


@dataclass(frozen=True, slots=True)
class Charge:
    """Seconds and cost of all nodes with one price class and one label."""

    capacity: Capacity
    label: NodeLabel
    seconds: float
    cost: float


@dataclass(frozen=True, slots=True)
class _Span:
    start: float
    end: float
    label: NodeLabel

    def split(self, at: float) -> tuple[_Span, _Span]:
        """Return the parts before and after a time. One of them may be empty."""
        cut = min(max(at, self.start), self.end)
        return _Span(self.start, cut, self.label), _Span(cut, self.end, self.label)


@dataclass(slots=True)
class _Node:
    capacity: Capacity
    start: float
    since: float
    """Start of the present label."""
    final: float
    """Seconds before this time are already in the totals."""
    label: NodeLabel = NodeLabel.BOOT
    settled: float = 0.0
    """Work before this time is saved."""
    spans: list[_Span] = field(default_factory=list)
    """Earlier labels after `final`. They follow each other without gaps."""

    def spans_until(self, end: float) -> list[_Span]:
        """Return all spans after `final`, cut at `end`."""
        return [
            one.split(end)[0] for one in [*self.spans, _Span(self.since, max(self.since, end), self.label)]
        ]

    def to_json(self) -> list[Any]:
        """Return the node as JSON values."""
        spans = [[one.start, one.end, one.label] for one in self.spans]
        return [self.capacity, self.start, self.since, self.final, self.label, self.settled, spans]


def _node_from_json(saved: Sequence[Any]) -> _Node:
    capacity, start, since, final, label, settled, spans = saved
    return _Node(
        Capacity(capacity),
        start,
        since,
        final,
        NodeLabel(label),
        settled,
        [_Span(first, last, NodeLabel(one)) for first, last, one in spans],
    )


_Totals = defaultdict[tuple[Capacity, NodeLabel], float]


class NodeLedger:
    """The nodes of one job."""

    def __init__(self, prices: Mapping[Capacity, Prices]) -> None:
        self._prices = dict(prices)
        self._nodes: dict[str, _Node] = {}
        self._seconds: _Totals = defaultdict(float)
        self._cost: _Totals = defaultdict(float)
        self._billed: defaultdict[Capacity, float] = defaultdict(float)
        self._ignored = 0
        self._started = 0

    def set_prices(self, capacity: Capacity, prices: Prices) -> None:
        """Use other prices for all time that is not final yet."""
        self._prices[capacity] = prices

    # Events

    def start(self, node: str, at: float, capacity: Capacity = Capacity.SPOT) -> bool:
        """Bill a node from `at` on, with the label boot. Return False if the node runs already."""
        if node in self._nodes:
            self._ignored += 1
            return False
        self._nodes[node] = _Node(capacity, at, at, at)
        self._started += 1
        return True

    def label(self, node: str, label: NodeLabel, at: float) -> bool:
        """Label the time of a node from `at` on. Return False if the node does not run.

        A report that comes out of order counts from the previous report on.
        """
        found = self._nodes.get(node)
        if found is None:
            self._ignored += 1
            return False
        if label is not found.label:
            at = max(at, found.since)
            found.spans.append(_Span(found.since, at, found.label))
            found.since, found.label = at, label
            if len(found.spans) > MAX_SPANS:
                self._finish(found.capacity, found.spans[: MAX_SPANS // 2], at)
                del found.spans[: MAX_SPANS // 2]
                found.final = found.spans[0].start
        return True

    def settle(self, node: str, at: float) -> bool:
        """Record that the work of a node before `at` is saved. Return False if the node does not run."""
        found = self._nodes.get(node)
        if found is None:
            self._ignored += 1
            return False
        found.settled = max(found.settled, at)
        return True

    def end(self, node: str, at: float) -> bool:
        """End a node that has saved its work. Return False if the node does not run."""
        return self._end(node, at, [])

    def lose(self, node: str, at: float, seen: float | None = None) -> bool:
        """End a node that vanished. Work since the last `settle` becomes lost.

        `seen`: time of the node's last sign of life. Everything after it is lost too.
        """
        found = self._nodes.get(node)
        settled = found.settled if found is not None else 0.0
        lost = [(settled, WORK), (at if seen is None else seen, frozenset(NodeLabel))]
        return self._end(node, at, lost)

    def forfeit(self, node: str, at: float) -> bool:
        """Record that the work of a running node since the last `settle` is lost, because another node of its
        group vanished. Return False if the node does not run.
        """
        found = self._nodes.get(node)
        if found is None:
            self._ignored += 1
            return False
        at = max(found.since, at)
        found.spans = [part for one in found.spans_until(at) for part in _with_loss(one, found.settled, WORK)]
        found.since = found.settled = at
        return True

    # Views

    def running(self) -> dict[str, Capacity]:
        """Return the price class of each running node."""
        return {name: node.capacity for name, node in self._nodes.items()}

    def charges(self, now: float) -> list[Charge]:
        """Return seconds and cost by price class and label until `now`; running nodes count so far."""
        seconds, cost = self._seconds.copy(), self._cost.copy()
        for node in self._nodes.values():
            for span in node.spans_until(now):
                seconds[node.capacity, span.label] += span.end - span.start
                cost[node.capacity, span.label] += self._rate(node.capacity, span.start, span.end, now)
        return [Charge(*key, seconds[key], cost[key]) for key in sorted(seconds)]

    def billed(self, now: float) -> dict[Capacity, float]:
        """Return the cost of all nodes from start to end, or to `now`, by price class."""
        billed = self._billed.copy()
        for node in self._nodes.values():
            billed[node.capacity] += self._rate(node.capacity, node.start, max(node.final, now), now)
        return dict(billed)

    def residual(self, now: float) -> float:
        """Return the billed cost that has no label."""
        return sum(self.billed(now).values()) - sum(one.cost for one in self.charges(now))

    def counts(self) -> dict[str, int]:
        """Return the number of nodes that started and that run, and of reports that were ignored."""
        return {"started": self._started, "running": len(self._nodes), "ignored": self._ignored}

    # State

    def state_dict(self) -> dict[str, bytes]:
        """Return the whole ledger, without prices, as one entry of a checkpoint."""
        nodes = [[name, *node.to_json()] for name, node in self._nodes.items()]
        totals = [[*key, self._seconds[key], self._cost[key]] for key in self._seconds]
        counts = [self._ignored, self._started]
        return {"nodes": encode({"nodes": nodes, "totals": totals, "billed": self._billed, "counts": counts})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the ledger by a saved one. The prices of this ledger stay."""
        saved = decode(state["nodes"])
        self._nodes = {name: _node_from_json(node) for name, *node in saved["nodes"]}
        self._seconds, self._cost = defaultdict(float), defaultdict(float)
        for capacity, label, seconds, cost in saved["totals"]:
            key = Capacity(capacity), NodeLabel(label)
            self._seconds[key], self._cost[key] = seconds, cost
        self._billed = defaultdict(float, {Capacity(name): cost for name, cost in saved["billed"].items()})
        self._ignored, self._started = saved["counts"]

    # Parts

    def _end(self, name: str, at: float, lost: Sequence[tuple[float, Collection[NodeLabel]]]) -> bool:
        """End a node. `lost`: pairs of a time and the labels that are lost after this time."""
        node = self._nodes.pop(name, None)
        if node is None:
            self._ignored += 1
            return False
        end = max(node.final, at)
        spans = node.spans_until(end)
        for time, labels in lost:
            spans = [part for one in spans for part in _with_loss(one, time, labels)]
        self._finish(node.capacity, spans, end)
        self._billed[node.capacity] += self._rate(node.capacity, node.start, end, end)
        return True

    def _finish(self, capacity: Capacity, spans: Iterable[_Span], now: float) -> None:
        for span in spans:
            self._seconds[capacity, span.label] += span.end - span.start
            self._cost[capacity, span.label] += self._rate(capacity, span.start, span.end, now)

    def _rate(self, capacity: Capacity, start: float, end: float, now: float) -> float:
        return self._prices[capacity].cost(start, end, now) if end > start else 0.0


def _with_loss(span: _Span, time: float, labels: Collection[NodeLabel]) -> list[_Span]:
    """Return a span whose part after `time` is lost, if its label is among `labels`."""
    if span.label not in labels:
        return [span]
    kept, lost = span.split(time)
    return [kept, _Span(lost.start, lost.end, NodeLabel.LOST)]
