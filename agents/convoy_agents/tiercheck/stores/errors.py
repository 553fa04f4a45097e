"""The errors of a store. Each message says what to do next."""

from __future__ import annotations

from errno import EDQUOT, ENOSPC

from convoy_agents.tiercheck.digest import Damaged

__all__ = ["Damaged", "Missing", "NotMounted", "Stopped", "StoreError"]

_FULL = (ENOSPC, EDQUOT)


class StoreError(Exception):
    """An operation of a store failed. The message names the location, the operation and the remedy."""

    def __init__(self, message: str, *, retriable: bool, errno: int | None = None) -> None:
        super().__init__(message)
        self.retriable = retriable
        """True if a retry may succeed."""
        self.errno = errno
        """The errno of the failed system call, or the errno that corresponds to the store's own error code.
        None if there is no such errno.
        """

    @property
    def full(self) -> bool:
        """True if the store has no space left."""
        return self.errno in _FULL


class Missing(StoreError):
    """A record cannot be written, because objects that it needs are missing. The shards of these objects
    are uploaded again.
    """

    def __init__(self, where: str, manifests: frozenset[str], chunks: frozenset[str]) -> None:
        super().__init__(
            f"{where}: commit: {len(manifests)} manifests and {len(chunks)} chunks are missing; "
            "their shards are sent again",
            retriable=False,
        )
        self.manifests = manifests
        """Ids of the missing manifests."""
        self.chunks = chunks
        """Digests of the missing chunks."""


class NotMounted(StoreError):
    """The volume is not mounted on this node, so a write would go to the node's own disk."""


class Stopped(Exception):
    """The caller has cancelled the transfer."""
