"""The commands that run, and the part of them that an iteration does.

Searches that differ only in their vectors are done together. An iteration does so many queries that other
commands and deadlines get their turn soon: a search with more of them is done in parts, and then moves behind
the others. Each query sees the records of one time; the parts of a search may see different times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from convoy_workloads.engines.aperon.bodies import MOST_NUMBERS
from convoy_workloads.engines.aperon.commands import (
    Answer,
    Command,
    Count,
    Fetch,
    Hits,
    Query,
    Search,
    Stored,
)
from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.own_metrics import OwnMetrics
from convoy_workloads.kernels.hntl_arrays import Floats
from convoy_workloads.serving.errors import RequestError

STEP_BYTES = 1 << 32
"""Bytes of the index that the searches of an iteration may read, about. One query may need more."""
FEWEST_COMMANDS = 64
"""Commands that may run, if fewer queries are searched together. They take turns."""
_NO_VECTOR = np.empty(0, np.float32)


@dataclass(slots=True)
class _Run:
    """A search that runs."""

    search: Search
    done: int = 0
    """Number of queries that have results."""
    parts: list[Hits] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """Queries of a search that an iteration does."""

    run: _Run
    queries: Floats


class Batch:
    """The commands that run."""

    def __init__(self, most_rows: int) -> None:
        """`most_rows`: queries of an iteration."""
        self._most = most_rows
        self._reads: dict[int, Fetch | Count] = {}
        self._searches: dict[int, _Run] = {}
        """Those whose turn is next come first."""

    def __len__(self) -> int:
        return len(self._reads) + len(self._searches)

    def admit(self, command: Command) -> bool:
        """Add a command. Return False if the batch is full."""
        if len(self) >= max(self._most, FEWEST_COMMANDS):
            return False
        if isinstance(command, Search):
            self._searches[command.id] = _Run(command)
        else:
            self._reads[command.id] = command
        return True

    def cancel(self, id_: int) -> None:
        """Remove a command."""
        self._reads.pop(id_, None)
        self._searches.pop(id_, None)

    def run(self, ensemble: Ensemble, metrics: OwnMetrics) -> list[Answer]:
        """Do an iteration. Return the answers of the commands that have ended."""
        found = [_read(ensemble, one) for one in self._reads.values()]
        self._reads.clear()
        groups: dict[str, list[_Part]] = {}
        for part in self._parts(ensemble):
            groups.setdefault(_key(part.run.search.query), []).append(part)
        for group in groups.values():
            found += _search(ensemble, group, metrics)
        for answer in found:
            self._searches.pop(answer.sequence, None)
        return found

    def _parts(self, ensemble: Ensemble) -> list[_Part]:
        """Return the queries of an iteration, at least one. Their searches move behind the others."""
        found: list[_Part] = []
        rows, size = self._most, STEP_BYTES
        for id_, run in list(self._searches.items()):
            each = ensemble.query_bytes(run.search.query)
            count = min(run.search.rows - run.done, rows, max(size // each, 0 if found else 1))
            if count < 1:
                break
            found.append(_Part(run, run.search.queries[run.done : run.done + count]))
            rows, size = rows - count, size - count * each
            self._searches[id_] = self._searches.pop(id_)
        return found


def _key(query: Query) -> str:
    """Return a text that is equal for searches that can be done together."""
    return json.dumps([getattr(query, name) for name in query.__slots__], sort_keys=True)


def _read(ensemble: Ensemble, one: Fetch | Count) -> Answer:
    try:
        if isinstance(one, Fetch):
            return Answer(one.id, list(_stored(ensemble, one)))
        return Answer(one.id, ensemble.count(one.where))
    except InvalidInput as error:
        return Answer(one.id, error=refusal(error))


def _stored(ensemble: Ensemble, one: Fetch) -> Iterable[Stored | None]:
    """Yield records, read in parts so that vectors that nobody wants need little memory."""
    most = max(1, MOST_NUMBERS // ensemble.dimension)
    for at in range(0, len(one.ids), most):
        for stored in ensemble.fetch(one.ids[at : at + most]):
            yield stored if stored is None or one.vectors else replace(stored, vector=_NO_VECTOR)


def _search(ensemble: Ensemble, group: Sequence[_Part], metrics: OwnMetrics) -> list[Answer]:
    """Search for all queries of a group at once. Return the answers of the searches that have ended."""
    queries = group[0].queries if len(group) == 1 else np.concatenate([one.queries for one in group])
    started_at = time.perf_counter()
    try:
        hits = ensemble.search(queries, group[0].run.search.query)
    except InvalidInput as error:
        return [Answer(one.run.search.id, error=refusal(error)) for one in group]
    except MemoryError as error:  # Other searches may need less.
        why = RequestError(503, f"the search needs too much memory: {error}", code="no_memory")
        return [Answer(one.run.search.id, error=why) for one in group]
    metrics.searched(len(queries), hits.scanned, time.perf_counter() - started_at)
    found, at = [], 0
    for one in group:
        run, last = one.run, at + len(one.queries)
        run.parts.append(hits if len(group) == 1 else _part(hits, at, last, len(queries)))
        run.done += len(one.queries)
        if run.done == run.search.rows:
            found.append(Answer(run.search.id, _joined(run.parts)))
        at = last
    return found


def _part(hits: Hits, first: int, last: int, rows: int) -> Hits:
    """Return the results of some of the queries. The count of compared records is their share."""
    return Hits(
        hits.ids[first:last],
        hits.distances[first:last],
        hits.scanned * (last - first) // rows,
        hits.sequence,
        None if hits.records is None else hits.records[first:last],
        None if hits.vectors is None else hits.vectors[first:last],
    )


def _joined(parts: Sequence[Hits]) -> Hits:
    """Return the results of all queries of a search."""
    if len(parts) == 1:
        return parts[0]
    with_records, with_vectors = parts[0].records is not None, parts[0].vectors is not None
    return Hits(
        [row for one in parts for row in one.ids],
        [row for one in parts for row in one.distances],
        sum(one.scanned for one in parts),
        min(one.sequence for one in parts),
        [row for one in parts for row in one.records or ()] if with_records else None,
        [row for one in parts for row in one.vectors or ()] if with_vectors else None,
    )


def refusal(error: InvalidInput) -> RequestError:
    """Return the error of a request for an error of the index."""
    return RequestError(400, str(error), error.field, "invalid_value")
