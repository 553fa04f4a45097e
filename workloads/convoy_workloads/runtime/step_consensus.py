"""The agreement of all ranks to stop, or to save, after the same step.

A rank that stops alone leaves the others waiting in a collective forever. So at every step the ranks reduce
their requests by maximum: a request of one rank applies to all. The reduction starts with the step and is
collected after the step, so its time is hidden behind the step's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Reduce = Callable[[Sequence[int]], Callable[[], Sequence[int]]]
"""A function that starts an element-wise maximum over all ranks. It returns a function that waits for the
result.
"""


@dataclass(frozen=True)
class StepRequest:
    """The actions that a rank requests after the step that is about to start."""

    save: bool = False
    stop: bool = False
    busy: bool = False
    """True if the rank's last save is still being written; no rank may then start the next save."""

    def encode(self) -> tuple[int, int, int]:
        """Return the request as numbers. The maximum over all ranks is the merged request."""
        return int(self.save), int(self.stop), int(self.busy)


def decode(numbers: Sequence[int]) -> StepRequest:
    """Return the request that the reduced numbers encode."""
    return StepRequest(*(bool(number) for number in numbers))


def merge(requests: Iterable[StepRequest]) -> StepRequest:
    """Return the actions that all ranks take for these requests."""
    columns = zip(*(request.encode() for request in requests))  # noqa: B905 - `strict` came with Python 3.10
    return decode([max(column) for column in columns])


class StepConsensus:
    """One rank's side of the agreement: `start` when a step starts, `decision` when it is done.

    Every rank calls both once per step, in this order. Further calls of `decision` return the same result.
    """

    def __init__(self, reduce: Reduce | None = None) -> None:
        """Without `reduce` the rank is alone, and its request is the decision."""
        self._reduce = reduce
        self._wait: Callable[[], Sequence[int]] | None = None
        self._decision = StepRequest()

    def start(self, request: StepRequest) -> None:
        """Start the reduction of the requests for this step."""
        if self._wait is not None:
            raise RuntimeError("decision() was not called for the previous step")
        if self._reduce is None:
            numbers = request.encode()
            self._wait = lambda: numbers
        else:
            self._wait = self._reduce(request.encode())

    def decision(self) -> StepRequest:
        """Return the actions that all ranks take after this step. Wait for the reduction if necessary."""
        if self._wait is not None:
            wait, self._wait = self._wait, None
            self._decision = decode(wait())
        return self._decision


def torch_reduce(group: Any) -> Reduce:
    """Return a maximum over a gloo group, independent of the program's own collectives."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    def start(numbers: Sequence[int]) -> Callable[[], Sequence[int]]:
        tensor = torch.tensor(numbers, dtype=torch.int64)
        work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group, async_op=True)

        def wait() -> Sequence[int]:
            if work is not None:
                work.wait()
            return [int(number) for number in tensor.tolist()]

        return wait

    return start
