"""What a store is made of: names with bytes, in a bucket or on a volume."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from convoy_agents.tiercheck import digest

MAX_TEXT = 32 * 1024 * 1024
"""Bytes of a record, branch or manifest that are read: one of 700,000 chunks has as many."""


class Listing(NamedTuple):
    """What lies in a folder."""

    now: float
    """By the clock that the times are from."""
    written: Mapping[str, float]
    """By name, Unix seconds when it was last written."""
    sizes: Mapping[str, int] = MappingProxyType({})
    """By name, bytes."""
    unfinished: Mapping[str, int] = MappingProxyType({})
    """Bytes of what is just being written, or broke off, by a name of its own: `Blobs.tidy` removes it."""


class Blobs(Protocol):
    """Names with bytes. Blocking; used by several threads at once. All raise StoreError."""

    @property
    def where(self) -> str:
        """The place, for messages."""

    def put(self, key: str, data: digest.Buffer) -> None:
        """All of the bytes, durable, or nothing. Replaces what is there."""

    def create(self, key: str, data: digest.Buffer) -> bool:
        """As `put`, if nothing is there; of several at once one does it. Whether it was this one."""

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        """The bytes, or (offset, length) of them; None when nothing is there.

        Of what is longer than `limit` only so many bytes are read: whoever reads sees that it is not whole.
        """

    def names(
        self, folder: str, alive: Callable[[], None] = lambda: None, wanted: Container[str] | None = None
    ) -> Listing:
        """Names right in a folder. `alive` is called again and again while the store answers.

        `wanted`: of these alone, and of nothing unfinished: no more is held than is asked for, however much
        lies there.
        """

    def folders(self, folder: str, alive: Callable[[], None] = lambda: None) -> set[str]:
        """Names of the folders right in a folder, or in all of it when it is empty. `alive` as in `names`."""

    def touch(self, key: str) -> bool:
        """Written now, with the same bytes. False when nothing is there, or the store cannot."""

    def remove(self, key: str) -> None:
        """Nothing is there any more. Idempotent."""

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        """Clears up what was begun before then and broke off; a folder that is empty may go. `alive` as in
        `names`.
        """

    def refuses_damage(self, key: str) -> bool:
        """Sends bytes with a checksum that is not theirs; whether the store sees it."""
