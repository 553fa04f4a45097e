"""The nodes and workers of a run, with the label of each node-second."""

from __future__ import annotations

import math

from convoy_crds.spot_prices import PriceSchedule
from convoy_workloads.simulators.spot.params import Params
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLabel, NodeLedger


class Fleet:
    """Spot nodes that come and go, on-demand nodes, and one worker on each node in use."""

    def __init__(self, params: Params) -> None:
        spot = PriceSchedule.constant(params.spot_price, params.on_demand_price)
        on_demand = PriceSchedule.constant(params.on_demand_price, params.on_demand_price)
        self.ledger = NodeLedger({Capacity.SPOT: spot, Capacity.ON_DEMAND: on_demand})
        self._params = params
        self._free: dict[str, None] = {}
        """Ready spot nodes without a worker."""
        self._since: dict[str, float] = {}
        """Start of the worker's work on each spot node."""
        self._starts: dict[str, float] = {}
        """Start of each spot node that is there."""
        self.on_demand: list[str] = []
        self._numbers = 0

    @property
    def ready(self) -> int:
        """Return the number of ready spot nodes."""
        return len(self._free) + len(self._since)

    @property
    def free(self) -> int:
        """Return the number of ready spot nodes without a worker."""
        return len(self._free)

    @property
    def spot_workers(self) -> int:
        """Return the number of workers on spot nodes."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """Return the number of workers without a node."""
        return self._params.nodes - len(self._since) - len(self.on_demand)

    def start_spot(self, name: str, at: float) -> None:
        """Start a spot node. It boots."""
        self._starts[name] = at
        self.ledger.start(name, at)

    def boot(self, name: str, started: float, at: float) -> bool:
        """Make a spot node ready, unless it has vanished since. Return True if it is ready."""
        if self._starts.get(name) != started:
            return False
        self._free[name] = None
        self.ledger.label(name, NodeLabel.IDLE, at)
        return True

    def place_on_spot(self, count: int, at: float) -> None:
        """Place up to `count` workers on ready spot nodes."""
        for name in list(self._free)[:count]:
            del self._free[name]
            self._since[name] = at
            self.ledger.label(name, NodeLabel.ROLLOUT, at)

    def place_on_demand(self, count: int, at: float, ready_at: float) -> None:
        """Create an on-demand node for each of `count` workers. The workers work from `ready_at` on."""
        for _ in range(count):
            name, self._numbers = f"on-demand-{self._numbers}", self._numbers + 1
            self.ledger.start(name, at, Capacity.ON_DEMAND)
            self.ledger.label(name, NodeLabel.ROLLOUT, ready_at)
            self.on_demand.append(name)

    def return_to_spot(self, count: int, at: float) -> None:
        """Move up to `count` workers from on-demand nodes to ready spot nodes. They save their work first."""
        moved = min(count, len(self.on_demand), self.free)
        for _ in range(moved):
            self.ledger.end(self.on_demand.pop(), at)
        self.place_on_spot(moved, at)

    def lose(self, name: str, at: float, notice_seconds: float) -> None:
        """Remove a spot node. Its worker loses what it has not saved."""
        self._starts.pop(name, None)
        self._free.pop(name, None)
        since = self._since.pop(name, None)
        if since is not None:
            stop = at - self._params.surrender_seconds
            if notice_seconds >= self._params.surrender_seconds and stop >= since:
                self.ledger.settle(name, stop)
                self.ledger.label(name, NodeLabel.IDLE, stop)
            else:
                interval = self._params.commit_seconds
                self.ledger.settle(name, since + math.floor((at - since) / interval) * interval)
        self.ledger.lose(name, at)
