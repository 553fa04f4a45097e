"""A store for the rendezvous of a replica's ranks, in which every value is authenticated.

Anybody who reaches the port of rank 0 can write to the store itself. So each value carries a code (HMAC) that
only a rank with the key of the incarnation can compute. Through the store the ranks exchange the addresses at
which they connect to each other, so a rank connects only to ranks of its incarnation.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_CODE_BYTES = hashlib.sha256().digest_size


class NotAuthentic(RuntimeError):
    """A value was not written by a rank of this incarnation."""


class AuthenticatedStore(dist.Store):  # type: ignore[name-defined,misc]
    """A store that writes and accepts only values with the code of a key. Counters have no code: they only
    order the ranks' steps.
    """

    def __init__(self, store: Any, key: bytes) -> None:
        super().__init__()
        self._store = store
        self._key = key

    def set(self, name: str, value: str | bytes) -> None:
        """Write a value with its code."""
        data = value if isinstance(value, bytes) else value.encode()
        self._store.set(name, self._code(name, data) + data)

    def get(self, name: str) -> bytes:
        """Return a value. Raises NotAuthentic if its code is wrong."""
        raw = self._store.get(name)
        code, data = raw[:_CODE_BYTES], raw[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(name, data)):
            raise NotAuthentic(f"{name!r} in the rendezvous was not written with the key of this incarnation")
        return bytes(data)

    def wait(self, names: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all values exist."""
        if timeout is None:
            self._store.wait(list(names))
        else:
            self._store.wait(list(names), timeout)

    def add(self, name: str, amount: int) -> int:
        """Add to a counter, and return its value."""
        return int(self._store.add(name, amount))

    def check(self, names: Sequence[str]) -> bool:
        """Return True if all values exist."""
        return bool(self._store.check(list(names)))

    def delete_key(self, name: str) -> bool:
        """Delete a value. Return True if it existed."""
        return bool(self._store.delete_key(name))

    def _code(self, name: str, data: bytes) -> bytes:
        return hmac.new(self._key, name.encode() + b"\0" + data, hashlib.sha256).digest()
