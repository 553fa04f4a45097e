"""The settings of an alignment, and the messages that the ranks exchange (see alignment.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

Mode = Literal["join", "quota"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignmentSettings:
    """The settings of an alignment. They are the same on all ranks."""

    budget: int
    """Maximum padded tokens of a batch."""
    window: int
    """Number of samples from which a rank forms its groups."""
    slots: int = 0
    """Maximum steps of a round; 0: as many as the window has samples."""
    warmup_rounds: int = 0
    """Number of first rounds with smaller windows, so that the first step starts sooner. Each window is twice
    as large as the previous one.
    """
    overhead: int | None = None
    """Tokens that take as long as the fixed cost of a batch. Groups then have the least total cost. None:
    groups are filled from the longest sample on.
    """
    mode: Mode = "join"
    """`join`: every sample is used once. `quota`: stop after `quota` samples of all ranks, or when a rank
    has no more samples.
    """
    quota: int | None = None
    seed: int = 0

    def window_of(self, number: int) -> int:
        """Return the window of a round. The first round is 0."""
        return max(1, self.window >> max(0, self.warmup_rounds - number))

    def round_limit(self, most_samples: int, world: int) -> int:
        """Return the maximum number of rounds if no rank has more than `most_samples` samples."""
        slots = self.slots or self.window
        limited = -(-most_samples // slots) if slots < self.window else 0
        return -(-most_samples // self.window) + limited + self.warmup_rounds + world


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rank's message of the first exchange."""

    groups: int
    samples: int
    drained: int
    """1 if the rank's share has no more samples."""
    failed: int
    """1 if the rank cannot go on. Then all ranks stop."""
    quarantined: int
    """Samples that this rank has put into quarantine so far."""
    read: int
    """Samples of its share that this rank has read so far."""

    def numbers(self) -> list[int]:
        """Return the fields in order."""
        return [getattr(self, one.name) for one in fields(self)]


@dataclass(frozen=True, slots=True)
class Plan:
    """A rank's message of the second exchange, and what is left of it later in the round."""

    steps: tuple[tuple[int, ...], ...]
    """The samples of each step."""
    weights: tuple[int, ...]
    """Weight of each step: the number of terms of its loss."""
    pool: tuple[int, ...]
    """The samples that stay in the pool."""

    def numbers(self, length: int) -> list[int]:
        """Return the plan as `length` numbers: sizes and weights of the steps, then all samples, then -1."""
        listed = [len(one) for one in self.steps] + list(self.weights)
        listed += [sample for one in (*self.steps, self.pool) for sample in one]
        return listed + [-1] * (length - len(listed))

    @staticmethod
    def from_numbers(numbers: Sequence[int], steps: int) -> Plan:
        """Return the plan with `steps` steps that `numbers` encodes."""
        sizes, at, found = numbers[:steps], 2 * steps, []
        for size in sizes:
            found.append(tuple(numbers[at : at + size]))
            at += size
        return Plan(
            tuple(found),
            tuple(numbers[steps : 2 * steps]),
            tuple(sample for sample in numbers[at:] if sample >= 0),
        )

    def first(self, count: int) -> Plan:
        """Return the plan with only its first `count` steps. The samples of the others go to the pool."""
        returned = tuple(sample for step in self.steps[count:] for sample in step)
        return Plan(self.steps[:count], self.weights[:count], self.pool + returned)

    def after(self, count: int) -> Plan:
        """Return the plan without its first `count` steps, which are done."""
        return Plan(self.steps[count:], self.weights[count:], self.pool)

    def state(self) -> dict[str, Any]:
        """Return the plan as plain data, for JSON."""
        return {"steps": self.steps, "weights": self.weights, "pool": self.pool}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> Plan:
        """Return the plan of plain data."""
        steps = tuple(tuple(step) for step in state["steps"])
        return Plan(steps, tuple(state["weights"]), tuple(state["pool"]))


@dataclass(frozen=True, slots=True)
class AlignedStep:
    """A step of this rank. All ranks take it at the same time."""

    samples: tuple[int, ...]
    """Numbers of this rank's samples; empty if this rank has none left."""
    weight: int
    all_samples: int
    """Number of samples of all ranks."""
    all_weights: int
    """Weight of all ranks."""


def unused_samples(state: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the samples that ranks had read but not used, from the result of `Alignment.state`."""
    plans = [Plan.from_state(one) for one in state["plans"]]
    return tuple(sorted(sample for plan in plans for part in (*plan.steps, plan.pool) for sample in part))
