"""The account of the nodes' time: each second of a slot for a worker has one label and one price.

A slot costs its share of a node from the start of its pod to the end of its node, whether or not a worker
runs in it. A restarted trainer goes back to its checkpoint, but the money is spent. So the slots of the
checkpoint cost until the restart, and those that have come since, from the start of their pods. Only pods
that have come and gone in between are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convoy_crds.spot_prices import PriceSchedule
from convoy_workloads.engines.spotlight.live.messages import Done, Message, Progress, Pull, Surrender, Weights
from convoy_workloads.engines.spotlight.params import Cluster
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLabel, NodeLedger
from convoy_workloads.spot.ledger.request import RequestKind

LABELS = {RequestKind.ROLLOUT: NodeLabel.ROLLOUT, RequestKind.EXPLORE: NodeLabel.EXPLORE}
MAX_ENDED = 4096
"""Slots whose ends are known, so that no time of a pod that joins again is billed twice."""
_NEVER = float("-inf")


class NodeAccount:
    """Follows slots, and the messages of the workers in them."""

    def __init__(self, cluster: Cluster, slots: int, clock: Callable[[], float]) -> None:
        """`slots`: slots of a pod, which share the price of a node."""
        self.nodes = NodeLedger(
            {
                Capacity.SPOT: PriceSchedule.constant(cluster.spot_price / slots, cluster.on_demand_price),
                Capacity.ON_DEMAND: PriceSchedule.constant(cluster.on_demand_price, cluster.on_demand_price),
            }
        )
        self.unobserved = 0.0
        """Seconds between the checkpoints and the restarts of the trainer. The cost lacks pods that have come
        and gone within them.
        """
        self._clock = clock
        self._slots: dict[str, str] = {}
        """Slot of each worker."""
        self._ended: dict[str, float] = {}
        """Time at which the node of a slot has gone."""
        self._restored = _NEVER
        """Time of the last restart."""

    # Slots

    def reconcile(self, slots: Mapping[str, float | None]) -> None:
        """Bill exactly these spot slots from now on, new ones since the given times."""
        billed = {name for name, kind in self.nodes.running().items() if kind is Capacity.SPOT}
        for slot in billed - slots.keys():
            self.end(slot)
        for slot in slots.keys() - billed:
            self.start(slot, since=slots[slot])

    def start(self, slot: str, capacity: Capacity = Capacity.SPOT, since: float | None = None) -> None:
        """Bill a slot since a time; without one, from now on."""
        now, before = self._clock(), self._ended.pop(slot, None)
        at = now if since is None else max(min(now, since), _NEVER if before is None else before)
        self.nodes.start(slot, at, capacity)
        if at < self._restored:
            # The trainer has gone back to the time before, so nothing that was done since counts.
            self.nodes.label(slot, NodeLabel.LOST, at)
            self.nodes.label(slot, NodeLabel.BOOT, self._restored)
        if before is not None:
            self.nodes.label(slot, NodeLabel.IDLE, max(at, self._restored))

    def end(self, slot: str) -> None:
        """End a slot, whose node has gone. Work since the last commit is lost."""
        self._end(slot, self._clock())

    # Workers

    def occupy(self, slot: str, worker: str) -> None:
        """Record that a worker starts in a slot. Until its first call the slot keeps its label."""
        self._slots[worker] = slot

    def vacate(self, worker: str) -> None:
        """Record that a worker has ended. Its work since the last commit is lost, and its slot is idle."""
        slot, now = self._slots.pop(worker, None), self._clock()
        if slot is not None:
            self.nodes.forfeit(slot, now)
            self.nodes.label(slot, NodeLabel.IDLE, now)

    def follow(self, worker: str, message: Message, answer: Any) -> None:
        """Label the time of a worker's slot after a message and its answer."""
        now, slot = self._clock(), self._slots.get(worker)
        if slot is None:
            return
        match message:
            case Pull():
                label = LABELS[answer[0].request.kind] if answer else NodeLabel.IDLE
                self.nodes.label(slot, label, now)
            case Progress():
                self.nodes.settle(slot, now)
            case Done() | Surrender():
                self.nodes.settle(slot, now)
                self.nodes.label(slot, NodeLabel.IDLE, now)
            case Weights():
                self.nodes.label(slot, NodeLabel.PULL, now)

    # The account

    def cost(self) -> float:
        """Return the cost of all slots so far."""
        return sum(self.nodes.billed(self._clock()).values())

    def state_dict(self) -> dict[str, Any]:
        """Return the state, besides the ledger of `nodes`."""
        return {
            "at": self._clock(),
            "workers": list(self._slots),
            "ended": self._ended,
            "unobserved": self.unobserved,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Set the saved state, after that of `nodes`. Return the workers of the earlier run.

        All slots end now, and the time since the checkpoint is lost. A pod that joins again goes on from now.
        """
        saved = float(state["at"])
        self._restored = max(saved, self._clock())
        self.unobserved = float(state["unobserved"]) + self._restored - saved
        self._ended = dict(state["ended"])
        self._slots.clear()
        for slot in list(self.nodes.running()):
            self._end(slot, self._restored, saved)
        return list(state["workers"])

    def _end(self, slot: str, at: float, seen: float | None = None) -> None:
        self.nodes.lose(slot, at, seen)
        self._ended[slot] = at
        while len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
