"""The commands of requests, and the work item that carries them through the front's queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_workloads.engines.aperon.columns import Record
from convoy_workloads.engines.aperon.ids import Id
from convoy_workloads.kernels.hntl_arrays import Floats
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.work_item import ERROR, INVALID, STOP, Delta, Sink, WorkItem


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """The settings of a search."""

    results: int
    where: Mapping[str, Any] | None = None
    nprobe: int | None = None
    """None for the value of the index."""
    candidates: int | None = None
    exact: bool = False
    metadata: bool = True
    """Return the metadata of results."""
    vectors: bool = False
    """Return the vectors of results."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Find the nearest records of each vector."""

    id: int
    queries: Floats
    query: Query

    @property
    def rows(self) -> int:
        """Return the number of queries."""
        return len(self.queries)


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """Return records by their ids."""

    id: int
    ids: list[Id]
    vectors: bool = False
    """Return the vectors of the records."""

    rows = 1


@dataclass(frozen=True, slots=True, eq=False)
class Count:
    """Count the records that fulfil a filter."""

    id: int
    where: Mapping[str, Any] | None

    rows = 1


Command = Search | Fetch | Count


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """The results of some queries."""

    ids: list[list[Id]]
    distances: list[Floats]
    """The distances of each query's results."""
    scanned: int
    """Records whose codes or vectors were compared."""
    sequence: int
    records: list[list[Record]] | None = None
    vectors: list[Floats] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A record as the shards return it."""

    id: Id
    vector: Floats
    """Empty if nobody asked for it."""
    record: Record


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command."""

    sequence: int
    """Id of the command."""
    value: Hits | Sequence[Stored | None] | int | None = None
    error: RequestError | None = None


class VectorWork(WorkItem):
    """A command in the front's queue. It ends with its answer."""

    __slots__ = ("command", "rows")

    def __init__(self, command: Command, deadline: float, sink: Sink) -> None:
        """`deadline`: monotonic time at which the command ends at the latest."""
        super().__init__(deadline, (0, sink))
        self.command = command
        self.rows = 0

    @property
    def payload(self) -> Command:
        """Return the command."""
        return self.command

    def accept(self, result: Answer) -> Delta:
        """End the command with its answer."""
        self.ended = True
        if result.error is None:
            self.rows = self.command.rows
            return Delta(finish=STOP, outputs={"answer": result.value})
        reason = ERROR if result.error.status >= 500 else INVALID
        return Delta(finish=reason, message=result.error.message, error=result.error)

    def measure(self, metrics: Metrics, now: float) -> None:
        """Record the computed rows."""
        self.first_at = self.last_at = now
        metrics.computed_rows(self.rows)
