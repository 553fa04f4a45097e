"""The division of gradients that are the same on all ranks: each rank journals a part of nearly the same
size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from convoy_workloads.runtime.tiers.shard import Box


@dataclass(frozen=True)
class OwnedBox:
    """A box of a parameter, whose gradients this rank journals."""

    name: str
    parameter: torch.Tensor
    box: Box


def whole(name: str, parameter: torch.Tensor) -> OwnedBox:
    """Return a box that holds the whole parameter."""
    return OwnedBox(name, parameter, ((0,) * parameter.dim(), tuple(parameter.shape)))


def partition(parameters: Mapping[str, torch.Tensor], rank: int, world: int) -> list[OwnedBox]:
    """Return the boxes that rank `rank` journals. The boxes of all ranks together cover every parameter.

    All ranks must pass the same names and shapes. The largest box is assigned first, to the rank with the
    fewest bytes. Only a parameter larger than a rank's equal share of all bytes is cut, along its first
    dimension. The reason is that a rank can check only parameters that it journals as a whole (guard.py).
    """
    fair = sum(_bytes(one) for one in parameters.values()) / world
    boxes: list[OwnedBox] = []
    for name, one in parameters.items():
        cuts = min(world, one.shape[0], int(_bytes(one) / fair) + 1) if one.dim() and fair else 1
        boxes += _cut(name, one, cuts) if cuts > 1 and _bytes(one) > fair else [whole(name, one)]
    boxes.sort(key=lambda owned: (-_size(owned), owned.name, owned.box))
    loads = [0] * world
    mine = []
    for owned in boxes:
        least = loads.index(min(loads))
        loads[least] += _size(owned)
        if least == rank:
            mine.append(owned)
    return mine


def _cut(name: str, parameter: torch.Tensor, cuts: int) -> list[OwnedBox]:
    found = []
    behind = tuple(parameter.shape[1:])
    for number in range(cuts):
        start, end = (parameter.shape[0] * edge // cuts for edge in (number, number + 1))
        found.append(OwnedBox(name, parameter, ((start, *(0,) * len(behind)), (end - start, *behind))))
    return found


def _size(owned: OwnedBox) -> int:
    size = owned.parameter.element_size()
    for one in owned.box[1]:
        size *= one
    return size


def _bytes(parameter: torch.Tensor) -> int:
    return parameter.numel() * parameter.element_size()
