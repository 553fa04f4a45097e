"""Tests of the replay: it reproduces the saved state bit for bit, or it is refused before anything is
changed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.unit.workloads.journals import Journal, Lion, Make, Training, bits, raw
from torch.optim.optimizer import register_optimizer_step_post_hook

from convoy_workloads.runtime.hooks import StepHook
from convoy_workloads.runtime.journal.allowed import Refused
from convoy_workloads.runtime.journal.kernel import Kernel
from convoy_workloads.runtime.journal.replay import replay
from convoy_workloads.runtime.journal.segment import Segment, Share
from convoy_workloads.runtime.journal.step_sequence import ReplayError, assemble_gradient, merge_segments
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.telemetry.step_recorder import StepRecorder

KERNELS: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "maximize": (torch.optim.SGD, {"momentum": 0.9, "maximize": True}),
    "adam": (torch.optim.Adam, {"betas": (0.9, 0.95)}),
    "adamw": (torch.optim.AdamW, {}),
    "amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
    "adagrad": (torch.optim.Adagrad, {"lr_decay": 0.01}),
}


def maker(name: str, kernel: str = "loop") -> Make:
    kind, more = OPTIMIZERS[name]
    return lambda params: kind(params, lr=0.01, **more, **KERNELS[kernel])


def recorded(make: Make, dtype: torch.dtype = torch.float32, world: int = 1, before: int = 3) -> Any:
    """Return a training, its twin and a journal.

    The training is 50 steps after its base, and the journal has these steps in five segments. The twin
    still has the state of the base.
    """
    live = Training(make, dtype)
    live.steps(before)
    twin = live.twin(make, dtype)
    journal = Journal(live, world)
    for count in (20, 1, 0, 9, 20):
        live.steps(count)
        journal.next()
    return live, twin, journal


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fifty_steps_are_replayed_bit_for_bit(name: str, kernel: str, dtype: torch.dtype) -> None:
    make = maker(name, kernel)
    if kernel == "fused" and dtype is torch.bfloat16 and name in ("momentum", "nesterov", "maximize"):
        with pytest.raises(Refused, match="arbitrary momentum"):
            recorded(make, dtype)
        return
    live, twin, journal = recorded(make, dtype)
    assert bits(twin) != bits(live)
    assert replay(twin.optimizer, twin.parameters, journal.segments) == 50
    assert bits(twin) == bits(live)
    # Both trainings continue in the same way, so no relevant state was left out.
    twin.generator, twin.done = copy.deepcopy(live.generator), live.done
    live.steps(2)
    twin.steps(2)
    assert bits(twin) == bits(live)


@pytest.mark.parametrize("name, kernel", [("nesterov", "foreach"), ("adamw", "fused")])
def test_a_thousand_steps_are_replayed_bit_for_bit(name: str, kernel: str) -> None:
    make = maker(name, kernel)
    live = Training(make)
    twin = live.twin(make)
    journal = Journal(live, room=600_000)
    for _ in range(20):
        live.steps(50)
        journal.next()
    assert replay(twin.optimizer, twin.parameters, journal.segments) == 1000
    assert bits(twin) == bits(live)


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("name, kernel", [("adamw", "loop"), ("momentum", "fused")])
def test_journals_of_three_ranks_are_replayed_to_one_state(name: str, kernel: str, before: int) -> None:
    make = maker(name, kernel)
    live, twin, journal = recorded(make, world=3, before=before)
    boxes = [share for one in journal.segments[:3] for share in one.head.shares]
    assert len([share for share in boxes if share.name == "embed.weight"]) > 1
    assert replay(twin.optimizer, twin.parameters, reversed(journal.segments)) == 50
    assert bits(twin) == bits(live)


def test_the_gradient_of_a_step_is_assembled_from_all_ranks() -> None:
    live = Training(maker("adam"))
    journal = Journal(live, world=3)
    live.step()
    wanted = {name: one.grad.clone() for name, one in live.parameters.items() if one.grad is not None}
    journal.seal()
    (moment,) = merge_segments(journal.segments).steps
    assert set(moment.gradients) == set(wanted) and "unused" not in wanted
    for name, gradient in wanted.items():
        found = torch.full_like(gradient, 7.0)
        assemble_gradient(moment.gradients[name], found)
        assert raw(found) == raw(gradient)


def test_a_scheduler_that_wraps_the_step_does_not_prevent_a_replay() -> None:
    def make(params: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(params, lr=0.01)

    live = Training(make)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(live.optimizer, 10)
    twin = live.twin(make)
    torch.optim.lr_scheduler.CosineAnnealingLR(twin.optimizer, 10)
    journal = Journal(live)
    for _ in range(5):
        live.optimizer.zero_grad()
        live.backward()
        live.optimizer.step()
        schedule.step()
    journal.seal()
    replay(twin.optimizer, twin.parameters, journal.segments)
    # The learning rate that the scheduler set after the last step is restored too.
    assert twin.optimizer.param_groups[0]["lr"] == schedule.get_last_lr()[0] != 0.01
    assert bits(twin) == bits(live)


@pytest.mark.parametrize("kernel", ["loop", "fused"])
def test_steps_that_a_gradient_scaler_skips_are_skipped_in_a_replay(kernel: str) -> None:
    make = maker("adamw", kernel)
    live = Training(make)
    twin = live.twin(make)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    journal = Journal(live)
    skipped = 0
    for number in range(8):
        live.optimizer.zero_grad()
        tokens = torch.randint(0, 300, (4,), generator=live.generator)
        loss = live.net(tokens, False).square().sum()
        scaler.scale(loss).backward()
        if number in (0, 3):
            live.net.one.bias.grad[0] = torch.inf  # type: ignore[index]
        before = scaler.get_scale()
        scaler.step(live.optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    journal.seal()
    assert skipped == 2
    # Skipped steps are replayed only with a fused kernel. Such a kernel is called with a flag that makes it
    # skip the step.
    assert replay(twin.optimizer, twin.parameters, journal.segments) == (8 if kernel == "fused" else 6)
    assert bits(twin) == bits(live)
    assert not hasattr(twin.optimizer, "found_inf")


def test_an_optimizer_declared_elementwise_is_replayed() -> None:
    live = Training(Lion)
    twin = live.twin(Lion)
    journal = Journal(live, elementwise=(Lion,))
    live.steps(5)
    journal.seal()
    with pytest.raises(ReplayError, match="not known to work element by element"):
        replay(twin.optimizer, twin.parameters, journal.segments)
    assert replay(twin.optimizer, twin.parameters, journal.segments, elementwise=(Lion,)) == 5
    assert bits(twin) == bits(live)


def test_a_replay_keeps_the_memory_format() -> None:
    def program() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        net = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    net, optimizer = program()
    other, fresh = program()
    holder = Training(maker("sgd"))
    holder.net, holder.optimizer = net, optimizer  # type: ignore[assignment]
    journal = Journal(holder)
    for _ in range(3):
        net(torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)).square().sum().backward()
        optimizer.step()
    journal.seal()
    replay(fresh, dict(other.named_parameters()), journal.segments)
    assert raw(other.weight) == raw(net.weight)  # type: ignore[arg-type]
    made = fresh.state[other.weight]["momentum_buffer"]  # type: ignore[index]
    assert made.stride() == optimizer.state[net.weight]["momentum_buffer"].stride() != (27, 9, 3, 1)  # type: ignore[index]


def test_a_replay_does_not_change_gradients() -> None:
    _, twin, journal = recorded(maker("nesterov", "foreach"))
    twin.backward()
    before = {name: one.grad for name, one in twin.parameters.items()}
    kept = {name: None if one is None else raw(one) for name, one in before.items()}
    replay(twin.optimizer, twin.parameters, journal.segments)
    for name, one in twin.parameters.items():
        assert one.grad is before[name]
        assert (None if one.grad is None else raw(one.grad)) == kept[name]
    assert kept["unused"] is None and kept["two.bias"] is not None


def test_replayed_steps_do_not_count_as_training_steps() -> None:
    live, twin, journal = recorded(maker("adamw"))
    counting = StepHook(RankContext(), StepRecorder())
    handle = register_optimizer_step_post_hook(counting)
    watching = Journal(twin)
    reports: list[tuple[int, int]] = []
    try:
        replay(twin.optimizer, twin.parameters, journal.segments, each=lambda *now: reports.append(now))
        assert counting._meter.step == 0
        assert reports == [(done, 50) for done in range(1, 51)]
        assert watching.recorders[0].steps == 0
        live.step()
        assert counting._meter.step == 1, "hooks hear again"
    finally:
        handle.remove()


def test_a_caller_can_disable_hooks_during_a_replay() -> None:
    _, twin, journal = recorded(maker("adamw"))
    seen: list[str] = []

    @contextmanager
    def hooks_off() -> Iterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    replay(
        twin.optimizer,
        twin.parameters,
        journal.segments,
        hooks_off=hooks_off,
        each=lambda *_: seen.append("step"),
    )
    assert seen == ["in", *["step"] * 50, "out"]


def with_head(segment: Segment, **changes: Any) -> Segment:
    return replace(segment, head=replace(segment.head, **changes))


def first_rows(share: Share) -> Share:
    return replace(share, offsets=(0,) * len(share.offsets))


def with_step(segment: Segment, **changes: Any) -> Segment:
    return replace(segment, steps=(replace(segment.steps[0], **changes), *segment.steps[1:]))


def transposed(segment: Segment) -> Segment:
    pieces = [
        replace(piece, strides=piece.strides[::-1]) if piece.share.name == "embed.weight" else piece
        for piece in segment.steps[0].pieces
    ]
    return with_step(segment, pieces=tuple(pieces))


def with_kernel(segments: list[Segment], **changes: Any) -> list[Segment]:
    return [with_head(one, kernel=replace(one.head.kernel, **changes)) for one in segments]


REFUSED: dict[str, tuple[Any, str]] = {
    "none": (lambda all_: [], "there are no segments"),
    "the first is missing": (lambda all_: all_[2:], "0 segments and 0 .* then segment 2, from step 21 on"),
    "one is missing": (lambda all_: all_[:2] + all_[4:], "1 segments and 20 .* segment 3, from step 22 on"),
    "one comes twice": (lambda all_: [all_[0], *all_], "then segment 1, from step 1 on"),
    "an empty one is missing": (lambda all_: all_[:4] + all_[6:], "then segment 4, from step 22 on"),
    "another base": (lambda all_: [*all_[:-2], *(with_head(one, base="b") for one in all_[-2:])], "follows"),
    "a rank is missing": (lambda all_: [one for one in all_ if one.head.rank], r"ranks \[0\] are missing"),
    "a rank lacks the last": (lambda all_: all_[:-2] + all_[-1:], "different numbers of steps"),
    "another torch": (lambda all_: with_kernel(all_, torch="2.0"), "torch was 2.0"),
    "another device": (lambda all_: with_kernel(all_, device="cuda H100"), "device was cuda H100"),
    "other threads": (lambda all_: with_kernel(all_, threads=77), "threads was 77"),
    "another kernel": (lambda all_: with_kernel(all_, groups=("fused", "single")), "groups was"),
    "kernels mixed": (lambda all_: all_[:-1] + with_kernel(all_[-1:], threads=77), "different kernels"),
    "other groups": (
        lambda all_: [with_head(one, structure="x") for one in all_],
        "groups differ from those of the journal",
    ),
    "other scalars": (lambda all_: [with_step(all_[0], groups=[{}, {}]), *all_[1:]], "different scalars"),
    "other scalars at the end": (
        lambda all_: [*all_[:-1], replace(all_[-1], after=[{}, {}])],
        "different scalars",
    ),
    "a gradient in part": (lambda all_: [with_step(all_[0], pieces=()), *all_[1:]], "is missing"),
    "a part with other strides": (
        lambda all_: [transposed(all_[0]), *all_[1:]],
        "different types or strides",
    ),
    "parts of other sizes": (
        lambda all_: [with_head(one, shares=all_[0].head.shares) for one in all_],
        "do not form one parameter",
    ),
    "parts that overlap": (
        lambda all_: [with_head(one, shares=tuple(map(first_rows, one.head.shares))) for one in all_],
        "parts of embed.weight do not form one parameter",
    ),
    "other shares later": (
        lambda all_: [*all_[:-1], with_head(all_[-1], shares=())],
        "rank 1 has changed what it journals",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_segments_that_do_not_fit_are_rejected_before_any_change(name: str) -> None:
    _, twin, journal = recorded(maker("adamw"), world=2)
    change, message = REFUSED[name]
    before = bits(twin)
    with pytest.raises(ReplayError, match=message):
        replay(twin.optimizer, twin.parameters, change(journal.segments))
    assert bits(twin) == before


@pytest.mark.parametrize("was, now", [("fused", "foreach"), ("foreach", "fused"), ("loop", "foreach")])
def test_a_replay_with_another_kernel_is_rejected(was: str, now: str) -> None:
    _, _, journal = recorded(maker("adamw", was))
    other = Training(maker("adamw", now))
    with pytest.raises(ReplayError, match=re.escape("groups was ")):
        replay(other.optimizer, other.parameters, journal.segments)


def test_another_kernel_produces_other_bits() -> None:
    """On most processors another kernel gives other bits, so a replay with another kernel is refused."""
    _, _, journal = recorded(maker("adamw", "fused"), before=0)
    states = []
    for kernel in ("fused", "foreach"):
        again = Training(maker("adamw", kernel))
        segments = with_kernel(journal.segments, groups=("fused" if kernel == "fused" else "foreach",) * 2)
        replay(again.optimizer, again.parameters, segments)
        states.append(bits(again)["one.weight"])
    if states[0] == states[1]:
        pytest.skip("on this processor both kernels round alike")


def test_names_must_match_all_parameters() -> None:
    _, twin, journal = recorded(maker("adamw"))
    fewer = {name: one for name, one in twin.parameters.items() if name != "one.bias"}
    with pytest.raises(ReplayError, match="names do not match"):
        replay(twin.optimizer, fewer, journal.segments)
    renamed = {name.replace("one", "uno"): one for name, one in twin.parameters.items()}
    with pytest.raises(ReplayError, match="is not in the journal"):
        replay(twin.optimizer, renamed, journal.segments)


def test_a_kernel_round_trips_through_json() -> None:
    _, _, journal = recorded(maker("adamw", "fused"))
    kernel = journal.segments[0].head.kernel
    assert kernel.groups == ("fused", "fused")
    assert kernel.optimizer == "torch.optim.adamw.AdamW" and kernel.device.startswith("cpu ")
    assert Kernel.from_json(kernel.to_json()) == kernel
    assert kernel.difference(kernel) == ""


def test_more_threads_are_another_kernel() -> None:
    """SGD in 16 bits rounds differently at the end of each thread's share, so the number of threads
    matters.
    """
    live = Training(maker("sgd"))
    journal = Journal(live)
    before = torch.get_num_threads()
    live.step()
    torch.set_num_threads(before + 1)
    try:
        live.step()
    finally:
        torch.set_num_threads(before)
    assert journal.recorders[0].reason == f"threads was {before}, is {before + 1}"
