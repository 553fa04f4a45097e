"""The writer of a segment (segment.py defines the format)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from convoy_workloads.runtime.journal import rows
from convoy_workloads.runtime.journal.segment import HEADER, MAGIC, Head, NoRoom
from convoy_workloads.runtime.tiers.memory_copy import MemoryCopy
from convoy_workloads.runtime.tiers.shard import ALIGN, Box

_SLACK = 1024
"""Spare bytes for the index, beyond its estimated size."""
_ROW = 64
"""Index bytes to reserve for each gradient of the open step. The index entry is written when the step is
closed.
"""


class SegmentWriter:
    """Writes one segment, step by step, into memory of the caller."""

    def __init__(self, target: memoryview, head: Head) -> None:
        """Prepare an empty segment in `target`. The previous content of `target` is lost."""
        if target.readonly or len(target) < HEADER:
            raise NoRoom("no writable memory for a segment")
        target[:HEADER] = bytes(HEADER)
        self._target = target
        self._whole = torch.frombuffer(target, dtype=torch.uint8)
        self._head = head
        self._at = HEADER
        self._pending: list[list[int]] = []
        self._begun = HEADER
        self._forms: dict[tuple[int, str, tuple[int, ...]], int] = {}
        self._texts: dict[str, int] = {}
        self._steps: list[str] = []
        self._parts: list[list[Any]] = []
        self._index = len(_json(_head(head))) + _SLACK

    @property
    def steps(self) -> int:
        """Number of steps that the segment contains so far."""
        return len(self._steps)

    @property
    def left(self) -> int:
        """Number of bytes that are still available for tensors and their index entries."""
        return len(self._target) - self._at - self._index - _ROW * len(self._pending)

    def gradients(self, parts: Iterable[tuple[int, torch.Tensor, torch.Tensor]]) -> None:
        """Copy gradients into the open step. Each entry of `parts` is the number of a share, a gradient, and
        the part of the gradient that the share describes.
        """
        copy = MemoryCopy()
        for share, gradient, part in parts:
            self._gradient(share, gradient, part, copy)
        copy.run()

    def _gradient(self, share: int, gradient: torch.Tensor, part: torch.Tensor, copy: MemoryCopy) -> None:
        indexes = rows.nonzero_rows(part)
        form = self._form(share, gradient)
        if indexes is None:
            at = self._copy(part, copy)
            self._pending.append([form, at, self._at_end - at])
            return
        count = len(indexes)
        width = part.stride(0) * part.element_size()
        at = self._reserve(rows.packed_bytes(count, width))
        if count:
            self._room(at, indexes.dtype, (count,)).copy_(indexes)
            self._pad(at + count * indexes.element_size(), at + rows.rows_offset(count))
            kept = self._room(at + rows.rows_offset(count), part.dtype, (count, *part.shape[1:]))
            if part.device.type == "cpu":
                torch.index_select(part.detach(), 0, indexes, out=kept)
            else:
                kept.copy_(part.detach().index_select(0, indexes))
        self._pending.append([form, at, self._at_end - at, count])

    def drop(self) -> None:
        """Drop the gradients of the open step, because the optimizer did not make the step."""
        self._pending = []
        self._at = self._begun

    def step(self, groups: str, scaling: str) -> None:
        """Close the open step. Its gradients must have been copied with `gradients`. `groups` and `scaling`
        are the step's other inputs, encoded as text (tiers/values.py).
        """
        numbers = [self._text(groups), self._text(scaling)]
        row = _json([*numbers, self._pending])
        self._steps.append(row)
        self._index += len(row) + 1
        self._pending = []
        self._begun = self._at

    def tensor(self, name: str, box: Box, shape: tuple[int, ...], tensor: torch.Tensor) -> None:
        """Copy a whole tensor, or one box of a tensor, into the segment."""
        copy = MemoryCopy()
        at = self._copy(tensor, copy)
        copy.run()
        kind = str(tensor.dtype).removeprefix("torch.")
        row = [name, list(box[0]), list(box[1]), list(shape), kind, at, self._at_end - at]
        self._parts.append(row)
        self._index += len(_json(row)) + 1
        self._begun = self._at

    def seal(self, after: str, values: Mapping[str, str], facts: Mapping[str, Any]) -> int:
        """Write the index. Return the segment's length in bytes. Raises NoRoom if the index does not fit."""
        self.drop()
        body = {
            **_head(self._head),
            "after": self._text(after),
            "facts": dict(facts),
            "forms": [[share, kind, list(strides)] for share, kind, strides in self._forms],
            "parts": self._parts,
            "texts": list(self._texts),
            "values": dict(values),
        }
        text = f'{_json(body)[:-1]},"steps":[{",".join(self._steps)}]}}'.encode()
        end = self._at + len(text)
        if end > len(self._target):
            raise NoRoom(f"an index of {len(text)} bytes does not fit")
        self._target[self._at : end] = text
        self._target[24:56] = hashlib.sha256(text).digest()
        self._target[16:24] = len(text).to_bytes(8, "little")
        self._target[8:16] = self._at.to_bytes(8, "little")
        self._target[:8] = MAGIC
        return end

    def _copy(self, tensor: torch.Tensor, copy: MemoryCopy) -> int:
        length = tensor.numel() * tensor.element_size()
        at = self._reserve(length)
        if length:
            copy.add(self._room(at, tensor.dtype, tuple(tensor.shape)), tensor.detach())
        return at

    def _reserve(self, length: int) -> int:
        at = self._at
        if length + ALIGN > self.left:
            raise NoRoom(f"{length} bytes, {self.left} are left")
        self._at_end = at + length
        self._at = -(-self._at_end // ALIGN) * ALIGN
        # Zero the padding, so that equal steps give equal bytes regardless of the buffer's previous content.
        self._pad(self._at_end, self._at)
        return at

    def _pad(self, start: int, end: int) -> None:
        self._target[start:end] = bytes(end - start)

    def _room(self, at: int, dtype: torch.dtype, sizes: tuple[int, ...]) -> torch.Tensor:
        length = dtype.itemsize
        for size in sizes:
            length *= size
        return self._whole[at : at + length].view(dtype).view(sizes)

    def _form(self, share: int, gradient: torch.Tensor) -> int:
        key = (share, str(gradient.dtype).removeprefix("torch."), tuple(gradient.stride()))
        if key not in self._forms:
            self._forms[key] = len(self._forms)
            self._index += len(_json(key)) + 1
        return self._forms[key]

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts)
            self._index += len(_json(text)) + 1
        return self._texts[text]


def _head(head: Head) -> dict[str, Any]:
    return {
        "base": head.base,
        "first": head.first,
        "kernel": head.kernel.to_json(),
        "number": head.number,
        "rank": head.rank,
        "shares": [[one.name, list(one.offsets), list(one.sizes), list(one.shape)] for one in head.shares],
        "structure": head.structure,
        "world": head.world,
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
