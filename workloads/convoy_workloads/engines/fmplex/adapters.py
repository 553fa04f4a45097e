"""Low-rank adapters (LoRA). The adapters of all tasks of a backbone are stacked, so that one batched matrix
product applies to each row the adapter of its task.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from convoy_workloads.serving.protocol import ModelError

TARGETS = ("qkv", "out")
"""The layers of a transformer block that adapters change: query, key and value, and the output of
attention.
"""
NO_ADAPTER = 0
"""Slot whose adapter is zero. Tasks without an adapter use it."""
SCALE = 0.05
"""Standard deviation of the values of an adapter from a seed."""


@dataclass(frozen=True)
class AdapterShape:
    """The shape of the adapters of a backbone."""

    layers: int
    width: int
    rank: int
    dtype: torch.dtype = torch.float32

    def outputs(self, target: str) -> int:
        """Return the number of outputs of a layer."""
        return 3 * self.width if target == "qkv" else self.width

    @property
    def bytes(self) -> int:
        """Return the size of one adapter."""
        values = sum(self.rank * (self.width + self.outputs(target)) for target in TARGETS)
        return self.dtype.itemsize * self.layers * values

    def names(self) -> dict[str, tuple[int, int]]:
        """Return the name and the shape of each tensor of an adapter with this rank. `a` comes first: the
        adapter of a layer is the product a b.
        """
        found = {}
        for layer in range(self.layers):
            for target in TARGETS:
                found[f"layers.{layer}.{target}.a"] = (self.width, self.rank)
                found[f"layers.{layer}.{target}.b"] = (self.rank, self.outputs(target))
        return found


def random_adapter(shape: AdapterShape, seed: int) -> dict[str, Tensor]:
    """Return an adapter with random values."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(size, generator=generator) * SCALE for name, size in shape.names().items()}


def checked(tensors: Mapping[str, Tensor], shape: AdapterShape, source: str) -> dict[str, Tensor]:
    """Return an adapter from a file, padded with zeros to the rank of `shape`. Raises ModelError, with the
    tensor, if it does not fit.
    """
    found = {}
    ranks: dict[str, int] = {}
    for name, (rows, columns) in shape.names().items():
        one = tensors.get(name)
        if one is None:
            raise ModelError(f"{source} lacks the tensor {name}")
        a = name.endswith(".a")
        rank = one.shape[1 if a else 0] if one.dim() == 2 else 0
        expected = (rows, rank) if a else (rank, columns)
        if not 1 <= rank <= shape.rank or tuple(one.shape) != expected:
            want = f"[{rows}, 1 to {shape.rank}]" if a else f"[1 to {shape.rank}, {columns}]"
            raise ModelError(f"{source}: tensor {name} has shape {list(one.shape)}, expected {want}")
        if not one.is_floating_point() or not torch.isfinite(one).all():
            raise ModelError(f"{source}: tensor {name} has values that are no finite numbers")
        before = ranks.setdefault(name[:-2], rank)
        if rank != before:
            raise ModelError(f"{source}: tensor {name} has rank {rank}, and {name[:-1]}a has {before}")
        whole = torch.zeros(rows, columns)
        whole[:, :rank].copy_(one) if a else whole[:rank].copy_(one)
        found[name] = whole
    return found


class AdapterStack:
    """The stacked adapters of one backbone. Each task with an adapter has a slot of its own."""

    def __init__(self, shape: AdapterShape, device: torch.device) -> None:
        self.shape = shape
        self._stacks = {
            name: torch.zeros((1, *size), dtype=shape.dtype, device=device)
            for name, size in shape.names().items()
        }

    @property
    def bytes(self) -> int:
        """Return the memory of the stack."""
        return sum(one.numel() * one.element_size() for one in self._stacks.values())

    def put(self, adapters: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Set the adapters of slots. The stack grows to the highest slot, and by at least a quarter, because
        growing copies it.
        """
        needed = max(adapters, default=NO_ADAPTER) + 1
        for name, stack in list(self._stacks.items()):
            count = stack.shape[0]
            if needed > count:
                missing = max(needed, count * 5 // 4) - count
                stack = torch.cat([stack, stack.new_zeros((missing, *stack.shape[1:]))])  # noqa: PLW2901
            for slot, adapter in adapters.items():
                stack[slot].copy_(adapter[name])
            self._stacks[name] = stack

    def clear(self, slot: int) -> None:
        """Set a slot to zero."""
        for stack in self._stacks.values():
            stack[slot].zero_()

    def apply(self, name: str, x_BTC: Tensor, slots_B: Tensor) -> Tensor:
        """Return the part that the adapters add to the output of a layer, such as `layers.0.qkv`."""
        a = self._stacks[f"{name}.a"].index_select(0, slots_B)
        b = self._stacks[f"{name}.b"].index_select(0, slots_B)
        return torch.bmm(torch.bmm(x_BTC, a), b)


class Slots:
    """The numbers of the slots of one stack. Freed slots are used first, the lowest of them first."""

    def __init__(self) -> None:
        self._used = {NO_ADAPTER}

    def allocate(self) -> int:
        """Return a free slot, which is used from now on."""
        slot = next(number for number in itertools.count() if number not in self._used)
        self._used.add(slot)
        return slot

    def free(self, slot: int) -> None:
        """Free a slot."""
        if slot != NO_ADAPTER:
            self._used.discard(slot)
