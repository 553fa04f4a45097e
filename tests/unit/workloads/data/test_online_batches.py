"""Tests of OnlineBatches: coverage, budget, quarantine, resuming, and faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.unit.workloads.data.rank_threads import Meeting, install, run_ranks
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from convoy.data import OnlineBatches, OnlineOptions, Quarantined, SampleError, SampleFunctions
from convoy_workloads.runtime.errors import DataError

OPTIONS = OnlineOptions(tokens=64, window=8, seed=3)
MODULE = "convoy_workloads.data.online_batches"


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, MODULE)


class Texts(Dataset[Tensor]):
    """Samples whose tokens are all the sample's number, so that a batch shows its samples.

    Nothing shows the lengths but `__getitem__`.
    """

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, number: int) -> Tensor:
        self.read.append(number)
        return torch.full((self._lengths[number],), number + 1)


def lengths_of(count: int, seed: int = 0, longest: int = 32) -> list[int]:
    rng = random.Random(seed)
    return [min(longest, 1 + int(rng.lognormvariate(2, 0.9))) for _ in range(count)]


def samples_in(batch: Tensor) -> list[int]:
    """Return the numbers of the samples that the tokens of a batch show."""
    return [int(row.max()) - 1 for row in batch]


def epoch(data: Any, options: OnlineOptions, functions: SampleFunctions | None = None) -> Any:
    """Return a function that runs an epoch on a rank. Its result has the samples of each step, checked
    against the tensors.
    """

    def rank_main(_rank: int, _meeting: Meeting) -> list[tuple[int, ...]]:
        batches, found = OnlineBatches(data, options, functions), []
        for batch in batches:
            assert batches.info is not None
            assert batch.numel() <= options.tokens
            if batches.info.samples:
                assert sorted(samples_in(batch)) == sorted(batches.info.samples)
            found.append(batches.info.samples)
        return found

    return rank_main


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 97])
def test_an_epoch_has_every_sample_once_and_equal_steps_on_all_ranks(world: int, count: int) -> None:
    ranks = run_ranks(world, epoch(Texts(lengths_of(count)), OPTIONS))
    assert len({len(steps) for steps in ranks}) == 1
    assert sorted(sample for steps in ranks for step in steps for sample in step) == list(range(count))


def test_each_epoch_has_another_order() -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> list[list[tuple[int, ...]]]:
        batches = OnlineBatches(Texts(lengths_of(20)), OPTIONS)
        return [[batches.info.samples for _ in batches if batches.info] for _ in range(2)]

    (epochs,) = run_ranks(1, rank_main)
    first, second = epochs
    assert first != second
    assert [sorted(one for step in steps for one in step) for steps in epochs] == [list(range(20))] * 2


def test_no_rank_reads_more_than_its_window_before_its_first_batch() -> None:
    """An oracle, or a rank that plans for all, would have to read more."""

    def rank_main(_rank: int, _meeting: Meeting) -> int:
        data = Texts(lengths_of(60))
        next(iter(OnlineBatches(data, OPTIONS)))
        return len(data.read)

    assert run_ranks(2, rank_main) == [OPTIONS.window] * 2


def test_batches_have_less_padding_than_in_the_order_of_reading() -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> float:
        batches = OnlineBatches(Texts(lengths_of(200)), OnlineOptions(tokens=64, window=64))
        for _ in batches:
            pass
        return batches.metrics()["padding_ratio"]

    (ratio,) = run_ranks(1, rank_main)
    lengths = lengths_of(200)
    fixed = [lengths[at : at + 2] for at in range(0, 200, 2)]
    plain = 1 - sum(lengths) / sum(2 * max(pair) for pair in fixed)
    assert isinstance(ratio, float) and 0 < ratio < plain / 2


def test_empty_samples_go_into_quarantine_and_are_counted_on_all_ranks() -> None:
    lengths = lengths_of(31)
    for number in (0, 7, 30):
        lengths[number] = 0

    def rank_main(_rank: int, _meeting: Meeting) -> tuple[list[Quarantined], float, list[int]]:
        batches = OnlineBatches(Texts(lengths), OPTIONS)
        used = [sample for _ in batches if batches.info for sample in batches.info.samples]
        return batches.quarantined, batches.metrics()["quarantined_total"], used

    ranks: Any = run_ranks(2, rank_main)
    for quarantined, _, _ in ranks:
        assert sorted(one.sample for one in quarantined) == [0, 7, 30]
    assert {one.reason for quarantined, _, _ in ranks for one in quarantined} == {"empty"}
    assert [total for _, total, _ in ranks] == [3, 3]
    assert sorted(sample for _, _, used in ranks for sample in used) == sorted(set(range(31)) - {0, 7, 30})


@pytest.mark.parametrize(
    ("policy", "used", "quarantined"),
    [("truncate", [0, 1, 2], []), ("reject", [0, 2], [Quarantined(1, "over-long", 90)])],
)
def test_an_over_long_sample_never_exceeds_the_budget(
    policy: Any, used: list[int], quarantined: list[Quarantined]
) -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> tuple[list[int], list[Quarantined]]:
        batches = OnlineBatches(Texts([5, 90, 4]), OnlineOptions(tokens=64, window=2, overlong=policy))
        found = []
        for batch in batches:
            assert batch.numel() <= 64
            found += samples_in(batch)
        return sorted(found), batches.quarantined

    assert run_ranks(1, rank_main) == [(used, quarantined)]


def test_an_epoch_without_a_usable_sample_is_an_error() -> None:
    for error in run_ranks(2, epoch(Texts([0, 0, 0]), OPTIONS)):
        assert isinstance(error, DataError) and "all samples are in quarantine" in str(error)


def test_a_dataset_smaller_than_the_world_gives_fillers_that_count_nothing() -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> list[tuple[int, float]]:
        batches = OnlineBatches(Texts([0, 6]), OPTIONS)
        return [(batch.numel(), batches.scale) for batch in batches]

    ranks: Any = run_ranks(4, rank_main)
    assert sorted(scale for steps in ranks for _, scale in steps) == [0, 0, 0, 4]
    assert all(numel == 6 for steps in ranks for numel, _ in steps)


def test_a_quota_ends_an_epoch_for_all_ranks_and_counts_what_is_left_out() -> None:
    options = OnlineOptions(tokens=64, window=8, mode="quota", sample_quota=40)

    def rank_main(_rank: int, _meeting: Meeting) -> tuple[int, int]:
        batches = OnlineBatches(Texts(lengths_of(97)), options)
        used = [sample for _ in batches if batches.info for sample in batches.info.samples]
        return len(set(used)), batches.left_out

    ranks: Any = run_ranks(2, rank_main)
    used = sum(count for count, _ in ranks)
    assert 40 <= used < 40 + 2 * OPTIONS.window
    assert {left_out for _, left_out in ranks} == {97 - used}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (Texts([]), OPTIONS, "no samples"),
        (Texts([3]), OnlineOptions(tokens=8, mode="quota"), "1 samples for 2 ranks"),
    ],
)
def test_too_few_samples_are_a_data_error(data: Any, options: OnlineOptions, message: str) -> None:
    for error in run_ranks(2, epoch(data, options)):
        assert isinstance(error, DataError) and message in str(error)


class Endless(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield torch.ones(3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Endless(), "no numbered samples"),
        (DataLoader(Endless()), "no numbered samples"),
        (DataLoader(Texts([1, 2]), sampler=[1, 0]), "sampler list"),
        (DataLoader(Texts([1, 2]), batch_sampler=[[1], [0]]), "batch_sampler of its own"),
    ],
)
def test_data_without_numbered_samples_is_a_type_error(data: Any, message: str) -> None:
    (error,) = run_ranks(1, epoch(data, OPTIONS))
    assert isinstance(error, TypeError) and message in str(error)


def test_a_data_loader_gives_its_dataset_its_order_and_its_collate_function() -> None:
    data = Texts([4, 5, 6])

    def pairs(samples: list[Tensor]) -> tuple[str, int]:
        return "batch", len(samples)

    def rank_main(_rank: int, _meeting: Meeting) -> Any:
        return list(OnlineBatches(DataLoader(data, batch_size=2, collate_fn=pairs), OPTIONS))

    assert run_ranks(1, rank_main) == [[("batch", 3)]]
    assert data.read == [0, 1, 2]
    sampler: Any = DistributedSampler(data, 1, 0, shuffle=False)
    run_ranks(1, epoch(DataLoader(data, sampler=sampler), OPTIONS))
    assert data.read == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 0}, "tokens: 0 is less than 1"),
        ({"tokens": "4k"}, "tokens: '4k' is not a whole number"),
        ({"tokens": 8, "overhead": 1.5}, "overhead: 1.5 is not a whole number"),
        ({"tokens": 8, "seed": -1}, "seed: -1 is negative"),
        ({"tokens": 8, "timeout_seconds": float("nan")}, "timeout_seconds: nan is not a finite number"),
        ({"tokens": 8, "longest": 9}, "longest: 9 must be from 1 to tokens=8"),
        ({"tokens": 2, "shortest": 3}, "no sample of 3 tokens fits into 2"),
        ({"tokens": 8, "sample_quota": 4}, "sample_quota: needs mode='quota'"),
        ({"tokens": 8, "slots": -1}, "slots: -1 is negative"),
        ({"tokens": 8, "overhead": -1}, "overhead: -1 is negative"),
        ({"tokens": 8, "timeout_seconds": 0.0}, "timeout_seconds: 0.0 is not positive"),
        ({"tokens": 8, "mode": "Join"}, "mode: 'Join' is not one of join, quota"),
        ({"tokens": 8, "overlong": "cut"}, "overlong: 'cut' is not one of truncate, reject"),
        ({"tokens": 8, "loss_scaling": "Exact"}, "loss_scaling: 'Exact' is not one of exact, approx, none"),
    ],
)
def test_options_that_no_batch_satisfies_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnlineOptions(**options)


@pytest.mark.parametrize("sample", ["text", object(), torch.tensor(3)])
def test_samples_without_a_length_are_an_error_that_names_the_sample(sample: Any) -> None:
    (error,) = run_ranks(1, epoch([sample], OPTIONS))
    assert isinstance(error, SampleError) and "length of sample 0" in str(error)


def test_an_iteration_that_was_left_early_goes_on() -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> list[int]:
        batches, found = OnlineBatches(Texts(lengths_of(40)), OPTIONS), []
        while not batches.epoch:
            for batch in batches:
                found += samples_in(batch)
                break
        return sorted(found)

    assert run_ranks(1, rank_main) == [list(range(40))]
