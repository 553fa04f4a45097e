"""The agreement of all ranks to stop, or to save, after the same step.

If one rank stopped alone, the other ranks would wait in a collective forever. So at every step the ranks
reduce their requests by maximum, and a request of one rank applies to all ranks. The reduction starts with
the step, and its result is read after the step. So the reduction runs during the step's work and costs no
time.
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
    """The actions that a rank requests for the time after the step that is about to start."""

    save: bool = False
    stop: bool = False
    busy: bool = False
    """True if the rank cannot start a save, for example because its last save is still being written. Then
    no rank starts a save after this step.
    """

    def encode(self) -> tuple[int, int, int]:
        """Return the request as numbers. The element-wise maximum over all ranks is the merged request."""
        return int(self.save), int(self.stop), int(self.busy)


def decode(numbers: Sequence[int]) -> StepRequest:
    """Return the request that `encode` turned into these numbers."""
    return StepRequest(*(bool(number) for number in numbers))


def merge(requests: Iterable[StepRequest]) -> StepRequest:
    """Return the merged request of all ranks: it requests every action that any rank requests."""
    columns = zip(*(request.encode() for request in requests))  # noqa: B905 - `strict` came with Python 3.10
    return decode([max(column) for column in columns])


class StepConsensus:
    """One rank's part in the agreement. Call `start` when a step starts, and `decision` when the step is
    done.

    Every rank calls both methods once per step. Further calls of `decision` return the same result.
    """

    def __init__(self, reduce: Reduce | None = None) -> None:
        """Prepare the agreement. If `reduce` is None, this is the only rank, and its own request is the
        decision.
        """
        self._reduce = reduce
        self._wait: Callable[[], Sequence[int]] | None = None
        self._decision = StepRequest()

    def start(self, request: StepRequest) -> None:
        """Start the reduction of all ranks' requests for the step that starts now. `request` is this rank's
        request.
        """
        if self._wait is not None:
            raise RuntimeError("decision() was not called for the previous step")
        if self._reduce is None:
            numbers = request.encode()
            self._wait = lambda: numbers
        else:
            self._wait = self._reduce(request.encode())

    def decision(self) -> StepRequest:
        """Return the merged request of all ranks for this step: the actions that all ranks take after it.
        If the reduction is not finished, wait for it.
        """
        if self._wait is not None:
            wait, self._wait = self._wait, None
            self._decision = decode(wait())
        return self._decision


def torch_reduce(group: Any) -> Reduce:
    """Return a Reduce over the gloo group `group`. If only Convoy uses this group, its reductions never mix
    with the program's collectives.
    """
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
