"""Telemetry of the ranks' steps, and the layout of the ranks.

All times are seconds of the rank's own monotonic clock. The detector never compares the clocks of two
machines.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

_RANK = r"(0|[1-9]\d{0,8})"
_RANKS = re.compile(rf"(?P<first>{_RANK})(-(?P<last>{_RANK})(:(?P<stride>{_RANK}))?)?", re.ASCII)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Collective:
    """One rank's largest collectives in one communicator within a window: only those that move the most
    bytes.
    """

    group: str
    """Name of the communicator. All its members report the same name."""
    kind: str
    """`dp`, `tp`, `pp` and so on. Only communicators of one kind are compared."""
    members: tuple[range, ...]
    """Ranks that belong to the communicator."""
    bytes: int
    """Bytes that each of the largest collectives moves; 0 if unknown."""
    count: int
    """Number of the largest collectives in the window."""
    seconds: float
    """Seconds of the fastest of the largest collectives, from the call to the end of the transfer. The wait
    for other members is included.
    """

    def joined(self, other: Collective) -> Collective:
        """Return the largest collectives of this window and another window as one. If their byte counts
        differ, only the collectives with more bytes are kept.
        """
        if self.bytes != other.bytes:
            return max(self, other, key=lambda one: one.bytes)
        seconds = min(self.seconds, other.seconds)
        return replace(self, count=self.count + other.count, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Position:
    """The position that a rank reports: its pipeline stage and its model replica."""

    stage: int
    replica: int


@dataclass(frozen=True, slots=True)
class Window:
    """The work of ONE rank in the steps `first..last`. All times are sums over these steps."""

    rank: int
    first: int
    last: int
    wall: float
    compute: float
    """Seconds of the rank's own forward and backward passes, without waits for other ranks."""
    optimizer: float = 0.0
    data: float = 0.0
    """Seconds for which the rank waited for input."""
    wait: float = 0.0
    """Seconds for which the rank waited in collectives."""
    save: float = 0.0
    """Seconds for which saves of checkpoints made the rank wait."""
    tokens: int = 0
    """Number of tokens that the rank processed in these steps; 0 if unknown."""
    micro: tuple[float, ...] = ()
    """Seconds of own compute per micro-batch: all forward passes, then as many backward passes; empty if
    unknown.
    """
    collectives: tuple[Collective, ...] = ()
    clock: float = 1.0
    """Clock rate of the device relative to its maximum; 1 if unknown."""
    throttled: bool = False
    position: Position | None = None
    """Position of the rank in the parallel layout; None if unknown."""
    exchanges: bool = False
    """True if the rank exchanged data with single ranks in each step, as the stages of a pipeline do."""

    @property
    def steps(self) -> int:
        """Return the number of steps in the window."""
        return self.last - self.first + 1

    @property
    def host(self) -> float:
        """Return the host time: the seconds that no other field covers. The program spent them between its
        kernels.
        """
        known = self.compute + self.optimizer + self.data + self.wait + self.save
        return max(0.0, self.wall - known)


@lru_cache(maxsize=1024)
def parse_members(text: str, size: int) -> tuple[range, ...] | None:
    """Return the ranks of a communicator, parsed from a comma-separated rising list.

    An item is a rank (`7`), a range (`0-3`) or a range with a stride (`0-12:4` for every fourth rank).
    Return None if the text has another form, names fewer than two ranks, or names a rank that is not below
    `size`.
    """
    found: list[range] = []
    for part in text.split(","):
        match = _RANKS.fullmatch(part)
        if match is None:
            return None
        first, last = int(match["first"]), int(match["last"] or match["first"])
        stride = int(match["stride"] or 1)
        if not (found[-1][-1] if found else -1) < first <= last < size or not stride:
            return None
        found.append(range(first, last + 1, stride))
    return tuple(found) if sum(map(len, found)) > 1 else None


def joined(windows: Sequence[Window]) -> Window:
    """Return one rank's windows of consecutive steps as one window. Raises ValueError if there are no
    windows, or windows of several ranks.
    """
    if len({one.rank for one in windows}) != 1:
        raise ValueError("can only join one or more windows of a single rank")
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
        position=windows[-1].position,
        exchanges=all(one.exchanges for one in windows),
    )


def _joined_collectives(windows: Sequence[Window]) -> tuple[Collective, ...]:
    found: dict[str, Collective] = {}
    for window in windows:
        for one in window.collectives:
            before = found.get(one.group)
            found[one.group] = one if before is None else before.joined(one)
    return tuple(found.values())


