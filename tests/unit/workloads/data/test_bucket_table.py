"""Tests of the table of batch sizes and of the dealing of batches."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.cases import cases

from convoy_workloads.data.bucket_table import BucketError, BucketTable, fit_model, make_table
from convoy_workloads.data.dealing import deal, form_batches, imbalance
from convoy_workloads.packing.step_cost import LinearQuadratic, PowerLaw, Timing

BUCKETS = (128, 256, 512, 1024, 2048, 4096)


def random_model(rng: random.Random) -> PowerLaw | LinearQuadratic:
    if rng.random() < 0.5:
        return PowerLaw(rng.uniform(1e-7, 1e-5), rng.uniform(1, 2))
    return LinearQuadratic(rng.uniform(0, 1e-6), rng.uniform(1e-12, 1e-9), rng.uniform(0, 1e-2))


def test_a_table_respects_both_limits_and_longer_samples_get_no_larger_batches() -> None:
    for seed in range(cases(200)):
        rng = random.Random(seed)
        model, memory = random_model(rng), rng.choice((4096, 16_384))
        compute = rng.choice((None, model.seconds(2, 1024)))
        limit = model.seconds(1, 4096) if compute is None else compute
        table = make_table(BUCKETS, memory, model, compute)
        sizes = [table.sizes[one] for one in BUCKETS]
        assert sizes == sorted(sizes, reverse=True) and min(sizes) >= 1
        for tokens, size in table.sizes.items():
            assert size * tokens <= memory
            assert size == 1 or model.seconds(size, tokens) <= limit * (1 + 1e-6)
            # A batch is as large as the limits and shorter samples allow.
            larger = model.seconds(size + 1, tokens) > limit or (size + 1) * tokens > memory
            shorter = [table.sizes[one] for one in BUCKETS if one < tokens]
            assert larger or size == min(shorter)


@pytest.mark.parametrize(("exponent", "sizes"), [(1.0, (32, 16, 8, 4, 2, 1)), (2.0, (128, 64, 32, 16, 4, 1))])
def test_the_rule_of_the_paper(exponent: float, sizes: tuple[int, ...]) -> None:
    """128 S = 16,384 tokens limit short samples; B S^p <= 4096^p limits long ones."""
    table = make_table(BUCKETS, 16_384, fit_model("paper", [], exponent))
    assert tuple(table.sizes[one] for one in BUCKETS) == sizes


def test_equal_tokens_have_no_limit_of_compute() -> None:
    table = make_table(BUCKETS, 8192, fit_model("equal_tokens", [Timing(1, 2, 3.0)]))
    assert [size * tokens for tokens, size in table.sizes.items()] == [8192] * 6


def test_a_compute_limit_that_equals_the_memory_limit_changes_nothing() -> None:
    """Then the rule has no effect, so both limits must be stated."""
    assert make_table(BUCKETS, 4096, PowerLaw(1, 1)).sizes == make_table(BUCKETS, 4096).sizes


@pytest.mark.parametrize(
    ("buckets", "memory", "compute", "message"),
    [
        ((128, 4096), 4095, None, "memory_tokens: no batch fits a sample of 4096"),
        ((0, 3), 100, None, "at least 1 token"),
        ((), 100, None, "at least 1 token"),
        ((64,), 100, 0.0, "compute: 0.0 is not positive"),
    ],
)
def test_limits_that_no_batch_satisfies_are_errors(
    buckets: tuple[int, ...], memory: int, compute: float | None, message: str
) -> None:
    with pytest.raises(BucketError, match=message):
        make_table(buckets, memory, PowerLaw(1, 2), compute)


def test_a_compute_limit_below_every_step_leaves_batches_of_one() -> None:
    assert set(make_table(BUCKETS, 8192, PowerLaw(1, 2), 1.0).sizes.values()) == {1}


def test_a_table_travels_as_numbers() -> None:
    table = BucketTable(7, {128: 9, 64: 11})
    found = BucketTable.from_numbers(table.numbers(), [128, 64])
    assert (found.version, found.sizes) == (7, table.sizes)


def test_every_sample_is_dealt_once_whatever_the_table() -> None:
    for seed in range(cases(150)):
        rng = random.Random(seed)
        count, world = rng.randint(1, 80), rng.randint(1, 5)
        buckets = [rng.choice(BUCKETS) for _ in range(count)]
        table = make_table(BUCKETS, 8192, random_model(rng))
        window, left, dealt = rng.randint(1, 40), [], Counter[int]()
        for at in range(0, count, window):
            samples = [*left, *range(at, min(count, at + window))]
            last = at + window >= count
            batches, left = form_batches(samples, buckets, table, world, last, rng)
            assert len(batches) % world == 0
            for step in deal(batches, world, rng.choice((None, PowerLaw(1, 2))), rng):
                assert len(step) == world
                for batch in step:
                    dealt.update(batch.samples)
                    assert len(batch.samples) <= table.sizes.get(batch.tokens, 0)
                    assert {buckets[one] for one in batch.samples} <= {batch.tokens}
            assert len(left) <= sum(table.sizes.values()) + world * max(table.sizes.values())
        assert not left
        assert dealt == Counter(range(count))


def test_sorted_dealing_gives_the_ranks_of_a_step_batches_of_like_cost() -> None:
    model, rng = LinearQuadratic(1e-6, 1e-9, 1e-3), random.Random(1)
    buckets = [BUCKETS[number % 6] for number in range(1200)]
    table = make_table(BUCKETS, 4096)
    batches, _ = form_batches(range(1200), buckets, table, 8, True, rng)

    def balance(sort_by: LinearQuadratic | None) -> float:
        steps = deal(batches, 8, sort_by, rng)
        return imbalance([[model.seconds(len(one.samples), one.tokens) for one in step] for step in steps])

    assert balance(model) < 0.05
    assert balance(None) > 0.2


@pytest.mark.parametrize(
    ("seconds", "expected"), [([[1, 1], [2, 2]], 0), ([[1, 3], [2, 2]], 1 / 6), ([], 0), ([[0, 0]], 0)]
)
def test_imbalance_is_the_share_of_waiting(seconds: list[list[float]], expected: float) -> None:
    assert imbalance(seconds) == pytest.approx(expected)
