"""The choice of how a class of tensors is saved: with the fewest bytes, as long as a restore stays fast.

A class holds tensors that are saved alike: an optimizer's parameters with their state, a model's buffers,
frozen tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_STEPS = 50
"""Most steps in one chain, whatever the times."""


@dataclass(frozen=True)
class Tensors:
    """A class of tensors at one save."""

    full: int
    """Bytes that a full save writes. Chunks that are known to be unchanged by their digests do not count."""
    gradient: int
    """Bytes that one step adds to the journal."""
    changed: bool = True
    """True if the digest of any chunk differs from the last save."""
    refused: str = ""
    """Reason why the class cannot be journalled; empty if it can."""


@dataclass(frozen=True)
class ChainPosition:
    """The position of the save in the chain."""

    since_save: int
    """Number of steps that this save would journal."""
    since_base: int
    """Number of steps that a restore would replay, including those of this save."""
    journal: int
    """Bytes of the chain without this save."""


@dataclass(frozen=True)
class RestoreTimes:
    """The cost of a restore, measured or assumed."""

    step: float
    """Seconds of one optimizer step, without forward and backward passes."""
    read: float
    """Bytes per second that a restore reads."""
    base: int
    """Bytes of a full save of everything."""


@dataclass(frozen=True)
class Choice:
    """The kind of save (`journal`, `full` or `unchanged`) and its reason."""

    kind: str
    reason: str


def choose(tensors: Tensors, position: ChainPosition, times: RestoreTimes) -> Choice:
    """Return how to save one class now."""
    if not tensors.changed:
        return Choice("unchanged", "no chunk differs from the last save")
    if tensors.refused:
        return Choice("full", tensors.refused)
    if position.since_base > max_chain_steps(tensors.gradient, times):
        return Choice("full", f"replaying {position.since_base} steps takes longer than reading a full save")
    added = position.since_save * tensors.gradient
    if added >= tensors.full:
        return Choice(
            "full", f"gradients of {position.since_save} steps have {added} bytes, a full save {tensors.full}"
        )
    extra = position.since_base * times.step + (position.journal + added) / times.read
    if extra >= times.base / times.read:
        return Choice(
            "full", f"the journal adds {extra:.3g} s to a restore, more than reading a full save takes"
        )
    return Choice("journal", f"{added} bytes instead of {tensors.full}")


def max_chain_steps(gradient: int, times: RestoreTimes) -> int:
    """Return the most steps of a chain that can be read and replayed faster than a full save can be read.

    `gradient`: bytes that one step journals.
    """
    limit = times.base / times.read
    each = times.step + gradient / times.read
    steps = MAX_STEPS if each <= 0 else min(MAX_STEPS, int(limit / each))
    return steps - 1 if steps and steps * each >= limit else steps
