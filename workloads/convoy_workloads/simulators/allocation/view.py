"""The state of the cluster as a policy sees it at one decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from convoy_workloads.simulators.allocation.telemetry import Telemetry
from convoy_workloads.simulators.allocation.workload import Amount, Job


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue."""

    job: Job
    seconds: float
    """Its length as the scheduler sees it."""
    least: Amount | None
    """The least amount to reserve after a start that ran out of memory; None before the first start."""


@dataclass(frozen=True, slots=True)
class Start:
    """A decision to start a job of the queue."""

    index: int
    node: int
    reserved: Amount


@dataclass(frozen=True, slots=True)
class View:
    """One decision: which job starts next, on which node, with which amount."""

    now: float
    node: Amount
    """Capacity of each node."""
    limit: Amount
    """The part of each node that no tenant uses."""
    free: tuple[Amount, ...]
    """The amount that is not reserved on each node."""
    queue: tuple[Waiting, ...]
    """The oldest jobs that wait."""
    waiting: int
    """Number of all jobs that wait."""
    may_wait: bool
    """False if nothing runs, so that the policy must start a job if one fits."""
    telemetry: Telemetry

    def place(self, amount: Amount) -> int | None:
        """Return the node with the least room left over; None if the amount fits nowhere."""
        fitting = [number for number, free in enumerate(self.free) if amount.fits(free)]
        return min(fitting, key=lambda number: (self._room(self.free[number]), number), default=None)

    def _room(self, free: Amount) -> float:
        return free.cores / self.node.cores + free.memory / self.node.memory

    def bounded(self, waiting: Waiting, amount: Amount) -> Amount:
        """Return the amount within the limit of a node, and not below what an earlier start has shown."""
        least = waiting.least or Amount(0.0, 0.0)
        return Amount(
            min(max(amount.cores, least.cores), self.limit.cores),
            min(max(amount.memory, least.memory), self.limit.memory),
        )


class Policy(Protocol):
    """A scheduler with its rule for sizes."""

    def choose(self, view: View) -> Start | None:
        """Return the next start; None to start nothing until the next event."""
