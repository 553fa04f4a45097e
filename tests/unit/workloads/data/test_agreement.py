"""Ranks that create a loader differently, and process groups that a loader cannot use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist
from tests.unit.workloads.data.rank_threads import Meeting, install, run_ranks
from tests.unit.workloads.data.test_online_batches import MODULE, Texts, lengths_of
from torch.utils.data import Subset

from convoy.data import AdaptiveBuckets, BucketOptions, OnlineBatches, OnlineOptions
from convoy_workloads.data.exchange import Exchange
from convoy_workloads.runtime.errors import DataError, PeerLost


def online(count: int = 20, **changed: Any) -> OnlineBatches:
    return OnlineBatches(Texts(lengths_of(count)), OnlineOptions(**{"tokens": 64, "window": 8, **changed}))


def buckets(size: int = 4, **changed: Any) -> AdaptiveBuckets:
    options = BucketOptions(**{"memory_tokens": 64, **changed})
    return AdaptiveBuckets(Texts([size] * 9), lambda _: size, options)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda rank: online(20 - rank), "number of samples"),
        (online, "number of samples"),
        (
            lambda rank: OnlineBatches(Subset(Texts([3] * 8), range(rank, 8, 2)), OnlineOptions(tokens=64)),
            "selection of samples",
        ),
        (lambda rank: online(seed=rank), "seed"),
        (lambda rank: online(window=8 + rank), "window"),
        (lambda rank: buckets(4 + rank), "sizes of the samples"),
        (lambda rank: buckets(memory_tokens=64 + rank), "memory_tokens"),
    ],
)
def test_ranks_with_shards_or_options_of_their_own_are_a_data_error_on_all_ranks(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[int], Any], name: str
) -> None:
    install(monkeypatch, MODULE, "convoy_workloads.data.adaptive_buckets")
    for error in run_ranks(2, lambda rank, _: make(rank)):
        assert isinstance(error, DataError) and f"{name}: rank 1 has another value than rank 0" in str(error)


def test_workers_and_timeouts_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, MODULE)

    def rank_main(rank: int, _meeting: Meeting) -> int:
        return online(timeout_seconds=10.0 + rank).world

    assert run_ranks(2, rank_main) == [2, 2]


class Group:
    """A process group of two ranks, whose other rank has ended."""


def use_group(monkeypatch: pytest.MonkeyPatch, backend: str = "cpu:gloo") -> None:
    def closed(*_: Any, **__: Any) -> None:
        raise RuntimeError("Connection closed by peer\nmore")

    for name, value in {
        "is_initialized": lambda: True,
        "get_world_size": lambda *_: 2,
        "get_rank": lambda *_: 1,
        "get_backend_config": lambda *_: backend,
        "all_gather": closed,
    }.items():
        monkeypatch.setattr(dist, name, value)


def test_a_lost_rank_is_a_typed_error_that_names_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    use_group(monkeypatch)
    with pytest.raises(PeerLost, match=r"rank 1: .* timeout_seconds=7 .*Connection closed by peer$"):
        Exchange(7.0, Group()).gather([1])


def test_a_group_that_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    use_group(monkeypatch, backend="cuda:nccl")
    with pytest.raises(ValueError, match="its backend is cuda:nccl, but the loader needs gloo"):
        Exchange(7.0, Group())
    with pytest.raises(ValueError, match="this rank is not in it"):
        Exchange(7.0, dist.GroupMember.NON_GROUP_MEMBER)


def test_a_loader_from_before_the_process_group_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = online()
    use_group(monkeypatch)
    with pytest.raises(RuntimeError, match="created before the process group"):
        next(iter(batches))
