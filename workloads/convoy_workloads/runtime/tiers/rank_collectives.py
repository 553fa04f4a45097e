"""What the ranks find out together, over a gloo group of all of them; alone, each for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from convoy_workloads.runtime.errors import OtherRankFailed

T = TypeVar("T")


@dataclass(frozen=True)
class RankGroup:
    """All ranks of the incarnation, as one of them sees them."""

    rank: int
    """This rank."""
    world: int
    """The number of ranks."""
    gloo: Any
    """The gloo group of all ranks; None when alone."""


_HOLDS, _DOES_NOT, _FAILED = range(3)


def gather(value: Any, group: Any) -> list[Any]:
    """What every rank has, by rank. All ranks of `group` call it; None: alone."""
    if group is None:
        return [value]
    import torch.distributed as dist  # noqa: PLC0415

    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found


def all_true(holds: Callable[[], bool], group: Any) -> bool:
    """Whether it holds on every rank. All ranks of `group` call it; None: alone.

    When finding it out fails on a rank, all raise: that one its error, the others OtherRankFailed. So `holds`
    may not use the group itself.
    """
    if group is None:
        return holds()
    failure: Exception | None = None
    try:
        vote = _HOLDS if holds() else _DOES_NOT
    except Exception as error:  # the others wait for this rank's vote
        failure, vote = error, _FAILED
    highest = _highest(vote, group)
    if highest == _FAILED:
        said = gather("" if failure is None else f"{type(failure).__name__}: {failure}", group)
        if failure is not None:
            raise failure
        raise OtherRankFailed("; ".join(f"rank {rank}: {text}" for rank, text in enumerate(said) if text))
    return highest == _HOLDS


def value_if_all(work: Callable[[], T | None], group: Any) -> T | None:
    """What `work` gives on this rank, when it gives something on all; None when it gives None on one. Fails
    as `all_hold` does.
    """
    found: T | None = None

    def gives() -> bool:
        nonlocal found
        found = work()
        return found is not None

    return found if all_true(gives, group) else None


def run_on_all(work: Callable[[], T], group: Any) -> T:
    """What `work` gives on this rank, once it has succeeded on all. Fails as `all_hold` does."""
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
