"""What ranks tell of their steps, and where they stand. All times are seconds by the rank's own monotonic
clock: nothing here, nor in what is made of it, compares the clocks of two machines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_RANKS = re.compile(r"(?P<first>\d+)(-(?P<last>\d+)(:(?P<stride>\d+))?)?", re.ASCII)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Collective:
    """All that one rank did in one communicator within a window."""

    group: str
    """The communicator's name, the same at all its members."""
    kind: str
    """What is compared with each other: `dp`, `tp`, `pp` and so on."""
    members: tuple[int, ...]
    """Ranks."""
    bytes: int
    """Sent or reduced in all; 0: unknown."""
    count: int
    seconds: float
    """From the call to the end of the transfer, summed: waiting for the others is in it."""


@dataclass(frozen=True, slots=True)
class Window:
    """What ONE rank did in the steps `first..last`, summed over them."""

    rank: int
    first: int
    last: int
    wall: float
    compute: float
    """Its own forward and backward passes; waiting for others is not in it."""
    optimizer: float = 0.0
    data: float = 0.0
    """Waiting for input."""
    wait: float = 0.0
    """Held up by collectives."""
    save: float = 0.0
    """Held up by checkpoints."""
    tokens: int = 0
    """0: unknown."""
    micro: tuple[float, ...] = ()
    """Own compute per micro-batch, forwards and then as many backwards; empty: unknown."""
    collectives: tuple[Collective, ...] = ()
    clock: float = 1.0
    """The device's clock to its maximum; 1: also when unknown."""
    throttled: bool = False

    @property
    def steps(self) -> int:
        """How many it covers."""
        return self.last - self.first + 1

    @property
    def host(self) -> float:
        """What nothing else explains: the program between its kernels."""
        known = self.compute + self.optimizer + self.data + self.wait + self.save
        return max(0.0, self.wall - known)


@lru_cache(maxsize=4096)
def members(told: str, size: int) -> tuple[int, ...] | None:
    """The ranks of a communicator: `0-3`, `0-12:4` for every fourth, `7`, by commas, rising.

    None: it is not said like this, or not of ranks of a world of `size`. Kept, since thousands of ranks say
    the same thing every second.
    """
    found: list[int] = []
    for part in told.split(","):
        match = _RANKS.fullmatch(part)
        if match is None:
            return None
        first, last = int(match["first"]), int(match["last"] or match["first"])
        stride = int(match["stride"] or 1)
        if not (found[-1] if found else -1) < first <= last < size or not stride:
            return None
        found.extend(range(first, last + 1, stride))
    return tuple(found)


def joined(windows: Sequence[Window]) -> Window:
    """One rank's windows, of steps without a gap, as one. ValueError: none, or of several ranks."""
    if len({one.rank for one in windows}) != 1:
        raise ValueError("windows of one rank are joined, and one at least")
    if len(windows) == 1:
        return windows[0]
    steps = sum(one.steps for one in windows)
    alike = len({len(one.micro) for one in windows}) == 1
    return Window(
        rank=windows[0].rank,
        first=min(one.first for one in windows),
        last=max(one.last for one in windows),
        wall=sum(one.wall for one in windows),
        compute=sum(one.compute for one in windows),
        optimizer=sum(one.optimizer for one in windows),
        data=sum(one.data for one in windows),
        wait=sum(one.wait for one in windows),
        save=sum(one.save for one in windows),
        tokens=sum(one.tokens for one in windows) if all(one.tokens for one in windows) else 0,
        micro=tuple(map(sum, zip(*(one.micro for one in windows), strict=True))) if alike else (),
        collectives=_joined_collectives(windows),
        clock=sum(one.clock * one.steps for one in windows) / steps,
        throttled=any(one.throttled for one in windows),
    )


def _joined_collectives(windows: Sequence[Window]) -> tuple[Collective, ...]:
    found: dict[str, Collective] = {}
    for window in windows:
        for one in window.collectives:
            before = found.get(one.group)
            found[one.group] = (
                one
                if before is None
                else replace(
                    one,
                    bytes=before.bytes + one.bytes,
                    count=before.count + one.count,
                    seconds=before.seconds + one.seconds,
                )
            )
    return tuple(found.values())


