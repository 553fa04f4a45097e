"""The commands of an iteration. Searches that differ only in their vectors are done together."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np

from convoy_workloads.engines.aperon.commands import Answer, Command, Count, Fetch, Hits, Search
from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.own_metrics import OwnMetrics
from convoy_workloads.serving.errors import RequestError


class Batch:
    """The commands that run together."""

    def __init__(self, most_rows: int) -> None:
        """`most_rows`: queries and reads of a batch. A command with more runs alone."""
        self._most = most_rows
        self._commands: dict[int, Command] = {}

    def __len__(self) -> int:
        return len(self._commands)

    def admit(self, command: Command) -> bool:
        """Add a command. Return False if the batch is full."""
        rows = sum(one.rows for one in self._commands.values())
        if self._commands and rows + command.rows > self._most:
            return False
        self._commands[command.id] = command
        return True

    def cancel(self, id_: int) -> None:
        """Remove a command."""
        self._commands.pop(id_, None)

    def run(self, ensemble: Ensemble, metrics: OwnMetrics) -> list[Answer]:
        """Run all commands."""
        found: list[Answer] = []
        groups: dict[str, list[Search]] = {}
        for one in self._commands.values():
            if isinstance(one, Search):
                groups.setdefault(_key(one), []).append(one)
            else:
                found.append(_read(ensemble, one))
        for group in groups.values():
            found += _search(ensemble, group, metrics)
        return found


def _key(one: Search) -> str:
    """Return a text that is equal for searches that can be done together."""
    query = one.query
    return json.dumps([getattr(query, name) for name in query.__slots__], sort_keys=True)


def _read(ensemble: Ensemble, one: Fetch | Count) -> Answer:
    try:
        if isinstance(one, Fetch):
            return Answer(one.id, ensemble.fetch(one.ids))
        return Answer(one.id, ensemble.count(one.where))
    except InvalidInput as error:
        return Answer(one.id, error=refusal(error))


def _search(ensemble: Ensemble, group: Sequence[Search], metrics: OwnMetrics) -> list[Answer]:
    """Search for all queries of a group at once."""
    queries = group[0].queries if len(group) == 1 else np.concatenate([one.queries for one in group])
    started_at = time.perf_counter()
    try:
        hits = ensemble.search(queries, group[0].query)
    except InvalidInput as error:
        return [Answer(one.id, error=refusal(error)) for one in group]
    except MemoryError as error:  # Other searches may need less.
        why = RequestError(503, f"the search needs too much memory: {error}", code="no_memory")
        return [Answer(one.id, error=why) for one in group]
    metrics.searched(len(queries), hits.scanned, time.perf_counter() - started_at)
    found, at = [], 0
    for one in group:
        found.append(
            Answer(one.id, hits if len(group) == 1 else _part(hits, at, at + one.rows, len(queries)))
        )
        at += one.rows
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


def refusal(error: InvalidInput) -> RequestError:
    """Return the error of a request for an error of the index."""
    return RequestError(400, str(error), error.field, "invalid_value")
