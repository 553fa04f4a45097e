"""Samples, samplers and outputs as datasets and models of users have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.unit.workloads.data.test_online_batches import OPTIONS, Texts, lengths_of
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from convoy.data import AdaptiveBuckets, BucketOptions, OnlineBatches, OnlineOptions, SampleFunctions
from convoy_workloads.data.intake import Quarantined, SampleError, length_of, loss_terms
from convoy_workloads.data.loss_scale import scale_outputs
from convoy_workloads.data.sample_stream import source_of
from convoy_workloads.runtime.errors import DataError


class Half(DistributedSampler[int]):
    """A sampler with an order of its own."""


class Buckets(BatchSampler):
    """Batches of a user."""


DATA = Texts(lengths_of(12))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(DATA, sampler=RandomSampler(DATA, num_samples=5)),
        DataLoader(DATA, sampler=Half(DATA, 1, 0)),
        DataLoader(DATA, batch_sampler=Buckets(SequentialSampler(DATA), 2, False)),
        DataLoader(DATA, batch_sampler=BatchSampler(Half(DATA, 1, 0), 2, False)),
    ],
)
def test_a_sampler_that_may_leave_samples_out_is_a_type_error(loader: Any) -> None:
    with pytest.raises(TypeError, match="not supported: pass the dataset"):
        OnlineBatches(loader, OPTIONS)


def test_a_plain_batch_sampler_keeps_its_order_and_the_collate_function() -> None:
    orders = []
    for sampler in (RandomSampler(DATA), SequentialSampler(DATA)):
        loader: Any = DataLoader(DATA, batch_sampler=BatchSampler(sampler, 3, False), collate_fn=len)
        batches, DATA.read[:] = OnlineBatches(loader, OPTIONS), []
        assert all(isinstance(batch, int) for batch in batches)
        orders.append(list(DATA.read))
    assert orders[0] != orders[1] == sorted(orders[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 2, "drop_last": True},
        {"batch_sampler": BatchSampler(SequentialSampler(DATA), 2, True)},
        {"num_workers": 1, "persistent_workers": True},
    ],
)
def test_settings_of_a_data_loader_that_cannot_be_kept_are_an_error(settings: dict[str, Any]) -> None:
    name = "persistent_workers" if "num_workers" in settings else "drop_last"
    with pytest.raises(ValueError, match=f"{name}: .*: pass a DataLoader without {name}"):
        OnlineBatches(DataLoader(DATA, **settings), OPTIONS)


def test_workers_read_as_far_ahead_as_the_data_loader_says() -> None:
    loader = DataLoader(DATA, batch_size=4, num_workers=2, prefetch_factor=3)
    source, _, _ = source_of(loader, 0, 1.0)
    assert source.settings["prefetch_factor"] == 12
    assert "prefetch_factor" not in source_of(DataLoader(DATA, num_workers=2), 0, 1.0)[0].settings


class Pair(NamedTuple):
    first: Any
    second: Any


class Page:
    """A part of a batch that says whether it is in page-locked memory."""

    pinned = False

    def pin_memory(self) -> Page:
        found = Page()
        found.pinned = True
        return found


def test_batches_of_a_data_loader_with_pin_memory_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(DATA, collate_fn=lambda _: {"ids": [Pair(Page(), "text")]}, pin_memory=True)
    for present in (True, False):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda present=present: present)
        (pair,) = next(iter(OnlineBatches(loader, OPTIONS)))["ids"]
        assert isinstance(pair, Pair) and pair.first.pinned is present and pair.second == "text"


class Reads:
    """A source that records the seeds of its workers."""

    def __init__(self) -> None:
        self.seeds = list[int]()

    def read(self, order: Any, ahead: int, seed: int) -> Iterator[torch.Tensor]:
        self.seeds.append(seed)
        return iter(())


def test_workers_draw_other_random_numbers_in_each_epoch_on_each_rank_and_after_a_restart() -> None:
    batches, source = OnlineBatches(DATA, OPTIONS), Reads()
    batches._source = source  # type: ignore[assignment]
    for rank in (0, 1):
        batches.rank = rank
        for epoch in (0, 1):
            for order in ([5, 7], [9]):
                batches._read(epoch, order)
    assert len(set(source.seeds)) == len(source.seeds) == 8


def test_the_length_of_a_sample_with_a_wrong_form_is_not_guessed() -> None:
    assert length_of({"input_ids": [1, 2, 3]}) == length_of([1, 2, 3]) == 3
    assert length_of(None) == 0
    with pytest.raises(SampleError, match=r"input_ids has the shape \[1, 9\]"):
        length_of({"input_ids": torch.ones(1, 9)})
    with pytest.raises(SampleError, match="a list of other things than tokens is ambiguous"):
        length_of([torch.ones(9), 1])


def test_loss_terms_are_the_labels_that_count() -> None:
    ids = torch.ones(4)
    for sample, terms in (
        (ids, 4),
        ({"input_ids": ids}, 4),
        ({"input_ids": ids, "labels": [-100, -100, 5, 6]}, 2),
        ({"input_ids": ids, "labels": torch.full((4,), -100)}, 0),
        ({"input_ids": ids, "labels": torch.ones(7)}, 4),
        ({"input_ids": ids, "labels": 1}, 1),
        ((ids, torch.tensor(3)), 1),
        ((ids, torch.tensor([-100, 1, 1, 1])), 3),
    ):
        assert loss_terms(sample, 4) == terms


def test_samples_that_were_not_read_or_have_no_loss_go_into_quarantine() -> None:
    ids = torch.ones(4, dtype=torch.long)
    data = [{"input_ids": ids, "labels": ids}, None, {"input_ids": ids, "labels": ids * -100}]
    batches = OnlineBatches(data, OnlineOptions(tokens=64, shuffle=False))
    assert len(list(batches)) == 1
    assert batches.quarantined == [Quarantined(1, "empty", 0), Quarantined(2, "no loss terms", 4)]


@pytest.mark.parametrize("number", [np.int64(3), torch.tensor(3)])
def test_lengths_and_weights_may_be_integers_of_numpy_and_torch(number: Any) -> None:
    functions = SampleFunctions(length=lambda _: number, weight=lambda _: number)
    batches = OnlineBatches(Texts([3] * 4), OPTIONS, functions)
    list(batches)
    assert batches.info is not None and type(batches.info.weight) is int
    buckets = AdaptiveBuckets(Texts([3] * 4), lambda _: number, BucketOptions(memory_tokens=64))
    assert json.loads(buckets.state_dict()["state"])["kinds"] == [3]


def test_a_part_that_cannot_be_padded_is_named() -> None:
    with pytest.raises(TypeError, match="a sample's part 'text' is no tensor"):
        list(OnlineBatches([{"input_ids": [1, 2], "text": "hi"}], OPTIONS))


@dataclass
class Output:
    loss: torch.Tensor


def test_an_output_whose_tensors_cannot_be_found_is_an_error() -> None:
    output = Output(torch.ones((), requires_grad=True))
    with pytest.raises(TypeError, match="output of type Output shows no tensor"):
        scale_outputs(output, 0.5)
    assert scale_outputs(output, 1.0) is output
    with torch.no_grad():
        assert scale_outputs(output, 0.5) is output


def test_a_filler_counts_nothing_also_if_its_loss_is_not_finite() -> None:
    leaf = torch.zeros(1, requires_grad=True)
    (scale_outputs(leaf * 1, 0.0) / 0).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [0.0]


def test_a_model_that_is_attached_twice_is_scaled_once() -> None:
    model, batches = torch.nn.Linear(1, 1), OnlineBatches(DATA, OPTIONS)
    batches.attach(model)
    batches.attach(model)
    assert len(model._forward_hooks) == 1


def test_a_state_that_does_not_fit_is_a_data_error() -> None:
    online, buckets = (
        OnlineBatches(DATA, OPTIONS),
        AdaptiveBuckets(DATA, lambda _: 8, BucketOptions(memory_tokens=64)),
    )
    for loader, state in (
        (online, {}),
        (online, {"state": "{"}),
        (online, buckets.state_dict()),
        (buckets, online.state_dict()),
        (buckets, {"state": None}),
    ):
        with pytest.raises(DataError, match=f"is not one of {type(loader).__name__}"):
            loader.load_state_dict(state)  # type: ignore[attr-defined]


@pytest.mark.parametrize("changed", [{"seed": 4}, {"shuffle": False}])
def test_another_order_in_the_middle_of_an_epoch_is_a_data_error(changed: dict[str, Any]) -> None:
    options: dict[str, Any] = {"tokens": 16, "window": 4, "longest": 16}
    before, after = (
        OnlineBatches(DATA, OnlineOptions(**options)),
        OnlineBatches(DATA, OnlineOptions(**options, **changed)),
    )
    after.load_state_dict(before.state_dict())
    next(iter(before))
    with pytest.raises(DataError, match="in the middle of an epoch with seed=0 and shuffle=True, but this"):
        after.load_state_dict(before.state_dict())


def test_adaptive_buckets_need_numbered_samples_and_ignore_unusable_times() -> None:
    with pytest.raises(TypeError, match="DataLoader has no numbered samples"):
        AdaptiveBuckets(DataLoader(DATA), lambda _: 8, BucketOptions(memory_tokens=64))
    options = BucketOptions(memory_tokens=64, window=8, refit_steps=1)
    batches = AdaptiveBuckets(Texts([8] * 40), lambda _: 8, options)
    for _ in batches:
        for seconds in (float("inf"), float("nan"), 0.0):
            batches.record(seconds)
    assert batches.table.version == 0
