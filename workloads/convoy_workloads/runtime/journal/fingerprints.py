"""Fingerprints of tensors, at the speed of memory: whether something has changed what it should not have.

Each row of 1,024 words of 64 bits is multiplied by fixed odd numbers and summed, modulo 2**64, where the
tensor lies; what the rows give is hashed. One word that changes always shows; of several, 2**-64 of the ways
in which they can change in one row do not. This is against accidents: whoever can choose the bits can choose
the print.
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
"""Among a segment's facts: prints of some parameters as they were when it was sealed."""
CHECKED_FRACTION = 4
"""Of the bytes of a rank's parameters, one in so many is looked at in each segment,"""
MIN_CHECKED_BYTES = 4 << 20
"""if that is not less than this."""
MAX_CHECKED = 512
"""Of one segment."""

_LANE = 1024


def fingerprint_of(tensor: torch.Tensor) -> str:
    """32 characters that are equal for equal bits."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.storage_offset() % 8:
        flat = flat.clone()
    whole = flat.numel() // (8 * _LANE) * (8 * _LANE)
    total = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
    if whole:
        rows = flat[:whole].view(torch.int64).view(-1, _LANE)
        factors = _factors(tensor.device)
        # CUDA multiplies no matrices of integers.
        sums = rows @ factors if tensor.device.type == "cpu" else (rows * factors).sum(1)
        total.update(sums.cpu().numpy().tobytes())
    total.update(flat[whole:].cpu().numpy().tobytes())
    return total.hexdigest()


@lru_cache(maxsize=8)
def _factors(device: torch.device) -> torch.Tensor:
    # Not torch's generator: another version may draw otherwise.
    draw = random.Random(20160307)  # noqa: S311 - no secret
    numbers = [(draw.getrandbits(64) | 1) - (1 << 63) for _ in range(_LANE)]
    return torch.tensor([one | 1 for one in numbers], dtype=torch.int64, device=device)


def part_of(parameter: torch.Tensor, box: Box) -> torch.Tensor:
    """A box of a parameter; a view."""
    part = parameter.detach()
    for dimension, (start, size) in enumerate(zip(*box)):  # noqa: B905 - `strict` came with Python 3.10
        part = part.narrow(dimension, start, size)
    return part


class EndFingerprints:
    """Of one rank: some of its parameters at the end of each segment, another part of them every time."""

    def __init__(self, owned: Iterable[OwnedBox]) -> None:
        self._owned = [one for one in owned if part_of(one.parameter, one.box).numel()]
        self._turn = 0

    def facts(self) -> list[Any]:
        """As they go into a segment: name, box and print of each."""
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
    """Whether a replay makes what the segments say was there. `at` is called after each of its steps."""

    def __init__(self, segments: Iterable[Segment], parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = parameters
        self._ends: dict[int, list[Any]] = {}
        for one in segments:
            end = one.head.first + len(one.steps)
            self._ends.setdefault(end, []).extend(one.facts.get(ENDS, []))
        self.wrong = ""
        """The first parameter that came out otherwise; empty while none has."""

    def at(self, step: int, _: int) -> None:
        """After so many steps."""
        for name, offsets, sizes, wanted in self._ends.get(step, []):
            if self.wrong:
                return
            if fingerprint_of(part_of(self._parameters[name], (tuple(offsets), tuple(sizes)))) != wanted:
                self.wrong = name
