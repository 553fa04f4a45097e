"""The checks that all ranks create a loader with the same dataset and options, and that no rank has failed.

Each rank computes its share from the whole dataset. Ranks that pass shards of their own, or other options,
would use some samples twice and others never, without an error.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

from torch.utils.data import Subset

from convoy_workloads.runtime.errors import DataError, PeerLost

MAY_DIFFER = frozenset({"workers", "timeout_seconds"})
"""Options that each rank may choose."""


class Gathers(Protocol):
    """The exchange of a loader."""

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the numbers of all ranks."""
        ...


def selection_of(dataset: Any) -> Any:
    """Return the numbers of the samples that a `Subset` selects, or the fingerprint of a dataset of Hugging
    Face; None for other datasets. Shards differ in it, also if they have equally many samples.
    """
    if isinstance(dataset, Subset):
        return list(dataset.indices), selection_of(dataset.dataset)
    return getattr(dataset, "_fingerprint", None)


def check_agreement(exchange: Gathers, options: Any, further: Mapping[str, Any]) -> None:
    """Raise DataError on every rank if the ranks differ in `options`, a dataclass, or in `further` values."""
    own = {one.name: getattr(options, one.name) for one in fields(options) if one.name not in MAY_DIFFER}
    own |= further
    rows = exchange.gather([zlib.crc32(repr(value).encode()) for value in own.values()])
    for place, (name, value) in enumerate(own.items()):
        for rank, row in enumerate(rows):
            if row[place] != rows[0][place]:
                shown = repr(value)
                shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
                raise DataError(
                    f"{name}: rank {rank} has another value than rank 0; this rank has {shown}. All ranks "
                    "pass the whole dataset and equal options, and the loader gives each its share"
                )


def raise_faults(failed: Sequence[int], fault: Exception | None) -> None:
    """Raise an error on all ranks if one has failed: `fault` on its rank, PeerLost on the others. `failed`:
    for each rank, 1 if it has.
    """
    if fault is not None:
        raise fault
    if ranks := [str(rank) for rank, one in enumerate(failed) if one]:
        raise PeerLost(f"the loader of rank {', '.join(ranks)} failed")


def check_faults(exchange: Gathers, fault: Exception | None) -> None:
    """Raise an error on all ranks if one of them passes a fault. All ranks call it at the same step."""
    raise_faults([row[0] for row in exchange.gather([int(fault is not None)])], fault)
