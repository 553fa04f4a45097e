"""The blocks of the key-value cache: allocation, sharing between sequences with the same beginning, and
eviction. Pure.

A full block has a key: the digest of its tokens and of the key of the block before it. So equal keys mean
equal tokens from the beginning of the sequence on. A block that no sequence uses keeps its content until its
memory is needed; the block that was used least recently is evicted first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

TRASH = 0
"""Block that padding rows write to. No sequence gets it."""


class BlockPool:
    """The state of all blocks."""

    def __init__(self, count: int, reuse: bool) -> None:
        """`count`: number of usable blocks. `reuse`: True if blocks without a user keep their content."""
        self.count = count
        self._reuse = reuse
        self._free = list(range(count, 0, -1))
        self._uses = [0] * (count + 1)
        self._keys: dict[int, bytes] = {}
        self._found: dict[bytes, int] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()
        """Blocks that have a key and no user, the least recently used first."""

    @property
    def available(self) -> int:
        """Number of blocks that can be allocated."""
        return len(self._free) + len(self._unused)

    @property
    def used(self) -> int:
        """Number of blocks that sequences use."""
        return self.count - self.available

    def allocate(self) -> int | None:
        """Return a block with one user; None if all blocks are used."""
        if self._free:
            block = self._free.pop()
        elif self._unused:
            block, _ = self._unused.popitem(last=False)
            del self._found[self._keys.pop(block)]
        else:
            return None
        self._uses[block] = 1
        return block

    def share(self, key: bytes) -> int | None:
        """Return the block with this key, with one more user; None if there is none."""
        block = self._found.get(key)
        if block is not None:
            self._unused.pop(block, None)
            self._uses[block] += 1
        return block

    def register(self, block: int, key: bytes) -> None:
        """Record the key of a full block. If another block has the same key, that block stays the one to
        share.
        """
        if self._reuse and key not in self._found and block not in self._keys:
            self._found[key] = block
            self._keys[block] = key

    def release(self, blocks: Sequence[int]) -> None:
        """Remove one user from each block. The last block becomes the first to evict, because a block is of
        use only together with the blocks before it.
        """
        for block in reversed(blocks):
            self._uses[block] -= 1
            if self._uses[block]:
                continue
            if block in self._keys:
                self._unused[block] = None
            else:
                self._free.append(block)

    def users(self, block: int) -> int:
        """Return the number of sequences that use a block."""
        return self._uses[block]


def block_keys(tokens: Sequence[int], block: int, known: Sequence[bytes] = ()) -> list[bytes]:
    """Return the keys of all full blocks of `tokens`. `known` has the keys of the first blocks."""
    keys = list(known)
    bounds = range(len(keys) * block, len(tokens) + 1, block)
    for start, end in pairwise(bounds):
        before = keys[-1] if keys else b""
        text = b"".join(token.to_bytes(4, "little") for token in tokens[start:end])
        keys.append(hashlib.blake2b(before + text, digest_size=16).digest())
    return keys
