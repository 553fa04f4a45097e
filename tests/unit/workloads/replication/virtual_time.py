"""An event loop whose time passes only when nothing is left to do, so hours take milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _NoFiles(selectors.SelectSelector):
    """A selector for a loop without files."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is left to do, and nobody ends the loop"
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop. It waits for no file descriptor and for no other thread."""

    def __init__(self) -> None:
        super().__init__(_NoFiles())
        self._virtual = 0.0

    def time(self) -> float:
        return self._virtual

    def _run_once(self) -> None:
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        if not self._ready and timers:  # type: ignore[attr-defined]
            self._virtual = max(self._virtual, timers[0]._when)
        super()._run_once()  # type: ignore[misc]


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
