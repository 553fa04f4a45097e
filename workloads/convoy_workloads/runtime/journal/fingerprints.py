"""Fingerprints of tensors, which detect unexpected changes. A fingerprint is computed about as fast as
memory is read.

The bits of a tensor are read as rows of 1,024 words of 64 bits. Each row is multiplied by fixed odd numbers
and summed modulo 2**64, on the tensor's device. The sums are hashed. A change of one word is always
detected. If several words of one row change, the change is missed with a probability of 2**-64.
Fingerprints protect against accidents, not against a person who can choose the bits.
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
"""Key, in the metadata of a segment, of the fingerprints of some parameters after the segment's last step."""
CHECKED_FRACTION = 4
"""Each segment has fingerprints of about 1/`CHECKED_FRACTION` of the bytes of a rank's parameters."""
MIN_CHECKED_BYTES = 4 << 20
"""Minimum bytes of parameters that get fingerprints in one segment, if the rank has that many."""
MAX_CHECKED = 512
"""Maximum number of parameters that get fingerprints in one segment."""

_LANE = 1024


def fingerprint_of(tensor: torch.Tensor) -> str:
    """Return a fingerprint of 32 characters. Tensors with equal bits, type and shape have equal
    fingerprints.
    """
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.storage_offset() % 8:
        flat = flat.clone()
    whole = flat.numel() // (8 * _LANE) * (8 * _LANE)
    total = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
    if whole:
        rows = flat[:whole].view(torch.int64).view(-1, _LANE)
        factors = _factors(tensor.device)
        # CUDA has no matrix product of integers, so multiply and sum there.
        sums = rows @ factors if tensor.device.type == "cpu" else (rows * factors).sum(1)
        total.update(sums.cpu().numpy().tobytes())
    total.update(flat[whole:].cpu().numpy().tobytes())
    return total.hexdigest()


@lru_cache(maxsize=8)
def _factors(device: torch.device) -> torch.Tensor:
    # Do not use torch's generator, because another version of torch may draw other numbers.
    draw = random.Random(20160307)  # noqa: S311 - no secret
    numbers = [(draw.getrandbits(64) | 1) - (1 << 63) for _ in range(_LANE)]
    return torch.tensor([one | 1 for one in numbers], dtype=torch.int64, device=device)


def part_of(parameter: torch.Tensor, box: Box) -> torch.Tensor:
    """Return the part of a parameter that lies in `box`, as a view."""
    part = parameter.detach()
    for dimension, (start, size) in enumerate(zip(*box)):  # noqa: B905 - `strict` came with Python 3.10
        part = part.narrow(dimension, start, size)
    return part


class EndFingerprints:
    """Computes fingerprints of some of a rank's parameters at the end of each segment.

    Successive segments choose different parameters, until all parameters have been chosen. Then the choice
    starts again.
    """

    def __init__(self, owned: Iterable[OwnedBox]) -> None:
        self._owned = [one for one in owned if part_of(one.parameter, one.box).numel()]
        self._turn = 0

    def facts(self) -> list[Any]:
        """Choose parameters. Return the name, box and fingerprint of each, as lists that a segment stores."""
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
    """Compares the parameters during a replay with the fingerprints in the segments."""

    def __init__(self, segments: Iterable[Segment], parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = parameters
        self._ends: dict[int, list[Any]] = {}
        for one in segments:
            end = one.head.first + len(one.steps)
            self._ends.setdefault(end, []).extend(one.facts.get(ENDS, []))
        self.wrong = ""
        """Name of the first parameter whose replayed value does not match its fingerprint; empty if all
        match.
        """

    def check_step(self, step: int, _: int) -> None:
        """Compare the parameters with the fingerprints that a segment stored after step `step`. Call this
        after each step of the replay.
        """
        for name, offsets, sizes, wanted in self._ends.get(step, []):
            if self.wrong:
                return
            if fingerprint_of(part_of(self._parameters[name], (tuple(offsets), tuple(sizes)))) != wanted:
                self.wrong = name
