"""Faults of one rank's loader: that rank raises its error, the others raise PeerLost before the step."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.workloads.data.rank_threads import Meeting, install, run_ranks
from tests.unit.workloads.data.test_online_batches import MODULE, Texts, lengths_of
from torch import Tensor

from convoy.data import (
    AdaptiveBuckets,
    BucketOptions,
    LoaderError,
    OnlineBatches,
    OnlineOptions,
    SampleFunctions,
    Timing,
    pad_batch,
)
from convoy_workloads.runtime.errors import DataError, PeerLost

OPTIONS = OnlineOptions(tokens=64, window=3)
BUCKETS = BucketOptions(memory_tokens=64, window=20)


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, MODULE, "convoy_workloads.data.adaptive_buckets")


class Poisoned(Texts):
    """A dataset that fails at one sample."""

    def __getitem__(self, number: int) -> Tensor:
        if number == 11:
            raise OSError("disk gone")
        return super().__getitem__(number)


class ReadOnce(Texts):
    """A dataset whose samples cannot be read a second time, as a rank without samples does for its filler."""

    def __getitem__(self, number: int) -> Tensor:
        if number in self.read:
            raise OSError("disk gone")
        return super().__getitem__(number)


def refuse(samples: list[Tensor]) -> Any:
    """Collate, but fail for the sample 11."""
    if any(int(one.max()) == 12 for one in samples):
        raise OSError("no memory")
    return pad_batch(samples)


def online(data: Texts, collate: Callable[[list[Tensor]], Any] | None = None) -> OnlineBatches:
    return OnlineBatches(data, OPTIONS, SampleFunctions(collate=collate))


def buckets(data: Texts, collate: Callable[[list[Tensor]], Any] = pad_batch, **more: Any) -> AdaptiveBuckets:
    return AdaptiveBuckets(data, lambda _: 8, BUCKETS, collate, **more)


EIGHTS = [8] * 40


@pytest.mark.parametrize(
    ("make", "kind", "lengths"),
    [
        (online, Poisoned, lengths_of(40)),
        (lambda data: online(data, refuse), Texts, lengths_of(40)),
        (online, ReadOnce, [3, 4]),
        (buckets, Poisoned, EIGHTS),
        (lambda data: buckets(data, refuse), Texts, EIGHTS),
    ],
    ids=["unreadable", "collate", "filler", "buckets-unreadable", "buckets-collate"],
)
def test_all_ranks_end_at_the_same_step_and_name_the_failed_rank(
    make: Callable[[Texts], Any], kind: type[Texts], lengths: list[int]
) -> None:
    data = kind(lengths)

    def rank_main(_rank: int, _meeting: Meeting) -> None:
        steps, batches = 0, iter(make(data))
        try:
            while True:
                next(batches)
                steps += 1
        except (OSError, PeerLost) as error:
            error.add_note(f"{steps} steps")
            raise

    ends = run_ranks(3, rank_main)
    assert sorted(type(one).__name__ for one in ends) == ["OSError", "PeerLost", "PeerLost"]
    assert len({tuple(one.__notes__) for one in ends if isinstance(one, Exception)}) == 1
    failed = next(rank for rank, one in enumerate(ends) if isinstance(one, OSError))
    assert all(f"rank {failed} failed" in str(one) for one in ends if isinstance(one, PeerLost))


def test_a_rank_that_cannot_read_a_checkpoints_samples_again_ends_all_ranks() -> None:
    options = OnlineOptions(tokens=16, window=6)

    def first(_rank: int, _meeting: Meeting) -> Any:
        batches = OnlineBatches(Texts(EIGHTS), options)
        next(iter(batches))
        return batches.state_dict()

    states: Any = run_ranks(2, first)

    def second(rank: int, _meeting: Meeting) -> None:
        data = Texts(EIGHTS if rank else [9] * 40)
        OnlineBatches(data, options).load_state_dict(states[rank])

    ends = run_ranks(2, second)
    assert [type(one) for one in ends] == [DataError, PeerLost] and "rank 0 failed" in str(ends[1])


def test_if_rank_0_cannot_fit_the_cost_all_ranks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(*_: Any) -> None:
        raise OverflowError("too large")

    def rank_main(_rank: int, _meeting: Meeting) -> None:
        batches = buckets(Texts(EIGHTS))
        monkeypatch.setattr("convoy_workloads.data.shared_table.fit_model", overflow)
        batches.profile([Timing(1, 8, 0.1)])

    ends = run_ranks(1, rank_main)
    assert [type(one) for one in ends] == [OverflowError]


def test_a_sample_that_is_larger_than_its_bucket_is_a_data_error() -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> int:
        return sum(batch.numel() for batch in buckets(Texts([*EIGHTS, 90]), length=len))

    (error,) = run_ranks(1, rank_main)
    assert isinstance(error, DataError) and "sample 40 has 90 tokens, but bucket_of says 8" in str(error)


class Deadly(Texts):
    """A dataset that ends the process that reads one of its samples."""

    def __getitem__(self, number: int) -> Tensor:
        if number == 5:
            os._exit(1)
        return super().__getitem__(number)


def test_a_worker_process_that_dies_is_a_loader_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the only rank needs no other exchange
    batches = OnlineBatches(Deadly(lengths_of(12)), OnlineOptions(tokens=64, workers=1, shuffle=False))
    with pytest.raises(LoaderError, match="worker process of the DataLoader died"):
        list(batches)
