"""Tests of the engine odb: its documents, its baselines, and its optimizer step."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tests.cases import cases

from convoy.data import pad_batch
from convoy_workloads.engines.odb import ENGINE, training
from convoy_workloads.engines.odb.documents import Documents, drawn_lengths, load
from convoy_workloads.engines.odb.params import Params
from convoy_workloads.engines.odb.planned import Limits, Plan, fixed, grouped, oracle
from convoy_workloads.packing.token_budget import padded_tokens
from convoy_workloads.runtime import ParamsError

SMALL = Params.model_validate(dict(ENGINE.small))
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def documents() -> Documents:
    return load(SMALL)[0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"longest": 97}, "longest: no batch fits a document of 97 tokens"),
        ({"heads": 3}, "width: 16 must be a multiple of heads=3"),
        ({"sample_quota": 5}, "sample_quota: needs mode: quota"),
    ],
)
def test_parameters_that_no_batch_satisfies_are_rejected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Params.model_validate({**ENGINE.small, **changed})


def test_a_document_has_the_next_bytes_as_targets(documents: Documents) -> None:
    sample = documents[3]
    assert len(sample["input_ids"]) == documents.lengths()[3] > 1
    assert torch.equal(sample["input_ids"][1:], sample["labels"][:-1])


@pytest.mark.parametrize("lengths", ["lognormal", "pareto"])
def test_lengths_have_the_mean_and_the_spread_asked_for(lengths: Any) -> None:
    params = Params(lengths=lengths, mean_length=200, length_cv=0.8, longest=100_000, token_budget=100_000)
    drawn = drawn_lengths(params, 50_000, np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(200, rel=0.03)
    assert drawn.std() / drawn.mean() == pytest.approx(0.8 if lengths == "lognormal" else 0.89, rel=0.2)


def test_functions_of_the_text_are_documents() -> None:
    found, held_out = load(Params.model_validate({**ENGINE.small, "lengths": "functions"}))
    text = bytes(found[1]["input_ids"].tolist())
    assert text.startswith((b"def ", b"class ", b"    def ", b"async def "))
    assert all(0 < len(held_out[one]["labels"]) <= SMALL.longest for one in range(len(held_out)))


def samples_of(plan: Plan) -> list[int]:
    return sorted(sample for step in plan for batch in step for sample in batch)


def test_every_plan_has_each_sample_once_and_a_batch_for_each_rank() -> None:
    for seed in range(cases(60)):
        rng = random.Random(seed)
        count, world = rng.randint(1, 70), rng.randint(1, 4)
        lengths = [rng.randint(1, 32) for _ in range(count)]
        order = rng.sample(range(count), count)
        limits = Limits(64, 32, rng.choice((None, 10)))
        plans = [
            fixed(order, world, 2),
            grouped(order, world, 2, lengths),
            oracle(order, world, limits, lengths, rng),
        ]
        for plan in plans:
            assert samples_of(plan) == list(range(count))
            assert all(len(step) == world for step in plan)
            assert all(padded_tokens(batch, lengths) <= 64 for step in plan for batch in step)


def test_the_oracle_pads_least_and_groups_pad_less_than_fixed_batches() -> None:
    rng = random.Random(1)
    lengths = [rng.randint(1, 32) for _ in range(400)]
    order = list(range(400))

    def padded(plan: Plan) -> int:
        return sum(padded_tokens(batch, lengths) for step in plan for batch in step)

    plain = padded(fixed(order, 2, 2))
    best = padded(oracle(order, 2, Limits(64, 32), lengths, rng))
    assert best < padded(grouped(order, 2, 2, lengths)) < plain


@pytest.mark.parametrize("batching", ["online", "fixed", "grouped", "oracle", "blind"])
@pytest.mark.parametrize("samples_per_step", [0, 24])
def test_a_step_has_the_gradient_of_its_samples_in_one_batch(
    documents: Documents, batching: Any, samples_per_step: int
) -> None:
    params = SMALL.model_copy(update={"batching": batching})
    batches = training.make_batches(documents, params, 0, 1)
    plain, model = training.make_model(params, CPU, 1)
    used: list[dict[str, torch.Tensor]] = []

    def watched() -> Any:
        for batch in training.endless(batches):
            assert batch["input_ids"].numel() <= params.token_budget
            used.extend(
                {name: one[row] for name, one in batch.items()} for row in range(len(batch["number"]))
            )
            yield batch

    samples = training.StepSamples(samples_per_step)
    update = training.add_gradients(model, batches, watched(), samples, CPU)
    assert update.samples == len(used) >= samples_per_step
    found = torch.cat([one.grad.flatten() for one in plain.parameters() if one.grad is not None])
    plain.zero_grad()
    training.mean_loss(plain, pad_batch(used), CPU).backward()  # type: ignore[no-untyped-call]
    expected = torch.cat([one.grad.flatten() for one in plain.parameters() if one.grad is not None])
    assert float((found - expected).abs().max()) < 1e-6


@pytest.mark.parametrize("batching", ["online", "fixed", "oracle"])
def test_all_kinds_of_batching_have_equal_samples_per_step(documents: Documents, batching: Any) -> None:
    params = SMALL.model_copy(update={"batching": batching})
    batches = training.make_batches(documents, params, 0, 1)
    _, model = training.make_model(params, CPU, 1)
    stream, samples, total, largest = training.endless(batches), training.StepSamples(24), 0, 0
    for step in range(1, 13):
        update = training.add_gradients(model, batches, stream, samples, CPU)
        assert batches.info is not None
        total, largest = total + update.samples, max(largest, batches.info.all_samples)
        # A step never has a batch more than its mean needs.
        assert 0 <= total - 24 * step < largest
        restored = training.StepSamples(24)
        restored.load_state_dict(samples.state_dict())
        samples = restored


def test_a_step_of_a_large_batch_is_followed_by_smaller_ones() -> None:
    samples, sizes = training.StepSamples(10), []
    for batches in ([25], [5], [4], [3, 10]):
        samples.start()
        sizes.append([samples.add(one) for one in batches])
    assert sizes == [[True], [True], [True], [False, True]]


def test_empty_documents_go_into_quarantine(documents: Documents) -> None:
    batches = training.make_batches(documents.with_empty(20), SMALL, 0, 1)
    used = [number for batch in batches for number in batch["number"].tolist()]
    assert sorted(used) == [one for one in range(SMALL.samples) if one % 20]
    assert batches.metrics()["quarantined_total"] == 3


def test_a_baseline_goes_on_where_its_checkpoint_was_saved(documents: Documents) -> None:
    params = SMALL.model_copy(update={"batching": "grouped"})

    def seen(batches: Any, count: int) -> list[Any]:
        stream = training.endless(batches)
        return [next(stream)["number"].tolist() for _ in range(count)]

    whole = seen(training.make_batches(documents, params, 1, 2), 40)
    first = training.make_batches(documents, params, 1, 2)
    seen(first, 13)
    rest = training.make_batches(documents, params, 1, 2)
    rest.load_state_dict(first.state_dict())
    assert seen(rest, 27) == whole[13:]


def test_options_of_the_method_are_rejected_for_a_baseline(documents: Documents) -> None:
    params = SMALL.model_copy(update={"batching": "fixed", "overlong_policy": "reject"})
    with pytest.raises(ParamsError, match="batching: fixed needs mode: join"):
        training.make_batches(documents, params, 0, 1)
