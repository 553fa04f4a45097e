"""Whether the journal is exact: some parameters are replayed aside, now and then, and compared bit by bit.

What no rule can exclude (a program that writes to weights through `.data`, a compiled step, a class that was
wrongly said to work element by element) shows here.
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
    """Some parameters and their optimizer state as they were at the base."""

    values: Mapping[str, torch.Tensor]
    states: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, int]
    """In which of the optimizer's groups each is."""


def pick_sample(sizes: Mapping[str, int], budget: int, turn: int) -> list[str]:
    """Names for the sample of that turn: as many as `budget` bytes hold, at least one, all in the end.

    `sizes`: bytes of each parameter that this rank journals whole. One that alone exceeds the budget has
    turns too.
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
    """Copies the named parameters as they are now, at a base, on their device."""
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
    """The first of the sample, or of its state, that base and journal do not make again; empty if all are.

    `segments`: at least those of the ranks that journal the sample, up to now. The live optimizer and its
    parameters are only looked at.
    """
    try:
        sequence = merge_segments(segments, alone=True)
    except ReplayError as error:
        return f"the journal: {error}"
    for name in sample.values:
        if name not in sequence.shapes:
            return f"the journal: {name} is not in it whole"
    twin, copies = _twin(sample, optimizer)
    try:
        with hooks_off():
            run(sequence.only(sample.values), twin, copies)
    except Exception as error:  # a class of the program may do anything
        return f"{type(optimizer).__qualname__}: a step cannot be repeated: {error}"
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
    """Whether two values, tensors mostly, are equal bit for bit."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other) and bool(one == other)
    if one.shape != other.shape or one.dtype is not other.dtype:
        return False
    return torch.equal(bits(one), bits(other).to(one.device))


@dataclass(frozen=True)
class Chain:
    """Whether the saves of a rank may be journal segments, as a value: each event makes the next one.

    An end for a known reason (other groups, no room) lasts until the next full save. A difference found by
    the guard is of unknown origin: after the first, one full save begins no chain, after the second three,
    then seven.
    """

    base: str = ""
    """The full save that the chain begins with; empty while there is no chain."""
    steps: int = 0
    """Steps behind it."""
    reason: str = "no full save yet"
    """Why there is no chain."""
    strikes: int = 0
    """Differences that the guard has found."""
    bases: int = 0
    """Full saves, the next among them, that begin no chain."""

    @property
    def usable(self) -> bool:
        """Whether the next save may be a segment."""
        return bool(self.base)

    def saved(self, base: str) -> Chain:
        """A full save is made."""
        if self.bases:
            return replace(self, base="", steps=0, bases=self.bases - 1)
        return replace(self, base=base, steps=0, reason="")

    def extended(self, base: str, first: int, count: int) -> Chain:
        """A segment of `count` steps is sealed, with `first` steps between its base and itself."""
        if not self.base:
            return self
        if base != self.base or first != self.steps:
            return self.ended(f"a segment begins {first} steps behind {base or 'nothing'}")
        return replace(self, steps=self.steps + count)

    def ended(self, reason: str) -> Chain:
        """The chain cannot go on."""
        return replace(self, base="", steps=0, reason=reason) if self.base else self

    def inexact(self, name: str) -> Chain:
        """The guard has found a difference: what was saved since the base is not to be trusted."""
        strikes = self.strikes + 1
        return Chain("", 0, f"inexact: {name} is not what its journal makes", strikes, 2**strikes - 1)


def _twin(
    sample: Sample, optimizer: torch.optim.Optimizer
) -> tuple[torch.optim.Optimizer, dict[str, torch.Tensor]]:
    """An optimizer of the same class and groups with copies of the sample alone."""
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
    # Hooks stay with the live one, and so does `step`, where a scheduler has bound it to that one.
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
