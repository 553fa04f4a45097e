"""The default forming of a batch: tensors are padded to the longest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

IGNORED = -100
"""The target that PyTorch's cross_entropy ignores."""
PAD = {"labels": IGNORED}
"""Value of the padding, by name of the part."""


def pad_batch(samples: Sequence[Any]) -> Any:
    """Return the batch of samples: each tensor is padded with 0 to the longest in its first dimension, and
    stacked. Parts named `labels` are padded with -100.

    Samples are tensors, or mappings or tuples of tensors and numbers. Raises TypeError for other samples.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return {name: _stack([one[name] for one in samples], PAD.get(name, 0), name) for name in first}
    if isinstance(first, tuple):
        return tuple(_stack(parts, 0) for parts in zip(*samples, strict=True))
    return _stack(samples, 0)


def _stack(parts: Sequence[Any], pad: int, name: str = "") -> Tensor:
    if isinstance(parts[0], int | float):
        return torch.tensor(parts)
    try:
        tensors = [part if isinstance(part, Tensor) else torch.as_tensor(part) for part in parts]
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"a sample's part {name or type(parts[0]).__name__!r} is no tensor and no list of numbers: leave "
            f"it out, or give `collate` ({error})"
        ) from error
    if tensors[0].dim() == 0:
        return torch.stack(tensors)
    longest = max(len(one) for one in tensors)
    batch = tensors[0].new_full((len(tensors), longest, *tensors[0].shape[1:]), pad)
    for row, one in zip(batch, tensors, strict=True):
        row[: len(one)] = one
    return batch