def window_of(step: int, length: int) -> tuple[int, int]:
    """Return the first and last step of the aligned window that contains `step`. `length`: number of steps
    per window, a power of two. Steps count from 1.
    """
    first = (step - 1) // length * length + 1
    return first, first + length - 1


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The pipeline stage, model replica, node, rack and class of hardware of each rank. Each field is an
    array that is indexed by rank number.
    """

    stage: Ints
    """Number of each rank's pipeline stage."""
    replica: Ints
    """Number of each rank's model replica. All ranks of a replica work on the same samples."""
    node: Ints
    rack: Ints
    hardware: Ints
    """Number of each rank's class of hardware. Ranks of different classes are no peers."""

    @classmethod
    def of(
        cls,
        stage: Sequence[int],
        replica: Sequence[int],
        node: Sequence[int] = (),
        rack: Sequence[int] = (),
        hardware: Sequence[int] = (),
    ) -> Layout:
        """Return a layout made from lists with one entry per rank.

        Without `node` each rank has its own node. Without `rack` or `hardware` all ranks share one rack or
        class. Raises ValueError if the lists differ in length.
        """
        size = len(stage)
        lists = (stage, replica, node or range(size), rack or [0] * size, hardware or [0] * size)
        if any(len(one) != size for one in lists):
            raise ValueError(f"the lists of a layout differ in length: {[len(one) for one in lists]}")
        return cls(*(np.asarray(list(one), dtype=np.int64) for one in lists))

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.stage)

    @property
    def peers(self) -> Ints:
        """Return by rank the number of its peer group: the ranks of the same stage and class of hardware."""
        _, number = np.unique(np.stack([self.stage, self.hardware]), axis=1, return_inverse=True)
        return number.reshape(-1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One communicator in one window, combined from its members' reports."""

    name: str
    kind: str
    members: Ints
    bytes: int
    """Bytes that each of the communicator's largest collectives moves; 0 if unknown."""
    count: int
    """Number of the communicator's largest collectives in the window."""
    seconds: Floats
    """Seconds of the fastest of the communicator's largest collectives, by member; NaN if the member did
    not report.
    """

    @property
    def transfer(self) -> float:
        """Return the seconds of the transfer without the wait for other members; NaN unless all members
        reported.
        """
        return float(self.seconds.min()) if len(self.seconds) else np.nan

    def silent(self) -> Group:
        """Return this communicator as it appears in a window without any report."""
        return replace(self, count=0, seconds=np.full(len(self.members), np.nan))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """One aligned window of all ranks. Columns are indexed by rank; NaN if a rank did not report."""

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
    """Number of tokens that each rank processed, by rank; NaN if unknown."""
    clock: Floats
    throttled: Bools
    micro: Floats | None = None
    """Seconds by rank and micro-batch: all forward passes, then all backward passes. None if no rank
    reported them.
    """
    groups: tuple[Group, ...] = ()

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.wall)

    @property
    def steps(self) -> int:
        """Return the number of steps in the window."""
        return self.last - self.first + 1

    @property
    def micro_batches(self) -> int:
        """Return the number of micro-batches in the window; 1 if no rank reported them."""
        return max(1, self.micro.shape[1] // 2) if self.micro is not None else 1

    @property
    def reported(self) -> Bools:
        """Return a mask of the ranks that reported this window."""
        return ~np.isnan(self.wall)

    @property
    def has_tokens(self) -> bool:
        """Return True if all ranks that reported their compute times reported tokens too."""
        timed = ~np.isnan(self.compute)
        return bool(timed.any() and not np.isnan(self.tokens[timed]).any())


def tabulate(windows: Sequence[Window], size: int) -> Table:
    """Return windows of the same steps as a table for `size` ranks. Raises ValueError if there are no
    windows or their steps differ.
    """
    if len({(one.first, one.last) for one in windows}) != 1:
        raise ValueError("a table needs one or more windows of the same steps")
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
    """Return the micro-batch times by rank; None if most ranks report none. A rank with an unusual number
    of micro-batches is left out, because its times are not comparable.
    """
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
    """Return the communicators that at least half of their members report. One rank's report alone does not
    prove the list of members.
    """
    by_group: dict[str, dict[int, Collective]] = {}
    for one in windows:
        for collective in one.collectives:
            if any(one.rank in ranks for ranks in collective.members):
                by_group.setdefault(collective.group, {})[one.rank] = collective
    return tuple(
        _group(name, by_rank)
        for name, by_rank in sorted(by_group.items())
        if 2 * len(by_rank) >= sum(map(len, next(iter(by_rank.values())).members))
    )


def _group(name: str, by_rank: dict[int, Collective]) -> Group:
    any_one = next(iter(by_rank.values()))
    ranks = list(chain.from_iterable(any_one.members))
    # Ignore members that report another number of bytes than most members: their times are not comparable.
    size = statistics.multimode(one.bytes for one in by_rank.values())[0]
    alike = {rank: one for rank, one in by_rank.items() if one.bytes == size}
    seconds = [alike[rank].seconds if rank in alike else np.nan for rank in ranks]
    count = int(statistics.median_low(one.count for one in alike.values()))
    return Group(name, any_one.kind, np.asarray(ranks, dtype=np.int64), size, count, np.asarray(seconds))
