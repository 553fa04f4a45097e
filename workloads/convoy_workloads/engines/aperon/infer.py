"""Searches as inferences of the Open Inference Protocol: the input `queries`, the outputs `ids` and
`distances`. The binary tensor extension makes their bodies small.
"""

from __future__ import annotations

import numpy as np

from convoy_workloads.engines.aperon import bodies, spaces
from convoy_workloads.engines.aperon.commands import Answer, Hits, Query, Search
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.serving.protocol import Inference, Prediction, TensorSpec

INPUT = "queries"
_ID_TYPES = {"string": "BYTES", "uint64": "UINT64"}


def inputs(settings: IndexSettings) -> tuple[TensorSpec, ...]:
    """Return the input tensors of an index."""
    return (TensorSpec(INPUT, "FP32", (-1, settings.dimension)),)


def outputs(settings: IndexSettings) -> tuple[TensorSpec, ...]:
    """Return the output tensors of an index."""
    ids = TensorSpec("ids", _ID_TYPES[settings.id_type], (-1, -1))
    return (ids, TensorSpec("distances", "FP32", (-1, -1)))


def search_of(inference: Inference, settings: IndexSettings, results: int) -> Search:
    """Return the search of an inference. Raises InvalidInput, with the path of the invalid field."""
    queries = spaces.checked_vectors(INPUT, inference.inputs[INPUT], settings.dimension, settings.metric)
    bodies.check_results(INPUT, len(queries), results)
    return Search(inference.id, queries, Query(results, metadata=False))


def prediction(answer: Answer, wanted: tuple[str, ...], settings: IndexSettings) -> Prediction:
    """Return the result of an inference."""
    if answer.error is not None:
        return Prediction(answer.sequence, error=answer.error)
    hits = answer.value
    assert isinstance(hits, Hits)  # noqa: S101 - the answer of a search
    # Without a filter, every query has as many results.
    width = min((len(one) for one in hits.ids), default=0)
    ids = np.empty((len(hits.ids), width), object if settings.id_type == "string" else np.uint64)
    for at, row in enumerate(hits.ids):
        ids[at] = row[:width]
    distances = np.stack([one[:width] for one in hits.distances])
    tables = {"ids": ids, "distances": distances}
    return Prediction(answer.sequence, {name: tables[name] for name in wanted})
