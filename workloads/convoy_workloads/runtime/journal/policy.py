"""The choice between a full save and a journal segment: the save with the fewest bytes, as long as a
restore stays fast.

The choice is made for each class of tensors. A class is a set of tensors that are saved alike: an
optimizer's parameters with their state, a model's buffers, or frozen tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_STEPS = 50
"""Maximum number of steps in one chain, even if a restore would stay fast with more steps."""


@dataclass(frozen=True)
class Tensors:
    """One class of tensors at the time of a save."""

    full: int
    """Bytes that a full save writes. Chunks with an unchanged digest are not written and do not count."""
    gradient: int
    """Bytes of this class's gradients that one step adds to the journal."""
    changed: bool = True
    """True if any chunk of the class has another digest than at the last save."""
    refused: str = ""
    """The reason why the class cannot be journalled; empty if it can."""


@dataclass(frozen=True)
class ChainPosition:
    """The position of a planned save in its chain. The numbers count the steps of the training."""

    since_save: int
    """Number of steps since the last save. A segment would hold exactly these steps."""
    since_base: int
    """Number of steps since the full save of the chain. A restore would replay these steps."""
    journal: int
    """Total bytes of the segments that the chain already has."""


@dataclass(frozen=True)
class RestoreTimes:
    """The speeds and sizes from which the duration of a restore is computed. They are measured or assumed."""

    step: float
    """Seconds of one optimizer step, without forward and backward passes."""
    read: float
    """Bytes per second that a restore reads."""
    base: int
    """Bytes of a full save of all classes."""


@dataclass(frozen=True)
class Choice:
    """The chosen kind of save (`journal`, `full` or `unchanged`) and the reason for the choice."""

    kind: str
    reason: str


def choose(tensors: Tensors, position: ChainPosition, times: RestoreTimes) -> Choice:
    """Return the kind of save for one class of tensors, with the reason."""
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
    """Return the maximum number of steps in a chain that is read and replayed faster than a full save is
    read.

    `gradient`: bytes that one step adds to the journal.
    """
    limit = times.base / times.read
    each = times.step + gradient / times.read
    steps = MAX_STEPS if each <= 0 else min(MAX_STEPS, int(limit / each))
    return steps - 1 if steps and steps * each >= limit else steps
