"""Kernel w8a16: activations of 16 bits times weights of 8 bits."""

from __future__ import annotations

from convoy_workloads.kernels import dispatch
from convoy_workloads.kernels.dispatch import Kernel
from convoy_workloads.kernels.packing import PackedWeights
from convoy_workloads.kernels.weight_only import INSTRUCTION_SETS, Linear, Product, bind
from convoy_workloads.kernels.weight_only_twin import compare, twin

KERNEL: Kernel[Product] = Kernel("w8a16", INSTRUCTION_SETS, bind("w8a16"), compare("w8a16"), twin)


def linear(packed: PackedWeights, *, instruction_set: str = dispatch.AUTO, threads: int = 0) -> Linear:
    """Return the linear layer of weights that were packed with scheme w8a16."""
    return Linear(KERNEL, packed, instruction_set=instruction_set, threads=threads)
