"""The account of the workers' time: each second of a worker has one label and one price."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy_crds.spot_prices import PriceSchedule
from convoy_workloads.engines.spotlight.live.messages import Done, Message, Progress, Pull, Surrender, Weights
from convoy_workloads.engines.spotlight.params import Cluster
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLabel, NodeLedger
from convoy_workloads.spot.ledger.request import RequestKind

LABELS = {RequestKind.ROLLOUT: NodeLabel.ROLLOUT, RequestKind.EXPLORE: NodeLabel.EXPLORE}


class NodeAccount:
    """Follows the messages of workers. A worker is billed from its start to its end."""

    def __init__(self, cluster: Cluster, slots: int, clock: Callable[[], float]) -> None:
        """`slots`: workers of a pod, which share the price of a node."""
        self.nodes = NodeLedger(
            {
                Capacity.SPOT: PriceSchedule.constant(cluster.spot_price / slots, cluster.on_demand_price),
                Capacity.ON_DEMAND: PriceSchedule.constant(cluster.on_demand_price, cluster.on_demand_price),
            }
        )
        self._clock = clock

    def start(self, worker: str, capacity: Capacity = Capacity.SPOT) -> None:
        """Bill a worker from now on."""
        self.nodes.start(worker, self._clock(), capacity)

    def follow(self, worker: str, message: Message, answer: Any) -> None:
        """Label the worker's time after a message and its answer."""
        now = self._clock()
        match message:
            case Pull():
                label = LABELS[answer[0].request.kind] if answer else NodeLabel.IDLE
                self.nodes.label(worker, label, now)
            case Progress():
                self.nodes.settle(worker, now)
            case Done() | Surrender():
                self.nodes.settle(worker, now)
                self.nodes.label(worker, NodeLabel.IDLE, now)
            case Weights():
                self.nodes.label(worker, NodeLabel.PULL, now)

    def end(self, worker: str) -> None:
        """End a worker. Its work since the last commit is lost."""
        self.nodes.lose(worker, self._clock())

    def cost(self) -> float:
        """Return the cost of all workers so far."""
        return sum(self.nodes.billed(self._clock()).values())
