"""A linear layer with packed weights, and the counters of its kernel."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from convoy_workloads.kernels import w4a16, w8a16
from convoy_workloads.kernels.dispatch import AUTO, TWIN, Selection
from convoy_workloads.kernels.packing import PackedWeights
from convoy_workloads.kernels.weight_only import Linear, Product

LINEAR = {"w4a16": w4a16.linear, "w8a16": w8a16.linear}
"""Functions that make a kernel's layer, by scheme."""
KERNELS = {"w4a16": w4a16.KERNEL, "w8a16": w8a16.KERNEL}


@dataclass
class Counters:
    """The work of a model's kernels."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by shape of the weights, such as 4096x4096 for outputs x inputs."""
    bytes: int = 0
    """Bytes of packed weights that products have read. A product with many rows reads them once."""


@dataclass(frozen=True)
class Layers:
    """The settings of all packed layers of a model."""

    dtype: torch.dtype
    """Type of the results."""
    instruction_set: str = AUTO
    threads: int = 1
    counters: Counters = field(default_factory=Counters)

    def layer(self, packed: PackedWeights) -> PackedLinear:
        """Return a layer without a bias."""
        made = LINEAR[packed.scheme](packed, instruction_set=self.instruction_set, threads=self.threads)
        return PackedLinear(made, self)


class PackedLinear(nn.Module):
    """A linear layer with packed weights. Each row of its result has the same bits, whatever the other rows
    are. It computes no gradients.
    """

    def __init__(self, linear: Linear, layers: Layers) -> None:
        super().__init__()
        self._linear = linear
        self._layers = layers
        packed = linear.packed
        self._shape = f"{packed.outputs}x{packed.inputs}"
        layers.counters.seconds.setdefault(self._shape, 0.0)
        self.bias: nn.Parameter | None
        self.register_parameter("bias", None)

    @property
    def selection(self) -> Selection[Product]:
        """Return the chosen kernel."""
        return self._linear.selection

    @property
    def packed_bytes(self) -> int:
        """Return the size of the packed weights."""
        return int(self._linear.packed.tiles.nbytes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the product with the rows of `x`, plus the bias."""
        start = time.perf_counter()
        layers, outputs = self._layers, self._linear.packed.outputs
        exact = self.bias is not None or layers.dtype is torch.float32
        found = torch.empty((*x.shape[:-1], outputs), dtype=torch.float32 if exact else layers.dtype)
        self._linear(x if x.dtype in (torch.float32, torch.bfloat16) else x.float(), out=found)
        counters = layers.counters
        counters.seconds[self._shape] += time.perf_counter() - start
        counters.bytes += self.packed_bytes
        if self.bias is not None:
            found += self.bias
        return found.to(layers.dtype)


def fell_back(selection: Selection[Product], wanted: str) -> bool:
    """Return True if the numpy twin computes although a kernel was wanted."""
    return selection.instruction_set == TWIN and wanted != TWIN
