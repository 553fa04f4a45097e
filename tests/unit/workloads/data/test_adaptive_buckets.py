"""Tests of AdaptiveBuckets: the same table on all ranks, coverage, refits, and resuming."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
import torch
from tests.unit.workloads.data.rank_threads import Meeting, install, run_ranks

from convoy.data import AdaptiveBuckets, BucketError, BucketOptions, Timing
from convoy_workloads.packing.step_cost import LinearQuadratic
from convoy_workloads.runtime.errors import DataError

SIZES = (8, 16, 32)
OPTIONS = BucketOptions(memory_tokens=64, window=20, refit_steps=4)
MACHINE = LinearQuadratic(1e-5, 2e-6, 1e-4)


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "convoy_workloads.data.adaptive_buckets")


class Clips:
    """Samples of different sizes, whose values are their numbers."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def tokens(self, number: int) -> int:
        return SIZES[number % 3]

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((self.tokens(number),), number)


def loader(count: int, options: BucketOptions = OPTIONS) -> AdaptiveBuckets:
    clips = Clips(count)
    return AdaptiveBuckets(clips, clips.tokens, options, torch.stack)


def run_steps(
    batches: AdaptiveBuckets, steps: int | None, slower: float = 1.0
) -> list[tuple[tuple[int, ...], tuple[int, ...], int, float]]:
    """Return the samples, the shape, the version and the scale of each step. The steps take the time of
    MACHINE, times `slower`.
    """
    found = []
    for batch in batches:
        info = batches.info
        assert info is not None
        if info.samples:
            assert batch[:, 0].tolist() == list(info.samples)
        found.append((info.samples, tuple(batch.shape), info.version, info.scale))
        batches.record(slower * MACHINE.seconds(len(batch), info.tokens))
        if len(found) == steps:
            break
    return found


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 97])
@pytest.mark.parametrize("rule", ["measured", "paper", "equal_tokens"])
def test_an_epoch_has_every_sample_once_under_the_same_tables(world: int, count: int, rule: Any) -> None:
    options = BucketOptions(memory_tokens=64, window=20, refit_steps=4, rule=rule)

    def rank_main(rank: int, _meeting: Meeting) -> Any:
        batches = loader(count, options)
        return run_steps(batches, None, slower=1 + 0.3 * rank), batches.table

    ranks: Any = run_ranks(world, rank_main)
    steps = [one[0] for one in ranks]
    assert Counter(sample for rank in steps for step in rank for sample in step[0]) == Counter(range(count))
    assert len({tuple(step[2] for step in rank) for rank in steps}) == 1
    assert len({tuple(sorted(one[1].sizes.items())) for one in ranks}) == 1
    assert all(shape[0] * shape[1] <= 64 for rank in steps for _, shape, _, _ in rank)
    for together in zip(*steps, strict=True):
        total = sum(len(samples) for samples, *_ in together)
        assert [step[3] for step in together] == [len(step[0]) * world / total for step in together]
    if count == 97:
        assert (steps[0][-1][2] > 0) is (rule != "equal_tokens")


def test_a_profile_gives_the_first_batch_its_table() -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> Any:
        batches = loader(60)
        batches.profile([Timing(size, one, MACHINE.seconds(size, one)) for one in SIZES for size in (1, 2)])
        run_steps(batches, 1)
        return batches.info.version if batches.info else None, batches.table.sizes, batches.metrics()

    version, sizes, metrics = run_ranks(1, rank_main)[0]  # type: ignore[misc]
    assert version == 1
    limit = MACHINE.seconds(1, 32)
    assert sizes[32] == 1 and all(MACHINE.seconds(size, one) <= limit for one, size in sizes.items())
    assert 1 < metrics["fitted_p"] < 2 and metrics["cost_mape"] < 0.01


def test_the_table_follows_a_machine_whose_attention_becomes_slow() -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> list[dict[int, int]]:
        batches, tables = loader(300, BucketOptions(memory_tokens=128, window=20, refit_steps=4)), []
        for quadratic in (0.0, 1e-4):
            machine = LinearQuadratic(1e-5, quadratic, 0.0)
            for number, batch in enumerate(batches):
                batches.record(machine.seconds(*batch.shape))
                if number == 60:
                    break
            tables.append(dict(batches.table.sizes))
        return tables

    before, after = run_ranks(1, rank_main)[0]  # type: ignore[misc]
    assert before == {8: 4, 16: 2, 32: 1}
    assert after[8] > before[8]  # 32 tokens now cost 16 times as much as 8


def test_a_table_changes_between_windows_only() -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> list[int]:
        batches, changes, before = loader(300), [], 0
        for _ in batches:
            assert batches.info is not None
            batches.record(MACHINE.seconds(len(batches.info.samples), batches.info.tokens))
            if batches.info.version != before:
                before = batches.info.version
                # The first step of a window has the most steps after it.
                changes.append(len(batches._position.steps))
        return changes

    (changes,) = run_ranks(1, rank_main)
    assert isinstance(changes, list) and changes and min(changes) >= 4


