"""The check that the journal is exact: some parameters are replayed separately at each save and compared
bit by bit.

It detects what no rule can exclude: a write to weights through `.data`, a compiled step, or a class that
was wrongly declared to work element by element.
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
    """Some parameters and their optimizer state at the base."""

    values: Mapping[str, torch.Tensor]
    states: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, int]
    """Number of the optimizer's group that holds each parameter."""


def pick_sample(sizes: Mapping[str, int], budget: int, turn: int) -> list[str]:
    """Return the names for the sample with number `turn`: as many as fit in `budget` bytes, at least one.

    Successive turns cover all names. `sizes`: bytes of each parameter that this rank journals whole. A
    parameter larger than the budget gets turns too.
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
    """Copy the current values of the named parameters at a base, on their device."""
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
    """Replay the sample from base and journal. Return the first parameter or state that differs; empty if
    none does.

    `segments`: at least those of the ranks that journal the sample, up to now. The live optimizer and its
    parameters are not changed.
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
    except Exception as error:  # A class of the program may raise any error.
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
    """The rule for whether a rank's saves may be journal segments. Immutable: each event returns the next
    value.

    An end for a known reason (other groups, no space) lasts until the next full save. A difference found by
    the guard has an unknown cause. After the first difference one full save starts no chain, after the
    second three, then seven.
    """

    base: str = ""
    """The full save that the chain starts with; empty while there is no chain."""
    steps: int = 0
    """Number of steps after the base."""
    reason: str = "no full save yet"
    """The reason why there is no chain."""
    differences: int = 0
    """Number of differences that the guard has found."""
    skipped_full_saves: int = 0
    """Number of coming full saves that start no chain."""

    @property
    def usable(self) -> bool:
        """True if the next save may be a segment."""
        return bool(self.base)

    def after_full_save(self, base: str) -> Chain:
        """Return the chain after a full save."""
        if self.skipped_full_saves:
            return replace(self, base="", steps=0, skipped_full_saves=self.skipped_full_saves - 1)
        return replace(self, base=base, steps=0, reason="")

    def after_segment(self, base: str, first: int, count: int) -> Chain:
        """Return the chain after a sealed segment of `count` steps, with `first` steps between the base and
        the segment.
        """
        if not self.base:
            return self
        if base != self.base or first != self.steps:
            return self.after_end(f"a segment starts {first} steps after {base or 'no base'}")
        return replace(self, steps=self.steps + count)

    def after_end(self, reason: str) -> Chain:
        """Return the chain after its end for a known reason."""
        return replace(self, base="", steps=0, reason=reason) if self.base else self

    def after_difference(self, name: str) -> Chain:
        """Return the chain after the guard found a difference. The segments since the base are then not
        reliable.
        """
        differences = self.differences + 1
        return Chain(
            "", 0, f"inexact: the journal does not reproduce {name}", differences, 2**differences - 1
        )


def _twin(
    sample: Sample, optimizer: torch.optim.Optimizer
) -> tuple[torch.optim.Optimizer, dict[str, torch.Tensor]]:
    """Return an optimizer of the same class and groups that holds copies of the sample only."""
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
    # Hooks are not copied. Neither is `step`, because a scheduler may have bound it to the live optimizer.
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
