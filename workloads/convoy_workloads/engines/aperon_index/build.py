"""Builds an index in a folder, and chooses the settings of its searches."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from convoy_crds.shown import shown
from convoy_workloads.engines.aperon import operations
from convoy_workloads.engines.aperon.errors import InvalidInput, TargetNotReached
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.operations import Upsert
from convoy_workloads.engines.aperon.settings import Options, SearchSettings
from convoy_workloads.engines.aperon.state import State
from convoy_workloads.engines.aperon.storage import Storage
from convoy_workloads.engines.aperon.tuning import FEWEST_QUERIES, tune
from convoy_workloads.engines.aperon_index import sources
from convoy_workloads.engines.aperon_index.params import Params
from convoy_workloads.engines.aperon_index.source import Records, SourceAway, SourceError
from convoy_workloads.kernels.hntl_arrays import Floats
from convoy_workloads.runtime.log import log_line

Progress = Callable[[int], None]
"""A function that gets the number of records so far."""
RESULTS = 10
"""Results of the searches for which the settings are tuned."""
_QUERIES = 200
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Built:
    """An index that is complete."""

    folder: Path
    records: int
    seconds: float
    recall: float | None
    """Recall on sampled records; None if it was not measured."""


def build_with_retries(params: Params, generation: int, folder: Path, progress: Progress) -> Built:
    """Build an index, from the beginning after each failure of the source. Raises SourceError, and the last
    SourceAway.
    """
    attempts = params.service.attempts if params.service is not None else 1
    for attempt in range(1, attempts):
        try:
            return build(params, generation, folder, progress)
        except SourceAway as error:
            pause = random.uniform(0.5, 1) * min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1))  # noqa: S311
            log_line(f"attempt {attempt} of {attempts} has failed; the next is in {pause:.0f} s: {error}")
            time.sleep(pause)
    return build(params, generation, folder, progress)


def build(params: Params, generation: int, folder: Path, progress: Progress) -> Built:
    """Build an index in a folder, whose content is replaced. Raises SourceError for wrong records or
    settings, and SourceAway if the source cannot be read now.
    """
    start = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    options = Options("never", threads=params.threads, kernel=params.kernel)
    search = SearchSettings(params.index.nprobe, params.index.candidates)
    with sources.opened(params, generation) as records:
        storage = Storage(durable=False)
        with VectorIndex.create(
            folder, records.settings, search=search, options=options, storage=storage
        ) as index:
            _fill(index, records, params.segment_rows, progress)
            recall = _tuned(index, params.index.target_recall)
            return Built(folder, len(index), time.monotonic() - start, recall)


def _fill(index: VectorIndex, records: Records, segment_rows: int, progress: Progress) -> None:
    count = in_memory = 0
    for batch in records.batches:
        before = index.snapshot().state
        where = f"rows {count} to {count + len(batch.ids) - 1}"
        try:
            if records.stored:
                index.apply(index.sequence + 1, operations.encode(batch))
            else:
                index.upsert(batch.ids, batch.vectors, batch.records)
        except InvalidInput as error:
            raise SourceError(f"{where} of the source: {error}") from error
        count += len(batch.ids)
        in_memory += len(batch.ids)
        if len(index) != count:
            twice = _repeated(before, batch)
            raise SourceError(f"{where} of the source: id {shown(twice)} is in earlier rows, too")
        if in_memory >= segment_rows:
            index.flush()
            in_memory = 0
        progress(count)
    index.flush()


def _repeated(state: State, batch: Upsert) -> object:
    """Return an id of a batch that is in a state, too."""
    found = np.max([one.find_live(batch.ids) for one in state.sources], axis=0)
    return batch.ids[int(np.argmax(found >= 0))]


def _tuned(index: VectorIndex, target: float) -> float | None:
    """Choose the settings of searches on a sample of the records. Return the recall that they give.

    A record as a query finds itself, so one more result is wanted, and it is not counted. The nearest record
    by inner product may be another one; there, all results count.
    """
    if not target or len(index) < FEWEST_QUERIES:
        return None
    own = 0 if index.settings.metric == "ip" else 1
    results = RESULTS + own
    try:
        wanted = (target * RESULTS + own) / results
        recall = tune(index, wanted, sample(index, _QUERIES), results=results).recall.mean
    except TargetNotReached as error:
        log_line(f"{error}. It counts the record itself, which a search always finds")
        return None
    return min(1.0, max(0.0, (recall * results - own) / RESULTS))


def sample(index: VectorIndex, most: int) -> Floats:
    """Return the vectors of random records, the same ones each time."""
    state = index.snapshot().state
    chosen = np.random.default_rng(0).choice(state.live, min(most, state.live), replace=False)
    parts, first = [], 0
    for view in state.segments:
        rows = view.segment.rows_of(view.alive)
        own = chosen[(chosen >= first) & (chosen < first + len(rows))] - first
        parts.append(np.array(view.vectors_at(rows[own])))
        first += len(rows)
    return np.concatenate(parts)
