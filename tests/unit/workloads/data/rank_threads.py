"""Ranks as threads of this process, which exchange messages without torch.distributed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
SECONDS = 60.0
"""Time after which a rank that waits for the others fails."""


class Meeting:
    """The exchanges of all ranks."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._barrier = threading.Barrier(world, timeout=SECONDS)
        self._sent: list[Any] = [None] * world

    def gather(self, rank: int, value: T) -> list[T]:
        """Return the values of all ranks. Raises BrokenBarrierError if a rank does not come."""
        self._sent[rank] = value
        self._barrier.wait()
        found = list(self._sent)
        self._barrier.wait()
        return found


class ThreadExchange:
    """The exchange of one rank, in place of `Exchange`."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.world, self._meeting = rank, meeting.world, meeting
        self.wait_seconds = 0.0

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        began = time.monotonic()
        found = self._meeting.gather(self.rank, list(numbers))
        self.wait_seconds += time.monotonic() - began
        assert len({len(one) for one in found}) == 1, "gloo gathers equally many numbers of each rank"
        return found


_here = threading.local()


def install(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Let the loaders of these modules use the exchange of the thread that creates them."""
    for module in modules:
        monkeypatch.setattr(f"{module}.Exchange", lambda *_: _here.exchange)


def run_ranks(world: int, rank_main: Callable[[int, Meeting], T]) -> list[T | BaseException]:
    """Run a function on each rank, with its number and the meeting of the ranks. Return the results, or the
    errors.
    """
    meeting = Meeting(world)

    def run(rank: int) -> T | BaseException:
        _here.exchange = ThreadExchange(rank, meeting)
        try:
            return rank_main(rank, meeting)
        except Exception as error:
            return error

    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(run, range(world)))
