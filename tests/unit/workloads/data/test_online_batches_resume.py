"""Tests of OnlineBatches that continue from a checkpoint, and of the scaling of losses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.unit.workloads.data.rank_threads import Meeting, install, run_ranks
from tests.unit.workloads.data.test_online_batches import MODULE, Texts, lengths_of
from torch import nn
from torch.nn import functional as F

from convoy.data import OnlineBatches, OnlineOptions
from convoy_workloads.data.loss_scale import scale_outputs
from convoy_workloads.runtime.errors import DataError

OPTIONS = OnlineOptions(tokens=64, window=8, slots=3, seed=3)
"""Few slots, so that groups return to the pool."""
COUNT = 61


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, MODULE)


def with_gaps() -> list[int]:
    return [0 if number % 13 == 5 else length for number, length in enumerate(lengths_of(COUNT))]


def run_steps(steps: int | None, states: list[Any] | None, data: Any = None) -> Any:
    """Return a function that runs a rank for some steps, or to the end of the epoch, from its state. The
    result has the samples of each step and the state afterwards.
    """

    def rank_main(rank: int, meeting: Meeting) -> tuple[list[tuple[int, ...]], Any, Any]:
        batches, found = OnlineBatches(data or Texts(with_gaps()), OPTIONS), []
        if states is not None:
            batches.load_state_dict(states[rank])
        if steps != 0:
            for _ in batches:
                assert batches.info is not None
                found.append(batches.info.samples)
                if len(found) == steps:
                    break
        return found, batches.state_dict(), batches.metrics() | {"align_wait_seconds": 0}

    return rank_main


@pytest.mark.parametrize("world", [1, 3])
def test_a_resumed_run_has_the_same_batches_and_counts_as_an_undisturbed_one(world: int) -> None:
    whole: Any = run_ranks(world, run_steps(None, None))
    count = len(whole[0][0])
    for step in {0, 1, 2, count // 2, count - 1, count}:
        first: Any = run_ranks(world, run_steps(step, None))
        rest: Any = run_ranks(world, run_steps(None if step < count else 0, [one[1] for one in first]))
        for rank in range(world):
            assert first[rank][0] + rest[rank][0] == whole[rank][0]
            if step < count:
                assert rest[rank][2] == whole[rank][2]


@pytest.mark.parametrize(("worlds", "steps"), [((3, 2, 3), (2, 3)), ((1, 3, 2), (5, 2)), ((2, 1, 4), (4, 6))])
def test_other_numbers_of_ranks_use_the_rest_of_the_samples_once(
    worlds: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    states, used = None, list[int]()
    for world, stop in zip(worlds, (*steps, None), strict=True):
        # As runtime/state.py does: with another number of ranks, each gets the state of rank 0.
        ranks: Any = run_ranks(world, run_steps(stop, states and [states[0]] * world))
        used += [sample for one in ranks for step in one[0] for sample in step]
        states = [one[1] for one in ranks]
    assert sorted(used) == [number for number, length in enumerate(with_gaps()) if length]
    assert {one[2]["quarantined_total"] for one in ranks} == {COUNT - len(used)}


def test_the_quarantine_is_complete_and_nothing_left_out_after_other_numbers_of_ranks() -> None:
    states: list[Any] | None = None
    for world, stop in ((2, 3), (1, 2), (3, 1), (3, 2)):

        def rank_main(rank: int, _meeting: Meeting, stop: int = stop, states: Any = states) -> Any:
            batches = OnlineBatches(Texts(with_gaps()), OPTIONS)
            if states is not None:
                batches.load_state_dict(states[rank if len(states) == batches.world else 0])
            for _ in zip(range(stop), batches, strict=False):
                pass
            return batches.state_dict()

        states = run_ranks(world, rank_main)

    def last(rank: int, _meeting: Meeting) -> Any:
        batches = OnlineBatches(Texts(with_gaps()), OPTIONS)
        batches.load_state_dict(states[0] if states else {})
        for _ in batches:
            pass
        return batches.left_out, sorted(one.sample for one in batches.quarantined)

    empty = [number for number, length in enumerate(with_gaps()) if not length]
    assert len(empty) > 2 and run_ranks(2, last) == [(0, empty)] * 2


def test_samples_with_other_lengths_after_a_restart_are_a_data_error() -> None:
    ranks: Any = run_ranks(2, run_steps(1, None))
    data = Texts([length and length + 1 for length in with_gaps()])
    errors = run_ranks(2, run_steps(None, [one[1] for one in ranks], data))
    assert all(isinstance(one, DataError) and "must not depend on chance" in str(one) for one in errors)


def test_the_state_of_another_dataset_is_a_data_error() -> None:
    ranks: Any = run_ranks(1, run_steps(1, None))
    (error,) = run_ranks(1, run_steps(None, [ranks[0][1]], Texts([3, 4])))
    assert isinstance(error, DataError) and "61 samples, but this one has 2" in str(error)


# Losses.


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(COUNT + 1, 8), nn.Tanh(), nn.Linear(8, COUNT + 1)).double()


def mean_loss(network: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return the mean loss over the tokens of a batch that are no padding."""
    logits = network(batch)
    targets = torch.where(batch == 0, -100, (batch * 7) % (COUNT + 1))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def gradient(network: nn.Module) -> torch.Tensor:
    return torch.cat([one.grad.flatten() for one in network.parameters() if one.grad is not None])


@pytest.mark.parametrize(("scaling", "exact"), [("exact", True), ("approx", False), ("none", False)], ids=str)
def test_the_gradient_of_a_step_is_that_of_its_samples_in_one_unpadded_batch(
    scaling: Any, exact: bool
) -> None:
    lengths, initial = lengths_of(COUNT), model()
    options = OnlineOptions(tokens=64, window=8, loss_scaling=scaling)

    def rank_main(_rank: int, _meeting: Meeting) -> list[tuple[tuple[int, ...], torch.Tensor]]:
        network, found = copy.deepcopy(initial), []  # The ranks are threads: they share torch's seed.
        batches = OnlineBatches(Texts(lengths), options)
        batches.attach(network)
        for batch in batches:
            network.zero_grad()
            mean_loss(network, batch).backward()
            assert batches.info is not None
            found.append((batches.info.samples, gradient(network)))
        return found

    ranks: Any = run_ranks(3, rank_main)
    errors = []
    for step in zip(*ranks, strict=True):
        averaged = torch.stack([grad for _, grad in step]).mean(0)  # as DistributedDataParallel does
        network = copy.deepcopy(initial)
        together = [torch.full((lengths[one],), one + 1) for samples, _ in step for one in samples]
        mean_loss(network, torch.cat(together)[None]).backward()
        errors.append(float((averaged - gradient(network)).abs().max()))
    assert (max(errors) < 1e-12) is exact


def test_outputs_keep_their_structure_and_values() -> None:
    leaf = torch.ones(2, requires_grad=True)
    outputs = {"logits": leaf * 2, "rest": (leaf * 3, None, "text")}
    scaled = scale_outputs(outputs, 0.5)
    assert torch.equal(scaled["logits"], outputs["logits"]) and scaled["rest"][1:] == (None, "text")
    (scaled["logits"] + scaled["rest"][0]).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [2.5, 2.5]
    assert scale_outputs(outputs, 1.0) is outputs
