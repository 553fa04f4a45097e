"""How ranks leave, and save, at the same step.

A rank that stops alone leaves the others waiting in a collective for good. So at every step the ranks reduce
their wishes by maximum: what one wishes, all do. The reduction starts when a step starts and is collected
when it ends, so it hides behind the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Reduce = Callable[[Sequence[int]], Callable[[], Sequence[int]]]
"""Starts an element-wise maximum over all ranks and returns what waits for its result."""


@dataclass(frozen=True)
class StepRequest:
    """What a rank would like to happen after the step that now starts."""

    save: bool = False
    stop: bool = False
    busy: bool = False
    """Its last save is still being written: no rank may start the next."""

    def encode(self) -> tuple[int, int, int]:
        """Numbers whose maximum is the wish of all."""
        return int(self.save), int(self.stop), int(self.busy)


def decode(numbers: Sequence[int]) -> StepRequest:
    """The wish behind reduced numbers."""
    return StepRequest(*(bool(number) for number in numbers))


def merge(requests: Iterable[StepRequest]) -> StepRequest:
    """What all do when these are the ranks' wishes."""
    columns = zip(*(request.encode() for request in requests))  # noqa: B905 - `strict` came with Python 3.10
    return decode([max(column) for column in columns])


class StepConsensus:
    """One rank's side of the agreement: `start` as a step starts, `verdict` once it is done.

    Every rank calls both once per step, in this order; `verdict` may be asked for again and says the same.
    """

    def __init__(self, reduce: Reduce | None = None) -> None:
        """Without `reduce` the rank is alone and its wish is the verdict."""
        self._reduce = reduce
        self._wait: Callable[[], Sequence[int]] | None = None
        self._decision = StepRequest()

    def start(self, request: StepRequest) -> None:
        """Starts the reduction of this step's wishes."""
        if self._wait is not None:
            raise RuntimeError("the step before has no verdict yet")
        if self._reduce is None:
            numbers = request.encode()
            self._wait = lambda: numbers
        else:
            self._wait = self._reduce(request.encode())

    def decision(self) -> StepRequest:
        """What all ranks do after this step."""
        if self._wait is not None:
            wait, self._wait = self._wait, None
            self._decision = decode(wait())
        return self._decision


def torch_reduce(group: Any) -> Reduce:
    """A maximum over a gloo group, beside the program's own collectives."""
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
