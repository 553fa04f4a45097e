"""The interface of a store's backend: named blobs of bytes in a bucket or on a volume."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from convoy_agents.tiercheck import digest

MAX_TEXT = 32 * 1024 * 1024
"""Maximum bytes to read of a record, branch or manifest. A manifest of 700,000 chunks has about this size."""


class Listing(NamedTuple):
    """The blobs in one folder of the store."""

    now: float
    """Time of the listing (Unix seconds), by the clock that also gives the times in `written`."""
    written: Mapping[str, float]
    """Time of each blob's last write (Unix seconds), by the name of the blob."""
    sizes: Mapping[str, int] = MappingProxyType({})
    """Size of each blob in bytes, by the name of the blob."""
    unfinished: Mapping[str, int] = MappingProxyType({})
    """Sizes in bytes of the blobs whose write has not ended or was interrupted, by their temporary names.
    `Blobs.tidy` removes such blobs.
    """


class Blobs(Protocol):
    """Named blobs of bytes. All methods block, raise StoreError and are thread-safe."""

    @property
    def where(self) -> str:
        """The location of the store, for messages."""

    def put(self, key: str, data: digest.Buffer) -> None:
        """Write a blob durably and atomically. Replace an existing blob of this name."""

    def create(self, key: str, data: digest.Buffer) -> bool:
        """Write a blob durably and atomically, unless one of this name exists. If several callers do this
        at the same time, exactly one gets True.
        """

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        """Return the bytes of a blob, at most `limit`; None if the blob does not exist. `span`: an offset
        and a length, to read only this part.

        A caller must treat a blob that is longer than `limit` as truncated.
        """

    def names(
        self, folder: str, alive: Callable[[], None] = lambda: None, wanted: Container[str] | None = None
    ) -> Listing:
        """List the blobs directly in a folder. `alive` is called repeatedly while the store responds.

        `wanted`: list only these names, and no unfinished blobs. This bounds the memory for folders of any
        size.
        """

    def folders(self, folder: str, alive: Callable[[], None] = lambda: None) -> set[str]:
        """Return the names of the folders directly in a folder. An empty name is the root. `alive`: called
        repeatedly while the store responds.
        """

    def touch(self, key: str) -> bool:
        """Set the write time of a blob to now. Return False if the blob does not exist or the store cannot
        do this.
        """

    def remove(self, key: str) -> None:
        """Remove a blob. Idempotent."""

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        """Remove unfinished blobs that were last written before `before`, a Unix time in seconds. Also
        remove the folder if it is empty. `alive`: called repeatedly while the store responds.
        """

    def refuses_damage(self, key: str) -> bool:
        """Send bytes with a wrong checksum to the store. Return True if the store refuses them."""
