"""An epoch in progress, of the loader `OnlineBatches`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from convoy_workloads.data.alignment import Alignment
from convoy_workloads.data.epoch_order import Reshare, epoch_order, remaining, share


@dataclass
class Epoch:
    """An epoch in progress."""

    number: int
    alignment: Alignment
    reshares: list[Reshare] = field(default_factory=list)
    quarantined: int = 0
    """Samples that other numbers of ranks put into quarantine in this epoch, before the reshares."""
    steps: int = 0

    def share(self, count: int, seed: int, shuffle: bool, rank: int, world: int) -> Sequence[int]:
        """Return a rank's samples of the epoch, after its reshares."""
        order = epoch_order(count, seed, self.number, shuffle)
        return share(remaining(order, self.reshares) if self.reshares else order, rank, world)
