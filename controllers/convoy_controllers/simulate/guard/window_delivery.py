"""Delivers telemetry windows from the ranks of a synthetic job to the hub, with faults."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from convoy_controllers.guard.telemetry import Collective, Table, Window


@dataclass(frozen=True)
class DeliveryFaults:
    """Fractions of windows (0 to 1) that are lost, delivered twice, or late on their way to the hub."""

    lost: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    """Fraction of windows that arrive after the windows of the next step."""
    skewed: float = 0.0
    """Fraction of ranks whose windows are always late."""


def windows(table: Table, false_slowdowns: dict[int, float]) -> list[Window]:
    """Return one window for each rank that has data.

    `false_slowdowns` has, by rank, the slowdown to add to the telemetry.
    """
    collectives: dict[int, list[Collective]] = {}
    for group in table.groups:
        ranks = group.members.tolist()
        members = tuple(range(rank, rank + 1) for rank in ranks)
        for rank, seconds in zip(ranks, group.seconds.tolist(), strict=True):
            if not math.isnan(seconds):
                one = Collective(group.name, group.kind, members, group.bytes, group.count, seconds)
                collectives.setdefault(rank, []).append(one)
    found = []
    tokens = np.nan_to_num(table.tokens).astype(int).tolist()
    columns = zip(
        table.wall.tolist(), table.compute.tolist(), table.optimizer.tolist(), table.data.tolist(),
        table.wait.tolist(), table.save.tolist(), table.clock.tolist(), table.throttled.tolist(),
        strict=True,
    )  # fmt: skip
    for rank, (wall, compute, optimizer, data, wait, save, clock, throttled) in enumerate(columns):
        if math.isnan(wall):
            continue
        more = 1 + false_slowdowns.get(rank, 0.0)
        micro = table.micro[rank] * more if table.micro is not None else np.empty(0)
        found.append(
            Window(
                rank=rank,
                first=table.first,
                last=table.last,
                wall=wall,
                compute=compute * more,
                optimizer=optimizer,
                data=data,
                wait=max(0.0, wait - compute * (more - 1)),
                save=save,
                tokens=tokens[rank],
                micro=tuple(micro.tolist()),
                collectives=tuple(collectives.get(rank, ())),
                clock=clock,
                throttled=throttled,
            )
        )
    return found


@dataclass
class WindowDelivery:
    """Delivers windows. Some are lost, delivered twice, or late."""

    faults: DeliveryFaults
    random: random.Random
    _late: list[Window] = field(default_factory=list)

    def deliver(self, sent: list[Window]) -> Iterator[Window]:
        """Yield the windows that arrive at this step. Late windows of the previous step come last."""
        before, self._late = self._late, []
        if self.faults == DeliveryFaults():
            yield from sent
            return
        for window in sent:
            chance = self.random.random
            if chance() < self.faults.lost:
                continue
            skewed = window.rank % 1000 < 1000 * self.faults.skewed
            if skewed or chance() < self.faults.late:
                self._late.append(window)
                continue
            yield window
            if chance() < self.faults.twice:
                yield replace(window)
        yield from before
