"""Group-wise codes of a weight matrix: w = scale * (code - zero), with one scale and one zero point for each
output and group of inputs. Rounding to the nearest code is here; the search for better scales is `search.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from convoy_workloads.serving.protocol import ModelError

SCHEMES = {"w4a16": 4, "w8a16": 8}
"""Bits of a code, by scheme."""
_SMALLEST = 2.0**-24
"""Smallest scale: the smallest positive number of fp16."""
_LARGEST = 65504.0
"""Largest scale: the largest number of fp16."""


class FormatError(ModelError):
    """Quantised weights cannot be read. The message names the tensor or the field, and what to do."""


@dataclass(frozen=True)
class Codes:
    """The codes of a matrix with N outputs and K inputs, in G groups of inputs."""

    codes: NDArray[np.uint8]
    """Shape [N, K]."""
    scales: NDArray[np.float16]
    """Shape [N, G]."""
    zeros: NDArray[np.uint8]
    """Shape [N, G]."""
    bits: int
    group_size: int

    def dequantised(self) -> NDArray[np.float32]:
        """Return the weights."""
        group = np.arange(self.codes.shape[1]) // self.group_size
        centred = self.codes.astype(np.float32) - self.zeros.astype(np.float32)[:, group]
        found: NDArray[np.float32] = centred * self.scales.astype(np.float32)[:, group]
        return found


@dataclass(frozen=True)
class Grid:
    """The scales and zero points of a matrix, as float32 tensors of shape [N, G, 1]."""

    scales: Tensor
    zeros: Tensor
    bits: int

    def round(self, groups: Tensor) -> Tensor:
        """Return the codes of weights [N, G, group size], as float32."""
        return torch.clamp(torch.round(groups / self.scales) + self.zeros, 0, 2**self.bits - 1)

    def dequantised(self, codes: Tensor) -> Tensor:
        """Return the weights of codes."""
        return (codes - self.zeros) * self.scales


def split(weight: Tensor, group_size: int) -> Tensor:
    """Return a matrix [N, K] as [N, G, group size]. K must be a multiple of the group size."""
    return weight.reshape(len(weight), -1, group_size)


def grid(groups: Tensor, bits: int, shrink: Tensor | float = 1.0) -> Grid:
    """Return the grid that covers the weights [N, G, group size]. `shrink` scales the covered range."""
    # The range holds 0, so that the zero point is a code.
    highest = groups.amax(-1, keepdim=True).clamp(min=0) * shrink
    lowest = groups.amin(-1, keepdim=True).clamp(max=0) * shrink
    most = 2**bits - 1
    scales = ((highest - lowest) / most).clamp(_SMALLEST, _LARGEST).half().float()
    return Grid(scales, torch.clamp(torch.round(-lowest / scales), 0, most), bits)


def rounded(weight: Tensor, bits: int, group_size: int, shrink: Tensor | float = 1.0) -> Tensor:
    """Return the weights that the codes of a matrix stand for."""
    groups = split(weight, group_size)
    found = grid(groups, bits, shrink)
    return found.dequantised(found.round(groups)).view_as(weight)


def quantise(name: str, weight: Tensor, bits: int, group_size: int, shrink: Tensor | float = 1.0) -> Codes:
    """Return the nearest codes of a matrix. Raises ModelError, with the tensor, if it cannot be quantised."""
    check(name, weight, group_size)
    groups = split(weight.float(), group_size)
    found = grid(groups, bits, shrink)
    codes = found.round(groups).view(weight.shape).to(torch.uint8).numpy()
    scales = found.scales[..., 0].half().numpy()
    return Codes(codes, scales, found.zeros[..., 0].to(torch.uint8).numpy(), bits, group_size)


def check(name: str, weight: Tensor, group_size: int) -> None:
    """Raise ModelError, with the tensor, if a matrix cannot be quantised."""
    if not torch.isfinite(weight).all():
        raise ModelError(f"tensor {name} has values that are not finite, so it cannot be quantised")
    outputs, inputs = weight.shape
    if inputs % group_size:
        fitting = [size for size in (128, 64, 32) if inputs % size == 0]
        hint = f"set group_size to {' or '.join(map(str, fitting))}" if fitting else "it cannot be quantised"
        raise ModelError(
            f"tensor {name} has {inputs} inputs, which is no multiple of group_size={group_size}: {hint}"
        )
    if outputs % 8:
        raise ModelError(f"tensor {name} has {outputs} outputs: the file formats need a multiple of 8")
