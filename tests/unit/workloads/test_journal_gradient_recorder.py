"""Tests of the data that is recorded at a step, and of the events that end a chain."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.unit.workloads.journals import Journal, Lion, Muon, Training, bits, raw
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from convoy_workloads.runtime.journal.allowed import Refused, refusal
from convoy_workloads.runtime.journal.gradient_recorder import ChainEnded, GradientRecorder
from convoy_workloads.runtime.journal.partition import partition, whole
from convoy_workloads.runtime.journal.replay import replay


def adamw(params: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=0.01)


def momentum(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.01, momentum=0.9, nesterov=True, foreach=True)


def test_recorded_gradients_are_those_that_the_step_consumes() -> None:
    live = Training(momentum)
    journal = Journal(live)
    live.backward()
    # Change the gradients directly before the step, as clipping does.
    for one in live.parameters.values():
        if one.grad is not None:
            one.grad.mul_(0.25)
    wanted = {name: raw(one.grad) for name, one in live.parameters.items() if one.grad is not None}
    live.optimizer.step()
    journal.seal()
    # This kernel changes the gradients, so they must have been copied before the step.
    assert raw(live.parameters["one.bias"].grad) != wanted["one.bias"]  # type: ignore[arg-type]
    (step,) = journal.segments[0].steps
    found = {}
    for piece in step.pieces:
        into = torch.empty(piece.share.sizes)
        journal.segments[0].gradient(piece, into)
        found[piece.share.name] = raw(into)
    assert found == wanted
    assert {share.name for share in journal.segments[0].head.shares} - set(found) == {
        "unused",
        "other.weight",
        "other.bias",
    }
    assert [group["lr"] for group in step.groups] == [0.01, 0.01]


def test_zero_rows_are_not_stored_but_restored() -> None:
    live = Training(adamw)
    twin = live.twin(adamw)
    journal = Journal(live)
    live.step()
    journal.next()
    assert live.net.embed.weight.grad is not None
    live.net.embed.weight.grad = None
    live.optimizer.zero_grad()
    live.backward()
    assert live.net.embed.weight.grad is not None
    live.net.embed.weight.grad[7] = -0.0
    live.net.embed.weight.grad[9, 3] = torch.nan
    live.optimizer.step()
    journal.seal()
    counts = [
        next(piece for piece in one.steps[0].pieces if piece.share.name == "embed.weight")
        for one in journal.segments
    ]
    assert [piece.count for piece in counts] == [4, 6]
    assert counts[0].length == 64 + 4 * 8 * 4
    # Rows with a negative zero or a NaN are stored, because they do not count as zero.
    found = torch.ones(300, 8)
    journal.segments[1].gradient(counts[1], found)
    assert raw(found[7]) == raw(torch.full((8,), -0.0)) and bool(found[9, 3].isnan())
    replay(twin.optimizer, twin.parameters, journal.segments)
    assert bits(twin) == bits(live)


def test_a_step_uses_at_most_the_declared_bytes() -> None:
    live = Training(adamw)
    journal = Journal(live)
    (recorder,) = journal.recorders
    live.net.embed.weight.register_hook(lambda grad: grad + 1)  # type: ignore[no-untyped-call]
    for _ in range(3):
        need, left = recorder.step_bytes, recorder.bytes_left
        live.step()
        assert 0 < left - recorder.bytes_left <= need
    # The bound is tight: the index entry of one gradient is small compared with the gradient.
    assert need < 1.3 * sum(4 * one.numel() for one in live.parameters.values()) + 2000


def test_a_segment_is_filled_as_long_as_one_more_step_fits() -> None:
    live = Training(adamw)
    twin = live.twin(adamw)
    journal = Journal(live, room=40_000)
    (recorder,) = journal.recorders
    for _ in range(40):
        if recorder.bytes_left < recorder.step_bytes:
            journal.next()
        live.step()
    journal.seal()
    assert len(journal.segments) > 2 and recorder.reason == ""
    assert replay(twin.optimizer, twin.parameters, journal.segments) == 40
    assert bits(twin) == bits(live)


def edit(training: Training) -> None:
    with torch.no_grad():
        training.net.one.weight[0, 0] += 1


def frozen(training: Training) -> None:
    training.net.two.weight.requires_grad_(False)


def another_group(training: Training) -> None:
    training.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})


def shorter_group(training: Training) -> None:
    training.optimizer.param_groups[0]["params"].pop()


def edit_state(training: Training) -> None:
    training.optimizer.state[training.net.one.weight]["exp_avg"].zero_()


def reloaded(training: Training) -> None:
    training.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))


def another_kernel(training: Training) -> None:
    for group in training.optimizer.param_groups:
        group["foreach"] = True


def hook(training: Training) -> None:
    training.optimizer.register_step_post_hook(lambda *_: None)


ENDS: dict[str, tuple[Callable[[Training], None], str]] = {
    "a weight is edited": (edit, "outside the optimizer"),
    "a state is edited": (edit_state, "outside the optimizer"),
    "a state is loaded": (reloaded, "outside the optimizer"),
    "a parameter is frozen": (frozen, "set of trained parameters"),
    "a group more": (another_group, "groups, or the set"),
    "a parameter less": (shorter_group, "groups, or the set"),
    "another kernel": (another_kernel, r"groups was \('single', 'single'\), is \('foreach', 'foreach'\)"),
    "a hook of the program": (
        hook,
        "a step hook of tests.unit.workloads.test_journal_gradient_recorder may change",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_change_that_cannot_be_replayed_ends_the_chain(name: str) -> None:
    change, message = ENDS[name]
    live = Training(adamw)
    journal = Journal(live)
    (recorder,) = journal.recorders
    live.step()
    journal.next()
    live.step()
    assert recorder.reason == ""
    change(live)
    live.step()
    with pytest.raises(ChainEnded, match=message):
        recorder.seal({}, {})
    with pytest.raises(ChainEnded, match=message):
        recorder.open_segment(memoryview(bytearray(1000)))
    live.step()
    # The chain stays ended until the next full save.
    if name != "a hook of the program":
        twin = live.twin(adamw) if len(live.optimizer.param_groups) == 2 and "less" not in name else None
        recorder.start("base 2")
        target = bytearray(60_000)
        recorder.open_segment(memoryview(target))
        live.step()
        size = recorder.seal({}, {})
        if twin is not None:
            journal.bytes = [target[:size]]
            replay(twin.optimizer, twin.parameters, journal.segments)
            assert bits(twin) == bits(live)


@pytest.mark.parametrize("change", [edit, edit_state], ids=["weight", "state"])
def test_an_edit_after_the_last_step_is_found_when_the_segment_is_closed(
    change: Callable[[Training], None],
) -> None:
    live = Training(adamw)
    journal = Journal(live)
    live.step()
    change(live)
    with pytest.raises(ChainEnded, match="outside the optimizer"):
        journal.seal()


def test_a_sparse_gradient_ends_the_chain() -> None:
    live = Training(lambda params: torch.optim.SGD(params, lr=0.1))
    live.optimizer.param_groups[0]["weight_decay"] = 0.0
    journal = Journal(live)
    live.backward()
    live.net.one.weight.grad = torch.ones(19, 8).to_sparse()
    live.optimizer.step()
    assert journal.recorders[0].reason == "the gradient of one.weight is sparse"


def test_a_closure_ends_the_chain() -> None:
    live = Training(adamw)
    journal = Journal(live)
    live.optimizer.step(lambda: 0.0)
    assert "closure" in journal.recorders[0].reason


def test_a_full_segment_ends_the_chain_but_not_the_training() -> None:
    live = Training(adamw)
    other = Training(adamw)
    journal = Journal(live, room=5000)
    live.steps(3)
    other.steps(3)
    assert "the step cannot be recorded: " in journal.recorders[0].reason
    assert bits(live) == bits(other)


def test_a_step_without_an_open_segment_ends_the_chain() -> None:
    live = Training(adamw)
    journal = Journal(live)
    live.step()
    journal.seal()
    live.step()
    assert journal.recorders[0].reason == "a step was made while no segment was open"


def test_a_step_that_fails_ends_the_chain() -> None:
    live = Training(adamw)
    journal = Journal(live)
    live.step()
    live.optimizer.param_groups[1]["lr"] = "much"
    with pytest.raises(TypeError):
        live.optimizer.step()
    with pytest.raises(ChainEnded, match="interrupted before it was finished"):
        journal.seal()


def test_steps_are_not_recorded_while_the_recorder_is_paused() -> None:
    live = Training(adamw)
    twin = live.twin(adamw)
    journal = Journal(live)
    live.step()
    before = {name: one.detach().clone() for name, one in live.parameters.items()}
    with journal.recorders[0].paused():
        for group in live.optimizer.param_groups:
            group["lr"] = 0.0
        live.optimizer.zero_grad()
        live.optimizer.step()
        with torch.no_grad():
            for name, one in live.parameters.items():
                one.copy_(before[name])
    live.step()
    journal.seal()
    assert replay(twin.optimizer, twin.parameters, journal.segments) == 2
    assert bits(twin) == bits(live)


def test_other_tensors_are_stored_unchanged_in_the_segment() -> None:
    live = Training(adamw)
    journal = Journal(live)
    (recorder,) = journal.recorders
    live.step()
    mean = torch.randn(5, dtype=torch.bfloat16)
    recorder.save("net.mean", ((2,), (5,)), (9,), mean)
    recorder.save("net.count", ((), ()), (), torch.tensor(7))
    live.step()
    journal.seal()
    (segment,) = journal.segments
    assert [(part.name, part.box, part.shape) for part in segment.parts] == [
        ("net.mean", ((2,), (5,)), (9,)),
        ("net.count", ((), ()), ()),
    ]
    assert raw(segment.tensor(segment.parts[0])) == raw(mean)
    assert int(segment.tensor(segment.parts[1])) == 7
    assert len(segment.steps) == 2 and segment.values == {"a": "1"} and segment.facts == {"step": 2}


def test_a_closed_recorder_records_no_steps() -> None:
    live = Training(adamw)
    journal = Journal(live)
    journal.recorders[0].close()
    live.step()
    assert journal.recorders[0].steps == 0
    assert not live.optimizer._optimizer_step_pre_hooks


def one(kind: Any = torch.optim.AdamW, dtype: torch.dtype = torch.float32, **more: Any) -> Any:
    return kind([nn.Parameter(torch.zeros(3, dtype=dtype))], **{"lr": 0.1, **more})


class Mine(torch.optim.AdamW):
    pass


class Wrapped(torch.Tensor):
    pass


def replaced() -> torch.optim.Optimizer:
    found = one()
    found.step = lambda: None
    return found  # type: ignore[no-any-return]


def with_gaps() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(4, 4)[:, :2].requires_grad_()], lr=0.1)


def wrapped() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(3).as_subclass(Wrapped).requires_grad_()], lr=0.1)


REFUSED: dict[str, tuple[Callable[[], torch.optim.Optimizer], str]] = {
    "derived": (lambda: one(Mine), "Mine is not known"),
    "muon": (lambda: one(Muon), "Muon is not known"),
    "lion": (lambda: one(Lion), "Lion is not known"),
    "of torch": (lambda: one(torch.optim.RMSprop), "RMSprop is not known"),
    "differentiable": (lambda: one(differentiable=True), "group 0 is differentiable"),
    "capturable": (lambda: one(capturable=True), "group 0 is capturable"),
    "tensor": (lambda: one(lr=torch.tensor(0.1)), "lr of group 0 is a tensor"),
    "complex": (lambda: one(dtype=torch.complex64), "a parameter of group 0 is torch.complex64"),
    "step": (replaced, "its step method is replaced"),
    "gaps": (with_gaps, "overlaps itself or has gaps"),
    "subclass of tensors": (wrapped, "a parameter of group 0 is a Wrapped"),
    "16 bits": (lambda: one(torch.optim.SGD, torch.float16, momentum=0.9, fused=True), "arbitrary momentum"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_optimizer_without_reproducible_steps_is_rejected(name: str) -> None:
    make, message = REFUSED[name]
    optimizer = make()
    assert message in refusal(optimizer)
    (parameter,) = optimizer.param_groups[0]["params"]
    with pytest.raises(Refused):
        GradientRecorder(optimizer, [whole("p", parameter)])
    assert not optimizer._optimizer_step_pre_hooks


def test_a_parameter_outside_the_optimizer_is_rejected() -> None:
    with pytest.raises(Refused, match="buffer is not a parameter of the optimizer"):
        GradientRecorder(one(), [whole("buffer", torch.zeros(3))])


def test_an_option_without_an_exact_encoding_is_rejected() -> None:
    optimizer = one()
    optimizer.param_groups[0]["note"] = object()
    assert "[0].note is a builtins.object" in refusal(optimizer)


def test_a_foreign_global_optimizer_hook_is_rejected() -> None:
    handle = register_optimizer_step_pre_hook(lambda *_: None)
    try:
        assert "a step hook of" in refusal(one())
    finally:
        handle.remove()
    assert refusal(one()) == ""


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_supported_torch_optimizers_are_allowed(kind: Any) -> None:
    assert refusal(one(kind, maximize=True)) == ""
    assert refusal(one(Lion), (Lion,)) == ""


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_partitions_cover_all_parameters_and_are_nearly_equal(world: int) -> None:
    parameters = {
        "embed": torch.zeros(1000, 8),
        **{f"w{number}": torch.zeros(30, 40) for number in range(12)},
        "bias": torch.zeros(40),
        "scale": torch.zeros(()),
        "none": torch.zeros(0, 3),
    }
    parts = [partition(parameters, rank, world) for rank in range(world)]
    cover = {name: torch.zeros_like(value) for name, value in parameters.items()}
    for part in parts:
        for owned in part:
            box = cover[owned.name]
            for dimension, (start, size) in enumerate(zip(*owned.box, strict=True)):
                box = box.narrow(dimension, start, size)
            box += 1
    assert all(bool((value == 1).all()) for value in cover.values())
    sizes = [sum(torch.Size(owned.box[1]).numel() for owned in part) for part in parts]
    assert max(sizes) - min(sizes) <= 1600
    cut = {owned.name for part in parts for owned in part if owned.box[1] != tuple(owned.parameter.shape)}
    assert cut == (set() if world < 3 else {"embed"})
