"""Random vectors around random centres, to try the engine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from convoy_workloads.engines.aperon.ids import Id
from convoy_workloads.engines.aperon.operations import Upsert
from convoy_workloads.engines.aperon_index.params import Params, Synthetic
from convoy_workloads.engines.aperon_index.source import Records, batch_rows, settings_of

_CENTRES = 64
_SPREAD = 0.4
"""Standard deviation of a component around its centre, whose components have 1."""


def read(params: Params, wanted: Synthetic, generation: int) -> Records:
    """Return the records of a generation, from 1 on."""
    rows = wanted.rows + wanted.growth * (generation - 1)
    settings = settings_of(params, wanted.dimension, "synthetic")
    return Records(settings, _batches(wanted, rows, numbers=params.id_type == "uint64"))


def _batches(wanted: Synthetic, rows: int, *, numbers: bool) -> Iterator[Upsert]:
    dimension, most = wanted.dimension, batch_rows(wanted.dimension)
    centres = np.random.default_rng([wanted.seed, 0]).standard_normal((_CENTRES, dimension), np.float32)
    for number, at in enumerate(range(0, rows, most)):
        # All parts have the same number of random rows, so that more rows leave the others as they are.
        rng = np.random.default_rng([wanted.seed, 1 + number])
        vectors = centres[rng.integers(0, _CENTRES, most)]
        vectors += _SPREAD * rng.standard_normal((most, dimension), np.float32)
        numbered = range(at, min(at + most, rows))
        ids: list[Id] = list(numbered) if numbers else [str(one) for one in numbered]
        yield Upsert(ids, vectors[: len(ids)], [{} for _ in ids])
