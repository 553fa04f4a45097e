"""The guard of the journal: a check at each save that the journal reproduces the state.

The guard replays the steps of a few parameters separately and compares the results bit by bit. It finds
errors that no rule can exclude: a write to weights through `.data`, a compiled step, or a class that was
wrongly declared to update each element independently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from convoy_workloads.runtime.journal.replay import HookGuard, run, without_global_hooks
from convoy_workloads.runtime.journal.rows import bits
from convoy_workloads.runtime.journal.segment import Segment
from convoy_workloads.runtime.journal.step_sequence import ReplayError, merge_segments


@dataclass(frozen=True)
class Sample:
    """Copies of some parameters and their optimizer state, made before the steps that the guard replays."""

    values: Mapping[str, torch.Tensor]
    states: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, int]
    """Index of the optimizer's parameter group that holds each parameter, by name of the parameter."""


def pick_sample(sizes: Mapping[str, int], budget: int, turn: int) -> list[str]:
    """Return the names of the parameters in sample number `turn`.

    Each sample has at least one parameter, and otherwise as many as fit into `budget` bytes. A parameter
    larger than the budget gets its own sample. Successive turns cover all parameters. `sizes`: bytes of
    each parameter that this rank journals as a whole.
    """
    names = sorted(sizes)
    rounds: list[list[str]] = []
    left = 0
    for name in names:
        if not rounds or sizes[name] > left:
            rounds.append([])
            left = budget
        rounds[-1].append(name)
        left -= sizes[name]
    return rounds[turn % len(rounds)] if rounds else []


def copy_sample(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor], names: Collection[str]
) -> Sample:
    """Copy the named parameters and their optimizer state before the steps that the guard will replay.

    The copies stay on the device of the parameters.
    """
    group = {id(one): n for n, members in enumerate(optimizer.param_groups) for one in members["params"]}
    return Sample(
        {name: parameters[name].detach().clone() for name in names},
        {name: _copied(optimizer.state.get(parameters[name], {})) for name in names},
        {name: group[id(parameters[name])] for name in names},
    )


def find_difference(
    sample: Sample,
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.Tensor],
    segments: Iterable[Segment],
    *,
    hooks_off: HookGuard = without_global_hooks,
) -> str:
    """Replay the sample's parameters with `segments`, and compare the result with the live parameters and
    optimizer state. Return the name of the first parameter or state that differs; empty if none differs.

    If the replay itself is impossible, return the reason instead. `segments`: all segments since the sample
    was copied. The segments of ranks that do not journal the sample's parameters may be omitted. The live
    optimizer and its parameters are not changed.
    """
    try:
        sequence = merge_segments(segments, alone=True)
    except ReplayError as error:
        return f"the journal: {error}"
    for name in sample.values:
        if name not in sequence.shapes:
            return f"the journal: it does not hold {name} completely"
    twin, copies = _twin(sample, optimizer)
    try:
        with hooks_off():
            run(sequence.only(sample.values), twin, copies)
    except Exception as error:  # An optimizer class that the program defines may raise any error.
        return f"{type(optimizer).__qualname__}: a step cannot be replayed: {error}"
    for name, copy in copies.items():
        if not bits_equal(copy, parameters[name]):
            return name
        live = optimizer.state.get(parameters[name], {})
        made = twin.state.get(copy, {})
        for key in sorted({*live, *made}, key=str):
            if key not in live or key not in made or not bits_equal(made[key], live[key]):
                return f"{name}.{key}"
    return ""


def bits_equal(one: Any, other: Any) -> bool:
    """Return True if two values, mostly tensors, are equal bit for bit."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other) and bool(one == other)
    if one.shape != other.shape or one.dtype is not other.dtype:
        return False
    return torch.equal(bits(one), bits(other).to(one.device))


@dataclass(frozen=True)
class Chain:
    """Decides whether a rank's next save may be a journal segment. A Chain never changes: each method
    `after_...` returns the Chain that follows the event.

    If a chain ends for a known reason (other groups, no space), the next full save starts another chain. If
    the guard finds a difference between the replay and the live state, the cause is unknown. So some of the
    following full saves start no chain: one after the first difference, three after the second, seven after
    the third.
    """

    base: str = ""
    """Name of the full save that the chain starts with; empty if there is no chain."""
    steps: int = 0
    """Number of steps in the chain after the base."""
    reason: str = "no full save yet"
    """The reason why there is no chain; empty if there is one."""
    differences: int = 0
    """Number of segments so far whose replay differed from the live state, as the guard found."""
    skipped_full_saves: int = 0
    """Number of the coming full saves after which no chain starts."""

    @property
    def usable(self) -> bool:
        """True if the next save may be a segment."""
        return bool(self.base)

    def after_full_save(self, base: str) -> Chain:
        """Return the Chain after the full save named `base`. Normally a chain starts at this save; while
        `skipped_full_saves` is above 0, none starts and that number falls by 1.
        """
        if self.skipped_full_saves:
            return replace(self, base="", steps=0, skipped_full_saves=self.skipped_full_saves - 1)
        return replace(self, base=base, steps=0, reason="")

    def after_segment(self, base: str, first: int, count: int) -> Chain:
        """Return the Chain after a sealed segment of `count` steps. If the segment does not follow the
        chain's last step, the chain ends.

        `base`: name of the full save that the segment's chain starts with. `first`: number of steps between
        that full save and the start of the segment.
        """
        if not self.base:
            return self
        if base != self.base or first != self.steps:
            return self.after_end(f"a segment starts {first} steps after {base or 'no base'}")
        return replace(self, steps=self.steps + count)

    def after_end(self, reason: str) -> Chain:
        """Return the Chain after the current chain has ended for a known reason."""
        return replace(self, base="", steps=0, reason=reason) if self.base else self

    def after_difference(self, name: str) -> Chain:
        """Return the Chain after the guard found that the replay of the parameter or state `name` differs
        from the live one. The current chain ends, because its segments may be wrong.
        """
        differences = self.differences + 1
        return Chain(
            "", 0, f"inexact: the journal does not reproduce {name}", differences, 2**differences - 1
        )


def _twin(
    sample: Sample, optimizer: torch.optim.Optimizer
) -> tuple[torch.optim.Optimizer, dict[str, torch.Tensor]]:
    """Return an optimizer that works only on copies of the sample's parameters, and these copies by name.
    Its class, parameter groups and state are copied from `optimizer` and the sample.
    """
    copies: dict[str, torch.Tensor] = {
        name: torch.nn.Parameter(value.clone(), requires_grad=False) for name, value in sample.values.items()
    }
    groups: Sequence[dict[str, Any]] = [
        {**group, "params": [copies[name] for name, member in sample.groups.items() if member == number]}
        for number, group in enumerate(optimizer.param_groups)
    ]
    for group in groups:
        group.pop("param_names", None)
    kind = type(optimizer)
    twin = kind.__new__(kind)
    # Do not copy hooks. Do not copy `step` either, because a scheduler may have bound it to the live
    # optimizer.
    own = {key: value for key, value in vars(optimizer).items() if not key.startswith("_optimizer_")}
    own.pop("step", None)
    state = type(optimizer.state)(getattr(optimizer.state, "default_factory", None))
    twin.__setstate__({**own, "defaults": dict(optimizer.defaults), "state": state, "param_groups": groups})
    for name, one in copies.items():
        if sample.states[name]:
            twin.state[one] = _copied(sample.states[name])
    return twin, copies


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value.detach().clone() if isinstance(value, torch.Tensor) else value
        for key, value in state.items()
    }
