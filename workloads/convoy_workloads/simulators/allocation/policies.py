"""Schedulers that follow a rule."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from convoy_workloads.simulators.allocation.sizing import Sizing
from convoy_workloads.simulators.allocation.view import Start, View, Waiting
from convoy_workloads.simulators.allocation.workload import Amount


class Order(StrEnum):
    """An order in which jobs start."""

    OLDEST = "oldest"
    """The oldest job that fits, as in kube-scheduler."""
    SHORTEST = "shortest"
    """The shortest job that fits (SJF)."""
    PACKING = "packing"
    """The job whose needs are best aligned with the free amount, and that is short: Tetris."""
    LONGEST = "longest"
    """The longest job that fits: an order that is bad on purpose."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """The first job in the order that fits on a node."""

    order: Order
    sizing: Sizing
    shortness: float = 0.5
    """Weight of a short time against a good alignment, for the order `packing`."""

    def choose(self, view: View) -> Start | None:
        """Return the start of the first job that fits."""
        found: list[tuple[float, int, Start]] = []
        for index, waiting in enumerate(view.queue):
            wanted = self.sizing.reserve(waiting.job, view.telemetry, view.now)
            amount = view.bounded(waiting, wanted)
            node = view.place(amount)
            if node is not None:
                found.append((self._key(view, waiting, amount, node), index, Start(index, node, amount)))
        return min(found, key=lambda one: one[:2])[2] if found else None

    def _key(self, view: View, waiting: Waiting, amount: Amount, node: int) -> float:
        match self.order:
            case Order.OLDEST:
                return waiting.job.arrival
            case Order.SHORTEST:
                return waiting.seconds
            case Order.LONGEST:
                return -waiting.seconds
            case Order.PACKING:
                work = waiting.seconds * (amount.cores / view.node.cores + amount.memory / view.node.memory)
                return self.shortness * work / _MEAN_WORK - (1 - self.shortness) * alignment(
                    view, amount, node
                )


_MEAN_WORK = 30.0
"""Typical work of a job in node seconds. It gives both parts of the order `packing` the same scale."""


def alignment(view: View, amount: Amount, node: int) -> float:
    """Return the scalar product of an amount and the free amount of a node, as shares of a node."""
    free = view.free[node]
    cores = (amount.cores / view.node.cores) * (free.cores / view.node.cores)
    return cores + (amount.memory / view.node.memory) * (free.memory / view.node.memory)
