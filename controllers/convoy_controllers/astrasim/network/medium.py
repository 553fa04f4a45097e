"""The interface of a network model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from convoy_controllers.astrasim.result import LinkUse

Key = tuple[int, int, int, int]
"""Tag, source, target and size of a message. Messages of the same key match in the order of their number."""
Deliver = Callable[[Key], None]
"""Called when a message arrives."""


class Medium(Protocol):
    """Carries messages."""

    def send(self, key: Key) -> None:
        """Send a message now."""

    def uses(self) -> Iterator[LinkUse]:
        """Yield the use of each used link so far."""
