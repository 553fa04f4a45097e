"""From what the ranks of a synthetic job did to what the hub hears of it, in which order."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from convoy_controllers.guard.telemetry import Collective, Table, Window


@dataclass(frozen=True)
class Way:
    """What happens to windows between their ranks and the hub. Shares of the windows."""

    lost: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    """Heard after those of the next step."""
    skewed: float = 0.0
    """Ranks whose every window comes that late."""


def windows(table: Table, lies: dict[int, float]) -> list[Window]:
    """One by rank that is heard. `lies`: by rank, how much slower it says that it computed."""
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
        more = 1 + lies.get(rank, 0.0)
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
class Post:
    """Carries windows as its way has it."""

    way: Way
    random: random.Random
    _late: list[Window] = field(default_factory=list)

    def carry(self, told: list[Window]) -> Iterator[Window]:
        """What arrives now, in this order: what was late comes after what was not."""
        before, self._late = self._late, []
        if self.way == Way():
            yield from told
            return
        for window in told:
            chance = self.random.random
            if chance() < self.way.lost:
                continue
            skewed = window.rank % 1000 < 1000 * self.way.skewed
            if skewed or chance() < self.way.late:
                self._late.append(window)
                continue
            yield window
            if chance() < self.way.twice:
                yield replace(window)
        yield from before
