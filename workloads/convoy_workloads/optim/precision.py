"""The nine places where CA-SGD may compute or store in a lower precision.

The publication analyses nine independent choices. Its summary names storage, margins, the inputs and the sums
of the Gram matrix, communication, recurrence and weights; the names of the other two are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from convoy_workloads.optim.places import PLACES

DTYPES: Mapping[str, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}
CHUNK = 32
"""Number of products that are added before the sum is rounded, if sums are in a low precision."""


@dataclass(frozen=True)
class Precision:
    """The type of numbers at each of the nine places."""

    data: torch.dtype = torch.float32
    """The stored features."""
    gram_input: torch.dtype = torch.float32
    """The rows from which the Gram matrix is computed."""
    gram_accumulation: torch.dtype = torch.float32
    """The sums of the Gram matrix."""
    margin: torch.dtype = torch.float32
    """This rank's part of the margins, as stored before it is sent."""
    communication: torch.dtype = torch.float32
    """The message of the all-reduce."""
    recurrence: torch.dtype = torch.float32
    """The correction of the margins by earlier iterations of the same block."""
    residual: torch.dtype = torch.float32
    """The derivatives of the loss."""
    update: torch.dtype = torch.float32
    """The product of features and derivatives that changes the weights."""
    weight: torch.dtype = torch.float32
    """The stored weights."""


FP32 = Precision()
FP64 = Precision(**dict.fromkeys(PLACES, torch.float64))
MIXED = replace(FP32, data=torch.bfloat16, gram_input=torch.bfloat16, margin=torch.bfloat16)
"""The publication's recipe: store features and margins low, all else high."""
PRESETS: Mapping[str, Precision] = {"fp32": FP32, "fp64": FP64, "mixed": MIXED}


def with_choices(preset: str, choices: Mapping[str, str]) -> Precision:
    """Return a preset with other types at some places. Raises ValueError for an unknown place or type."""
    for place, name in choices.items():
        if place not in PLACES:
            raise ValueError(f"{place!r} is not one of {', '.join(PLACES)}")
        if name not in DTYPES:
            raise ValueError(f"{place}: {name!r} is not one of {', '.join(DTYPES)}")
    return replace(PRESETS[preset], **{place: DTYPES[name] for place, name in choices.items()})


def product_into(out: Tensor, left: Tensor, right: Tensor, sums: torch.dtype) -> None:
    """Write `left @ right` into `out`. The products are exact in fp32; `sums` is the type of their sums.

    Sums in bf16 are rounded after every CHUNK products, as matrix units do that keep a low accumulator.
    """
    if sums != torch.bfloat16:
        if out.dtype == sums == left.dtype:
            torch.mm(left, right, out=out)
        elif left.is_cuda and left.dtype == torch.bfloat16 and sums == torch.float32 == out.dtype:
            torch.mm(left, right, out_dtype=sums, out=out)  # CPUs lack this kernel.
        else:
            out.copy_(left.to(sums) @ right.to(sums))
        return
    total = torch.zeros(out.shape, dtype=sums, device=out.device)
    for start in range(0, left.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        total += (left[:, part].float() @ right[part].float()).to(sums)
    out.copy_(total)