@pytest.mark.parametrize("world", [1, 3])
def test_a_resumed_run_has_the_batches_of_an_undisturbed_one(world: int) -> None:
    options = BucketOptions(memory_tokens=64, window=20, refit_steps=4)

    def run(stop: int | None, states: list[Any] | None) -> Any:
        def rank_main(rank: int, _meeting: Meeting) -> Any:
            batches = loader(97, options)
            if states is not None:
                batches.load_state_dict(states[rank])
            return run_steps(batches, stop), batches.state_dict()

        return run_ranks(world, rank_main)

    whole = run(None, None)
    for stop in (1, 5, len(whole[0][0]) - 1):
        first = run(stop, None)
        rest = run(None, [one[1] for one in first])
        for rank in range(world):
            assert first[rank][0] + rest[rank][0] == whole[rank][0]


def test_another_number_of_ranks_uses_the_rest_of_the_samples_once() -> None:
    def first(_rank: int, _meeting: Meeting) -> Any:
        batches = loader(97)
        return run_steps(batches, 4), batches.state_dict()

    before: Any = run_ranks(3, first)

    def second(_rank: int, _meeting: Meeting) -> Any:
        batches = loader(97)
        batches.load_state_dict(before[0][1])
        return run_steps(batches, None)

    after: Any = run_ranks(2, second)
    steps = [step for steps, _ in before for step in steps] + [step for steps in after for step in steps]
    assert Counter(sample for step in steps for sample in step[0]) == Counter(range(97))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_tokens": 31}, "memory_tokens: no batch fits a sample of 32 tokens"),
        ({"memory_tokens": 0}, "memory_tokens: 0 is less than 1"),
        ({"memory_tokens": "64k"}, "memory_tokens: '64k' is not a whole number"),
        ({"memory_tokens": 64, "compute": float("inf")}, "compute: inf is not a finite number"),
        ({"memory_tokens": 64, "exponent": 0.5}, "exponent: 0.5 is not from 1 to 3"),
        ({"memory_tokens": 64, "compute": -1.0}, "compute: -1.0 is not positive"),
        ({"memory_tokens": 64, "refit_steps": -1}, "refit_steps: -1 is negative"),
        ({"memory_tokens": 64, "timeout_seconds": -1.0}, "timeout_seconds: -1.0 is not positive"),
        (
            {"memory_tokens": 64, "rule": "fitted"},
            "rule: 'fitted' is not one of equal_tokens, paper, measured",
        ),
        ({"memory_tokens": 64, "dealing": "random"}, "dealing: 'random' is not one of none, window_sorted"),
    ],
)
def test_options_that_no_batch_satisfies_are_errors(options: dict[str, Any], message: str) -> None:
    def rank_main(_rank: int, _meeting: Meeting) -> None:
        loader(9, BucketOptions(**options))

    (error,) = run_ranks(1, rank_main)
    assert isinstance(error, BucketError) and message in str(error)


def test_no_samples_and_the_state_of_another_dataset_are_data_errors() -> None:
    state = run_ranks(1, lambda _rank, _meeting: loader(9).state_dict())[0]
    errors = run_ranks(1, lambda _rank, _meeting: loader(8).load_state_dict(state))  # type: ignore[arg-type]
    errors += run_ranks(1, lambda _rank, _meeting: loader(0))
    assert [type(one) for one in errors] == [DataError, DataError]
    assert "9 samples, but this one has 8" in str(errors[0])


def test_ranks_that_record_nothing_decide_at_the_same_step() -> None:
    def rank_main(rank: int, _meeting: Meeting) -> int:
        batches = loader(97)
        for batch in batches:
            if rank == 0:
                batches.record(MACHINE.seconds(*batch.shape))
        return batches.table.version

    versions = run_ranks(2, rank_main)
    assert len(set(versions)) == 1 and versions[0] != 0


def test_ranks_sort_by_the_model_of_rank_0_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank whose own fit differs would deal other batches."""
    here = threading.local()

    def fitted(*_: Any) -> LinearQuadratic:
        return LinearQuadratic(0.1 + here.rank, 1 / 3, 1e-300)

    monkeypatch.setattr("convoy_workloads.data.shared_table.fit_model", fitted)

    def rank_main(rank: int, _meeting: Meeting) -> Any:
        here.rank = rank
        batches = loader(97)
        batches.profile([])
        again = loader(97)
        again.load_state_dict(batches.state_dict())
        return batches._model, again._model

    assert run_ranks(2, rank_main) == [(LinearQuadratic(0.1, 1 / 3, 1e-300),) * 2] * 2
