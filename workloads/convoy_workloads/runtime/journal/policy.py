"""How a class of tensors is saved: by the fewest bytes, as long as what is saved is soon restored.

A class is what is saved alike: an optimizer's parameters with their state, a model's buffers, what is frozen.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_STEPS = 50
"""In one chain, whatever the times say."""


@dataclass(frozen=True)
class Tensors:
    """A class of tensors at one save."""

    full: int
    """Bytes that a full save writes; where unchanged chunks are known by their digests, without these."""
    gradient: int
    """Bytes that one step adds to the journal."""
    changed: bool = True
    """Whether any chunk's digest differs from the one that was saved last."""
    refused: str = ""
    """Why it cannot be journalled; empty when it can."""


@dataclass(frozen=True)
class ChainPosition:
    """Where the save stands in the chain."""

    since_save: int
    """Steps that this save would journal."""
    since_base: int
    """Steps that a restore would replay, these included."""
    journal: int
    """Bytes that the chain has without this save."""


@dataclass(frozen=True)
class RestoreTimes:
    """What a restore takes, measured or assumed."""

    step: float
    """Seconds of one optimizer step, without forward and backward."""
    read: float
    """Bytes per second in which a restore reads."""
    base: int
    """Bytes of a full save of everything."""


@dataclass(frozen=True)
class Choice:
    """`journal`, `full` or `unchanged`, and why."""

    kind: str
    reason: str


def choose(tensors: Tensors, behind: ChainPosition, times: RestoreTimes) -> Choice:
    """How to save one class now."""
    if not tensors.changed:
        return Choice("unchanged", "no chunk differs from the last save")
    if tensors.refused:
        return Choice("full", tensors.refused)
    if behind.since_base > longest(tensors.gradient, times):
        return Choice("full", f"{behind.since_base} steps take longer to replay than a full save to read")
    added = behind.since_save * tensors.gradient
    if added >= tensors.full:
        return Choice("full", f"{behind.since_save} steps of gradients are {added} bytes, all {tensors.full}")
    extra = behind.since_base * times.step + (behind.journal + added) / times.read
    if extra >= times.base / times.read:
        return Choice("full", f"the journal adds {extra:.3g} s to a restore, more than a full save takes")
    return Choice("journal", f"{added} bytes instead of {tensors.full}")


def longest(gradient: int, times: RestoreTimes) -> int:
    """Steps of a chain, at most, so that reading and replaying them takes less time than reading a full save.

    `gradient`: bytes that one step journals.
    """
    limit = times.base / times.read
    each = times.step + gradient / times.read
    steps = MOST_STEPS if each <= 0 else min(MOST_STEPS, int(limit / each))
    return steps - 1 if steps and steps * each >= limit else steps
