"""Tests of the replay of a sample, which finds errors that the rules cannot detect, and of the chain after
a difference.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.workloads.journals import Journal, Lion, Muon, Training, bits

from convoy_workloads.runtime.hooks import StepHook
from convoy_workloads.runtime.journal import guard
from convoy_workloads.runtime.journal.guard import (
    Chain,
    bits_equal,
    copy_sample,
    find_difference,
    pick_sample,
)
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.telemetry.step_recorder import StepRecorder


def adamw(params: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=0.01, fused=True)


def momentum(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.01, momentum=0.9)


class Global(Lion):
    """An optimizer that is declared to update each element independently, but depends on the number of
    parameters.
    """

    def step(self, closure: Any = None) -> Any:
        count = sum(len(group["params"]) for group in self.param_groups)
        for group in self.param_groups:
            group["weight_decay"] = 1.0 / count
        self.update()


class Private(Lion):
    """An optimizer with its own attributes."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self._rate = 0.5

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["lr"] *= self._rate
        self.update()


NAMES = ["embed.weight", "one.bias", "two.weight"]


@pytest.mark.parametrize("make", [adamw, momentum, Lion, Private])
@pytest.mark.parametrize("before", [0, 2])
def test_a_replayed_sample_is_exact(make: Any, before: int) -> None:
    live = Training(make)
    torch.optim.lr_scheduler.ConstantLR(live.optimizer)
    live.steps(before)
    sample = copy_sample(live.optimizer, live.parameters, NAMES)
    journal = Journal(live, elementwise=(Lion, Private))
    live.steps(4)
    journal.next()
    live.steps(3)
    journal.seal()
    before_ = bits(live)
    assert find_difference(sample, live.optimizer, live.parameters, journal.segments) == ""
    assert bits(live) == before_, "the live tensors are only read"


def test_a_weight_edit_without_a_version_increment_is_detected() -> None:
    live = Training(adamw)
    sample = copy_sample(live.optimizer, live.parameters, NAMES)
    journal = Journal(live)
    live.steps(2)
    live.net.two.weight.data[0, 0] = 0.5
    live.steps(2)
    journal.seal()
    assert journal.recorders[0].reason == ""
    found = find_difference(sample, live.optimizer, live.parameters, journal.segments)
    assert found == "two.weight"
    # A sample without the changed parameter cannot find the change. So samples rotate over all parameters.
    other = copy_sample(live.optimizer, live.parameters, ["one.bias"])
    assert find_difference(other, live.optimizer, live.parameters, journal.segments) != "two.weight"


@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq", "step"])
def test_one_changed_bit_of_a_state_is_detected(name: str) -> None:
    live = Training(adamw)
    sample = copy_sample(live.optimizer, live.parameters, NAMES)
    journal = Journal(live)
    live.steps(2)
    journal.seal()
    state = live.optimizer.state[live.net.one.bias][name]
    state.view(-1).view(torch.int32)[0] ^= 1
    assert find_difference(sample, live.optimizer, live.parameters, journal.segments) == f"one.bias.{name}"


def test_an_optimizer_wrongly_declared_elementwise_is_detected() -> None:
    live = Training(Global)
    sample = copy_sample(live.optimizer, live.parameters, NAMES)
    journal = Journal(live, elementwise=(Global,))
    live.steps(2)
    journal.seal()
    assert find_difference(sample, live.optimizer, live.parameters, journal.segments) == "embed.weight"


def test_an_optimizer_whose_steps_cannot_be_repeated_is_no_error() -> None:
    class Odd(Lion):
        def __setstate__(self, state: dict[str, Any]) -> None:
            super().__setstate__(state)
            self.state = None  # type: ignore[assignment]

    live = Training(Odd)
    sample = copy_sample(live.optimizer, live.parameters, NAMES)
    journal = Journal(live, elementwise=(Odd,))
    live.steps(1)
    journal.seal()
    assert "cannot be replayed" in find_difference(sample, live.optimizer, live.parameters, journal.segments)


