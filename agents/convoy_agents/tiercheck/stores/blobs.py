"""The interface of a store's backend: named blobs of bytes, in a bucket or on a volume."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from convoy_agents.tiercheck import digest

MAX_TEXT = 32 * 1024 * 1024
"""Maximum bytes that are read of a record, branch or manifest. A manifest of 700,000 chunks has this size."""


class Listing(NamedTuple):
    """The blobs in a folder."""

    now: float
    """The current time by the clock that `written` comes from, in Unix seconds."""
    written: Mapping[str, float]
    """Unix seconds of the last write, by name."""
    sizes: Mapping[str, int] = MappingProxyType({})
    """Sizes in bytes, by name."""
    unfinished: Mapping[str, int] = MappingProxyType({})
    """Sizes in bytes, by temporary name, of blobs that are being written or whose write was interrupted.
    `Blobs.tidy` removes them.
    """


class Blobs(Protocol):
    """Named blobs of bytes. All methods block, raise StoreError, and may be called from several threads at
    once.
    """

    @property
    def where(self) -> str:
        """The store's place, for messages."""

    def put(self, key: str, data: digest.Buffer) -> None:
        """Write a blob durably and atomically. It replaces an existing one."""

    def create(self, key: str, data: digest.Buffer) -> bool:
        """Write a blob as `put` does, unless it exists. Return True for exactly one of several concurrent
        callers.
        """

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        """Return a blob's bytes, or `length` bytes from `offset` for a span (offset, length); None if it
        does not exist.

        At most `limit` bytes are read, so a caller must treat a longer blob as truncated.
        """

    def names(
        self, folder: str, alive: Callable[[], None] = lambda: None, wanted: Container[str] | None = None
    ) -> Listing:
        """List the blobs directly in a folder. `alive` is called repeatedly while the store answers.

        `wanted`: list these names alone, and nothing unfinished. This bounds the memory for a folder of any
        size.
        """

    def folders(self, folder: str, alive: Callable[[], None] = lambda: None) -> set[str]:
        """Return the names of the folders directly in a folder, or in the root for an empty name. `alive`:
        see `names`.
        """

    def touch(self, key: str) -> bool:
        """Set a blob's time of writing to now. Return False if it does not exist or the store cannot do
        this.
        """

    def remove(self, key: str) -> None:
        """Remove a blob. Idempotent."""

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        """Remove unfinished blobs whose write started before that time, and the folder if it is empty.
        `alive`: see `names`.
        """

    def refuses_damage(self, key: str) -> bool:
        """Send bytes with a wrong checksum. Return True if the store refuses them."""
