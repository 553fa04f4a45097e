"""The phases of each collective and algorithm.

In a phase each GPU exchanges the same number of bytes with each of some peers. A peer is an offset: GPU r and
the offset d mean GPU (r + d) mod gpus. Every GPU does the same, so what it sends to the offset d it receives
from the offset -d.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from convoy_controllers.astrasim.loadstore.parameters import Algorithm, Setup
from convoy_controllers.astrasim.parameters import CollectiveType


@dataclass(frozen=True, slots=True)
class Phase:
    """Data that each GPU sends to the offsets `peers`."""

    peers: tuple[int, ...]
    size: int
    """Bytes for each peer."""
    reduces: bool
    """True if the receiver reduces the data."""


Plan = Callable[[int, int], list[Phase]]
"""(GPUs, bytes of the collective) -> its phases."""


def shard(size: int, gpus: int) -> int:
    """Return the bytes of a shard: the message in equal parts, rounded up."""
    return -(-size // gpus)


def _all(gpus: int) -> tuple[int, ...]:
    return tuple(range(1, gpus))


def _one_shot(gpus: int, size: int) -> list[Phase]:
    return [Phase(_all(gpus), size, True)]


def _two_shot(gpus: int, size: int) -> list[Phase]:
    part = shard(size, gpus)
    return [Phase(_all(gpus), part, True), Phase(_all(gpus), part, False)]


def _ring_all_reduce(gpus: int, size: int) -> list[Phase]:
    part = shard(size, gpus)
    return [Phase((1,), part, True)] * (gpus - 1) + [Phase((1,), part, False)] * (gpus - 1)


def _direct_all_gather(gpus: int, size: int) -> list[Phase]:
    return [Phase(_all(gpus), size, False)]


def _ring_all_gather(gpus: int, size: int) -> list[Phase]:
    return [Phase((1,), size, False)] * (gpus - 1)


def _direct_reduce_scatter(gpus: int, size: int) -> list[Phase]:
    return [Phase(_all(gpus), shard(size, gpus), True)]


def _ring_reduce_scatter(gpus: int, size: int) -> list[Phase]:
    return [Phase((1,), shard(size, gpus), True)] * (gpus - 1)


def _direct_all_to_all(gpus: int, size: int) -> list[Phase]:
    return [Phase(_all(gpus), shard(size, gpus), False)]


PLANS: Mapping[CollectiveType, Mapping[Algorithm, Plan]] = {
    CollectiveType.ALL_REDUCE: {
        Algorithm.ONE_SHOT: _one_shot,
        Algorithm.TWO_SHOT: _two_shot,
        Algorithm.RING: _ring_all_reduce,
    },
    CollectiveType.ALL_GATHER: {Algorithm.DIRECT: _direct_all_gather, Algorithm.RING: _ring_all_gather},
    CollectiveType.REDUCE_SCATTER: {
        Algorithm.DIRECT: _direct_reduce_scatter,
        Algorithm.RING: _ring_reduce_scatter,
    },
    CollectiveType.ALL_TO_ALL: {Algorithm.DIRECT: _direct_all_to_all},
}


def phases(setup: Setup) -> list[Phase]:
    """Return the phases of a run."""
    return PLANS[setup.collective][setup.algorithm](setup.links.gpus, setup.size)