def test_the_check_does_not_call_global_optimizer_hooks() -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    live = Training(momentum)
    sample = copy_sample(live.optimizer, live.parameters, NAMES)
    journal = Journal(live)
    live.steps(3)
    journal.seal()
    counting = StepHook(RankContext(), StepRecorder())
    handle = register_optimizer_step_post_hook(counting)
    try:
        assert find_difference(sample, live.optimizer, live.parameters, journal.segments) == ""
        assert counting._meter.step == 0
    finally:
        handle.remove()


def test_one_rank_checks_its_whole_journal_without_its_peers() -> None:
    live = Training(adamw)
    journal = Journal(live, world=3)
    own = journal.recorders[1]._owned
    names = [one.name for one in own if one.box[1] == tuple(one.parameter.shape)]
    assert names and "embed.weight" not in names
    samples = (
        copy_sample(live.optimizer, live.parameters, names),
        copy_sample(live.optimizer, live.parameters, NAMES),
    )
    live.steps(3)
    journal.seal()
    mine = [one for one in journal.segments if one.head.rank == 1]
    assert find_difference(samples[0], live.optimizer, live.parameters, mine) == ""
    assert "completely" in find_difference(samples[1], live.optimizer, live.parameters, mine)
    assert find_difference(samples[0], live.optimizer, live.parameters, []).startswith("the journal: ")


def test_the_check_compares_bits_not_values() -> None:
    nan = torch.tensor([torch.nan, 1.0])
    assert bits_equal(nan, nan.clone())
    assert not bits_equal(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not bits_equal(torch.tensor([0.0]), torch.tensor([0.0], dtype=torch.float64))
    assert not bits_equal(torch.zeros(2), torch.zeros(1, 2))
    assert bits_equal(torch.zeros(2, 3).t(), torch.zeros(3, 2))
    assert (
        bits_equal(3, 3)
        and not bits_equal(3, 3.0)
        and not bits_equal(None, torch.zeros(1))
        and bits_equal(None, None)
    )


def test_every_parameter_is_sampled_in_turn() -> None:
    sizes = {"a": 5, "b": 90, "c": 4, "d": 3, "e": 8}
    turns = [pick_sample(sizes, 10, turn) for turn in range(5)]
    assert turns == [["a"], ["b"], ["c", "d"], ["e"], ["a"]]
    assert pick_sample({}, 10, 3) == []


def test_a_chain_lasts_from_full_save_to_full_save() -> None:
    chain = Chain()
    assert not chain.usable and chain.reason == "no full save yet"
    chain = chain.after_full_save("b1")
    assert chain.usable and chain.reason == ""
    chain = chain.after_segment("b1", 0, 3).after_segment("b1", 3, 1)
    assert (chain.base, chain.steps) == ("b1", 4)
    ended = chain.after_end("no room")
    assert not ended.usable and ended.reason == "no room"
    assert ended.after_segment("b1", 4, 1) == ended and ended.after_end("else") == ended
    assert ended.after_full_save("b2") == Chain("b2", 0, "")


@pytest.mark.parametrize("base, first", [("b1", 2), ("b1", 4), ("b0", 3)])
def test_a_segment_that_does_not_follow_ends_the_chain(base: str, first: int) -> None:
    chain = Chain().after_full_save("b1").after_segment("b1", 0, 3).after_segment(base, first, 1)
    assert not chain.usable and "a segment starts" in chain.reason


def test_each_difference_increases_the_number_of_full_saves() -> None:
    chain = Chain().after_full_save("b1").after_difference("w")
    counts: list[int] = []
    for _ in range(3):
        assert chain.reason == "inexact: the journal does not reproduce w" and not chain.usable
        count = 0
        while not chain.usable:
            chain = chain.after_full_save(f"b{count}")
            count += 1
        counts.append(count - 1)
        chain = chain.after_difference("w")
    assert counts == [1, 3, 7]


def test_muon_is_rejected_before_any_check() -> None:
    with pytest.raises(Exception, match="Muon is not known to work element by element"):
        Journal(Training(Muon))
    assert guard.Chain().differences == 0
