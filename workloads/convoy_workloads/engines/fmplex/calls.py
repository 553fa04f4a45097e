"""The requests that wait or are computed, row by row. Each request ends exactly once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from convoy_workloads.engines.fmplex.forms import Row
from convoy_workloads.engines.fmplex.pods import BatchKey
from convoy_workloads.engines.fmplex.task_queue import Item, TaskQueue
from convoy_workloads.engines.fmplex.tasks import VirtualModel
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.protocol import Inference, Prediction

RETRY_SECONDS = 1.0
"""Value of Retry-After for a task with a full queue."""


@dataclass(slots=True)
class Call:
    """A request with its rows and their results."""

    inference: Inference
    model: VirtualModel
    at: float
    """Monotonic time of the arrival."""
    rows: list[Row]
    results: list[Tensor | None]
    left: int
    """Number of rows without a result."""


class Calls:
    """The requests in the engine."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._ended: list[Prediction] = []

    def __len__(self) -> int:
        return len(self._calls)

    def pop_ended(self) -> list[Prediction]:
        """Remove and return the results of the requests that have ended."""
        found, self._ended = self._ended, []
        return found

    @property
    def any_ended(self) -> bool:
        """Return True if a request has ended."""
        return bool(self._ended)

    def add(self, inference: Inference, model: VirtualModel, queue: TaskQueue) -> None:
        """Queue the rows of a request, or end it with an error."""
        rows = _rows(inference, model)
        try:
            keys = [BatchKey(model.digest, model.length_of(number, row)) for number, row in enumerate(rows)]
            _check_room(model, len(rows), queue)
        except RequestError as error:
            model.stats.outcomes["refused" if error.status == 429 else "invalid"] += 1
            self._ended.append(Prediction(inference.id, error=error))
            return
        now = time.monotonic()
        self._calls[inference.id] = Call(inference, model, now, rows, [None] * len(rows), len(rows))
        model.pending += len(rows)
        for number, key in enumerate(keys):
            queue.add(Item(model.task.name, key, inference.id, number, now))

    def refuse(self, inference: Inference, error: RequestError) -> None:
        """End a request whose task does not exist."""
        self._ended.append(Prediction(inference.id, error=error))

    def find(self, call: int) -> Call | None:
        """Return a request; None if it has ended."""
        return self._calls.get(call)

    def complete(self, item: Item, result: Tensor) -> None:
        """Record the result of a row. The request ends with its last row."""
        call = self._calls.get(item.call)
        if call is None:
            return
        call.results[item.row] = result
        call.left -= 1
        if call.left:
            return
        del self._calls[item.call]
        head = call.model.head
        table: np.ndarray[Any, np.dtype[np.float32]] = np.stack([_array(one) for one in call.results])
        self._ended.append(Prediction(item.call, {head.output: table}))
        call.model.stats.completed(time.monotonic() - call.at, call.model.task.slo_ms / 1000)

    def fail(self, item: Item, message: str, queue: TaskQueue) -> None:
        """End a request because of one of its rows. Its other rows are dropped."""
        call = self._calls.pop(item.call, None)
        if call is None:
            return
        call.model.pending -= queue.drop(item.task, item.call)
        call.model.stats.outcomes["failed"] += 1
        self._ended.append(Prediction(item.call, error=RequestError(500, message, code="head_failed")))

    def cancel(self, id_: int, queue: TaskQueue) -> None:
        """Drop a request whose client has left."""
        call = self._calls.pop(id_)
        call.model.pending -= queue.drop(call.model.task.name, id_)
        call.model.stats.outcomes["cancelled"] += 1


def _rows(inference: Inference, model: VirtualModel) -> list[Row]:
    """Return the rows of a request."""
    return list(inference.inputs[model.facts.form.input.name])


def _check_room(model: VirtualModel, rows: int, queue: TaskQueue) -> None:
    """Raise RequestError if the task's queue has no room for a request."""
    most, name = model.task.max_queue, model.task.name
    if rows > most:
        raise RequestError(
            400,
            f"inputs.0.data: has {rows} rows; task {name!r} queues at most {most} (max_queue): send them in "
            "several requests",
            "inputs.0.data",
            "invalid_value",
        )
    if queue.waiting(name) + rows > most:
        raise RequestError(
            429,
            f"the queue of task {name!r} is full ({most} rows): send the request again after the time in "
            "Retry-After",
            code="queue_full",
            retry=RETRY_SECONDS,
        )


def _array(result: Tensor | None) -> np.ndarray[Any, np.dtype[np.float32]]:
    assert result is not None  # noqa: S101 - every row of a complete request has a result
    return result.numpy()
