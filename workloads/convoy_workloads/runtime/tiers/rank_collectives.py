"""Collectives of all ranks over a gloo group. A rank that is alone gets its own value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from convoy_workloads.runtime.errors import OtherRankFailed

T = TypeVar("T")


@dataclass(frozen=True)
class RankGroup:
    """The group of all ranks of the incarnation, and the number of this process in it."""

    rank: int
    """Number of this rank."""
    world: int
    """Number of ranks in the incarnation."""
    gloo: Any
    """Gloo group of all ranks; None if the rank is alone."""


_HOLDS, _DOES_NOT, _FAILED = range(3)


def gather(value: Any, group: Any) -> list[Any]:
    """Return the value of every rank, in rank order. All ranks of `group` call this.

    `group`: None if the rank is alone.
    """
    if group is None:
        return [value]
    import torch.distributed as dist  # noqa: PLC0415

    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found


def all_true(holds: Callable[[], bool], group: Any) -> bool:
    """Return True if `holds` returns True on every rank. All ranks of `group` call this.

    If `holds` raises an error on a rank, that rank raises the same error, and all other ranks raise
    OtherRankFailed. `holds` must not use the group: if it failed on one rank, the other ranks would wait
    for that rank in a collective.

    `group`: None if the rank is alone.
    """
    if group is None:
        return holds()
    failure: Exception | None = None
    try:
        vote = _HOLDS if holds() else _DOES_NOT
    # Vote before raising the error, because the other ranks wait for this rank's vote.
    except Exception as error:
        failure, vote = error, _FAILED
    highest = _highest(vote, group)
    if highest == _FAILED:
        said = gather("" if failure is None else f"{type(failure).__name__}: {failure}", group)
        if failure is not None:
            raise failure
        raise OtherRankFailed("; ".join(f"rank {rank}: {text}" for rank, text in enumerate(said) if text))
    return highest == _HOLDS


def value_if_all(work: Callable[[], T | None], group: Any) -> T | None:
    """Return this rank's result of `work` if no rank's result is None. Otherwise return None.

    Raises the errors of `all_true`.
    """
    found: T | None = None

    def gives() -> bool:
        nonlocal found
        found = work()
        return found is not None

    return found if all_true(gives, group) else None


def run_on_all(work: Callable[[], T], group: Any) -> T:
    """Return this rank's result of `work` once `work` has succeeded on all ranks. Raises the errors of
    `all_true`.
    """
    found: list[T] = []

    def done() -> bool:
        found.append(work())
        return True

    all_true(done, group)
    return found[0]


def _highest(vote: int, group: Any) -> int:
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    votes = torch.tensor([vote])
    dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=group)
    return int(votes.item())