def window_of(step: int, length: int) -> tuple[int, int]:
    """The aligned window of `length` steps, a power of two, that holds `step`; steps count from 1."""
    first = (step - 1) // length * length + 1
    return first, first + length - 1


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where each rank stands: arrays by rank."""

    stage: Ints
    """Of the pipeline."""
    replica: Ints
    """Of the model, all of whose ranks work on the same samples."""
    node: Ints
    rack: Ints
    hardware: Ints
    """Its class: ranks of different classes are no peers."""

    @classmethod
    def of(
        cls,
        stage: Sequence[int],
        replica: Sequence[int],
        node: Sequence[int] = (),
        rack: Sequence[int] = (),
        hardware: Sequence[int] = (),
    ) -> Layout:
        """Made from lists; without nodes each rank has its own, without racks or classes there is one.

        ValueError: the lists differ in length.
        """
        size = len(stage)
        lists = (stage, replica, node or range(size), rack or [0] * size, hardware or [0] * size)
        if any(len(one) != size for one in lists):
            raise ValueError(f"lists of a layout differ in length: {[len(one) for one in lists]}")
        return cls(*(np.asarray(list(one), dtype=np.int64) for one in lists))

    @property
    def size(self) -> int:
        """Ranks."""
        return len(self.stage)

    @property
    def peers(self) -> Ints:
        """One number per group of peers: same stage, same class of hardware."""
        _, number = np.unique(np.stack([self.stage, self.hardware]), axis=1, return_inverse=True)
        return number.reshape(-1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One communicator in one window, as all its members told of it."""

    name: str
    kind: str
    members: Ints
    bytes: int
    count: int
    seconds: Floats
    """By member; NaN: not heard."""

    def silent(self) -> Group:
        """It in a window in which nobody told of it."""
        return replace(self, bytes=0, count=0, seconds=np.full(len(self.members), np.nan))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """One aligned window of all ranks: columns by rank, NaN where a rank was not heard."""

    first: int
    last: int
    wall: Floats
    compute: Floats
    optimizer: Floats
    data: Floats
    wait: Floats
    save: Floats
    host: Floats
    tokens: Floats
    """NaN: unknown."""
    clock: Floats
    throttled: Bools
    micro: Floats | None = None
    """Ranks by micro-batches, forwards and then backwards; None: nobody told of them."""
    groups: tuple[Group, ...] = ()

    @property
    def size(self) -> int:
        """Ranks."""
        return len(self.wall)

    @property
    def steps(self) -> int:
        """How many it covers."""
        return self.last - self.first + 1

    @property
    def heard(self) -> Bools:
        """Which ranks told of this window."""
        return ~np.isnan(self.wall)


def tabulate(windows: Sequence[Window], size: int) -> Table:
    """Windows of the same steps as a table for `size` ranks. ValueError: none, or of different steps."""
    if len({(one.first, one.last) for one in windows}) != 1:
        raise ValueError("a table is made of windows of the same steps, and of one at least")
    index = [one.rank for one in windows]

    def column(values: Sequence[float]) -> Floats:
        whole = np.full(size, np.nan)
        whole[index] = values
        return whole

    tokens = column([one.tokens or np.nan for one in windows])
    throttled = np.zeros(size, dtype=np.bool_)
    throttled[index] = [one.throttled for one in windows]
    return Table(
        first=windows[0].first,
        last=windows[0].last,
        wall=column([one.wall for one in windows]),
        compute=column([one.compute for one in windows]),
        optimizer=column([one.optimizer for one in windows]),
        data=column([one.data for one in windows]),
        wait=column([one.wait for one in windows]),
        save=column([one.save for one in windows]),
        host=column([one.host for one in windows]),
        tokens=tokens,
        clock=column([one.clock for one in windows]),
        throttled=throttled,
        micro=_micro(windows, size),
        groups=_groups(windows),
    )


def _micro(windows: Sequence[Window], size: int) -> Floats | None:
    """Ranks whose count is not the usual one are left out: another count is another kind of step."""
    counts = np.bincount([len(one.micro) for one in windows])
    usual = int(counts.argmax())
    if usual == 0:
        return None
    micro = np.full((size, usual), np.nan)
    for one in windows:
        if len(one.micro) == usual:
            micro[one.rank] = one.micro
    return micro


def _groups(windows: Sequence[Window]) -> tuple[Group, ...]:
    told: dict[str, dict[int, Collective]] = {}
    for one in windows:
        for collective in one.collectives:
            told.setdefault(collective.group, {})[one.rank] = collective
    groups = []
    for name, by_rank in sorted(told.items()):
        any_one = next(iter(by_rank.values()))
        seconds = [by_rank[rank].seconds if rank in by_rank else np.nan for rank in any_one.members]
        members = np.asarray(any_one.members, dtype=np.int64)
        groups.append(Group(name, any_one.kind, members, any_one.bytes, any_one.count, np.asarray(seconds)))
    return tuple(groups)
