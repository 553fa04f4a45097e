"""What goes wrong with a store, in words that say what to do."""

from __future__ import annotations

from errno import EDQUOT, ENOSPC

from convoy_agents.tiercheck.digest import Damaged

__all__ = ["Damaged", "Missing", "NotMounted", "Stopped", "StoreError"]

_FULL = (ENOSPC, EDQUOT)


class StoreError(Exception):
    """The store did not do it. The message names the place, the operation and the way out."""

    def __init__(self, message: str, *, retriable: bool, errno: int | None = None) -> None:
        super().__init__(message)
        self.retriable = retriable
        """Whether the same again may succeed."""
        self.errno = errno
        """Of the system call that failed, or that says the same as the store."""

    @property
    def full(self) -> bool:
        """Whether there is no room for it."""
        return self.errno in _FULL


class Missing(StoreError):
    """A record may not be written: something below it is not in the store. To be uploaded again."""

    def __init__(self, where: str, manifests: frozenset[str], chunks: frozenset[str]) -> None:
        super().__init__(
            f"{where}: commit: {len(manifests)} manifests and {len(chunks)} chunks are not there; "
            "their shards are sent again",
            retriable=False,
        )
        self.manifests = manifests
        """By id."""
        self.chunks = chunks
        """By digest."""


class NotMounted(StoreError):
    """The volume is not mounted here: what would be written lay on the node's own disk."""


class Stopped(Exception):
    """The caller wants it no more."""
