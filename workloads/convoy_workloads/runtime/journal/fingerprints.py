"""Fingerprints of tensors, computed at the speed of memory. They detect unexpected changes.

Each row of 1,024 words of 64 bits is multiplied by fixed odd numbers and summed modulo 2**64, on the
tensor's device. The sums are hashed. A change of one word is always detected. Of the possible changes of
several words in one row, a share of 2**-64 is missed. This protects against accidents only, not against
somebody who can choose the bits.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch

from convoy_workloads.runtime.journal.partition import OwnedBox
from convoy_workloads.runtime.journal.segment import Segment
from convoy_workloads.runtime.tiers.shard import Box

ENDS = "ends"
"""Key in a segment's facts: the fingerprints of some parameters when it was sealed."""
CHECKED_FRACTION = 4
"""Each segment checks one part in this many of the bytes of a rank's parameters,"""
MIN_CHECKED_BYTES = 4 << 20
"""but at least this many bytes."""
MAX_CHECKED = 512
"""Most parameters that one segment checks."""

_LANE = 1024


def fingerprint_of(tensor: torch.Tensor) -> str:
    """Return 32 characters that are equal for equal bits."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.storage_offset() % 8:
        flat = flat.clone()
    whole = flat.numel() // (8 * _LANE) * (8 * _LANE)
    total = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
    if whole:
        rows = flat[:whole].view(torch.int64).view(-1, _LANE)
        factors = _factors(tensor.device)
        # CUDA has no matrix product of integers.
        sums = rows @ factors if tensor.device.type == "cpu" else (rows * factors).sum(1)
        total.update(sums.cpu().numpy().tobytes())
    total.update(flat[whole:].cpu().numpy().tobytes())
    return total.hexdigest()


@lru_cache(maxsize=8)
def _factors(device: torch.device) -> torch.Tensor:
    # Torch's generator is not used, because another version may draw other numbers.
    draw = random.Random(20160307)  # noqa: S311 - no secret
    numbers = [(draw.getrandbits(64) | 1) - (1 << 63) for _ in range(_LANE)]
    return torch.tensor([one | 1 for one in numbers], dtype=torch.int64, device=device)


def part_of(parameter: torch.Tensor, box: Box) -> torch.Tensor:
    """Return a box of a parameter, as a view."""
    part = parameter.detach()
    for dimension, (start, size) in enumerate(zip(*box)):  # noqa: B905 - `strict` came with Python 3.10
        part = part.narrow(dimension, start, size)
    return part


class EndFingerprints:
    """Fingerprints of some of a rank's parameters at the end of each segment. Each segment covers the next
    ones in turn.
    """

    def __init__(self, owned: Iterable[OwnedBox]) -> None:
        self._owned = [one for one in owned if part_of(one.parameter, one.box).numel()]
        self._turn = 0

    def facts(self) -> list[Any]:
        """Return the name, box and fingerprint of each parameter covered, in the form that a segment
        stores.
        """
        parts = [part_of(one.parameter, one.box) for one in self._owned]
        sizes = [one.numel() * one.element_size() for one in parts]
        left = max(MIN_CHECKED_BYTES, sum(sizes) // CHECKED_FRACTION)
        found: list[Any] = []
        while len(found) < min(MAX_CHECKED, len(parts)) and left > 0:
            at = self._turn % len(parts)
            self._turn += 1
            left -= sizes[at]
            name, box = self._owned[at].name, self._owned[at].box
            found.append([name, list(box[0]), list(box[1]), fingerprint_of(parts[at])])
        return found


class ReplayCheck:
    """Compares a replay with the fingerprints in the segments. `at` must be called after each step."""

    def __init__(self, segments: Iterable[Segment], parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = parameters
        self._ends: dict[int, list[Any]] = {}
        for one in segments:
            end = one.head.first + len(one.steps)
            self._ends.setdefault(end, []).extend(one.facts.get(ENDS, []))
        self.wrong = ""
        """The first parameter that differs; empty while there is none."""

    def check_step(self, step: int, _: int) -> None:
        """Compare the parameters after this many steps."""
        for name, offsets, sizes, wanted in self._ends.get(step, []):
            if self.wrong:
                return
            if fingerprint_of(part_of(self._parameters[name], (tuple(offsets), tuple(sizes)))) != wanted:
                self.wrong = name
