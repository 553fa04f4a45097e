"""Merges the segments of all ranks into one sequence of steps, and assembles the gradients of each step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from convoy_workloads.runtime.journal.kernel import Kernel
from convoy_workloads.runtime.journal.segment import Head, Piece, Segment, Share
from convoy_workloads.runtime.tiers import values as texts

LocatedPiece = tuple[Segment, Piece]


class ReplayError(ValueError):
    """Raised for segments that cannot reproduce a state. The message gives the reason."""


@dataclass(frozen=True)
class StepInput:
    """The input of one optimizer step, merged from all ranks."""

    groups: Sequence[Mapping[str, Any]]
    scaling: Mapping[str, Any]
    gradients: Mapping[str, tuple[LocatedPiece, ...]]
    """The pieces that together form the gradient of each parameter, by name. A missing parameter had no
    gradient.
    """


@dataclass(frozen=True)
class StepSequence:
    """All recorded steps that follow one full save."""

    base: str
    structure: str
    kernel: Kernel
    shapes: Mapping[str, tuple[int, ...]]
    """Shapes of the parameters whose gradients the segments contain completely, by name."""
    steps: tuple[StepInput, ...]
    after: Sequence[Mapping[str, Any]]

    def only(self, names: Collection[str]) -> StepSequence:
        """Return the same steps with only the named parameters."""
        return replace(
            self,
            shapes={name: shape for name, shape in self.shapes.items() if name in names},
            steps=tuple(
                replace(one, gradients={n: found for n, found in one.gradients.items() if n in names})
                for one in self.steps
            ),
        )


def merge_segments(segments: Iterable[Segment], alone: bool = False) -> StepSequence:
    """Merge segments, which may come in any order, into one sequence of steps.

    Raises ReplayError if a segment is missing or does not match the other segments. `alone`: True if the
    segments come from one rank only. The sequence then has only parameters that the one rank journals as a
    whole.
    """
    ranks: dict[int, list[Segment]] = {}
    for one in segments:
        ranks.setdefault(one.head.rank, []).append(one)
    if not ranks:
        raise ReplayError("there are no segments")
    for rank, found in ranks.items():
        ranks[rank] = sorted(found, key=lambda one: one.head.number)
    head = next(iter(ranks.values()))[0].head
    if not alone and set(ranks) != set(range(head.world)):
        missing = sorted(set(range(head.world)) - set(ranks))
        raise ReplayError(f"segments of ranks {missing} are missing")
    sequences = [_steps(found, head) for found in ranks.values()]
    if len({len(sequence) for sequence in sequences}) > 1:
        raise ReplayError("the ranks have different numbers of steps")
    shapes = _shapes([share for found in ranks.values() for share in found[0].head.shares], alone)
    last_segments = [found[-1] for found in ranks.values()]
    if not _equal([one.after for one in last_segments]):
        raise ReplayError("the ranks have different scalars")
    steps = tuple(
        _step_input([sequence[number] for sequence in sequences], shapes)
        for number in range(len(sequences[0]))
    )
    return StepSequence(head.base, head.structure, head.kernel, shapes, steps, last_segments[0].after)


def assemble_gradient(pieces: Sequence[LocatedPiece], into: torch.Tensor) -> None:
    """Copy the pieces of one gradient into a tensor of the parameter's shape."""
    for segment, piece in pieces:
        target = into
        for dimension, (start, size) in enumerate(zip(*piece.share.box)):  # noqa: B905
            target = target.narrow(dimension, start, size)
        segment.gradient(piece, target)


def _steps(found: Sequence[Segment], head: Head) -> list[tuple[Segment, int]]:
    """Return the steps of one rank in order. Each step is a pair: the segment that contains the step, and
    the step's index in that segment.
    """
    steps: list[tuple[Segment, int]] = []
    for number, one in enumerate(found):
        if one.head.base != head.base:
            raise ReplayError(f"a segment follows {one.head.base}, another {head.base}")
        if (one.head.number, one.head.first) != (number, len(steps)):
            raise ReplayError(
                f"rank {one.head.rank} has {number} segments and {len(steps)} steps without a gap after "
                f"{head.base}, then segment {one.head.number + 1}, from step {one.head.first + 1} on"
            )
        if one.head.structure != head.structure or one.head.world != head.world:
            raise ReplayError("segments of different optimizers or worlds")
        if one.head.shares != found[0].head.shares:
            raise ReplayError(f"rank {one.head.rank} has changed what it journals")
        difference = head.kernel.difference(one.head.kernel)
        if difference:
            raise ReplayError(f"segments of different kernels: {difference}")
        steps += [(one, number) for number in range(len(one.steps))]
    return steps


def _step_input(ranks: Sequence[tuple[Segment, int]], shapes: Mapping[str, tuple[int, ...]]) -> StepInput:
    steps = [segment.steps[number] for segment, number in ranks]
    if not _equal([[one.groups, one.scaling] for one in steps]):
        raise ReplayError("the ranks have different scalars")
    gradients: dict[str, list[LocatedPiece]] = {}
    for (segment, _), step in zip(ranks, steps):  # noqa: B905 - `strict` came with Python 3.10
        for piece in step.pieces:
            if piece.share.name in shapes:
                gradients.setdefault(piece.share.name, []).append((segment, piece))
    for name, found in gradients.items():
        if sum(_volume(piece.share.sizes) for _, piece in found) != _volume(shapes[name]):
            raise ReplayError(f"a part of the gradient of {name} is missing")
        if len({(piece.dtype, piece.strides) for _, piece in found}) > 1:
            raise ReplayError(f"the parts of the gradient of {name} have different types or strides")
    whole = {name: tuple(found) for name, found in gradients.items()}
    return StepInput(steps[0].groups, steps[0].scaling, whole)


def _shapes(shares: Sequence[Share], alone: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters whose elements the shares cover exactly once, by name.

    Raises ReplayError for any other parameter. With `alone`, an incompletely covered parameter is left out
    instead.
    """
    by_name: dict[str, list[Share]] = {}
    for one in shares:
        by_name.setdefault(one.name, []).append(one)
    shapes = {}
    for name, found in by_name.items():
        shape = found[0].shape
        whole = sum(_volume(one.sizes) for one in found) == _volume(shape)
        apart = not any(_overlap(one, two) for at, one in enumerate(found) for two in found[:at])
        if any(one.shape != shape for one in found) or not apart or not (whole or alone):
            raise ReplayError(f"the journalled parts of {name} do not form one parameter")
        if whole:
            shapes[name] = shape
    return shapes


def _overlap(one: Share, two: Share) -> bool:
    edges = zip(one.offsets, one.sizes, two.offsets, two.sizes)  # noqa: B905
    return all(start < begin + count and begin < start + size for start, size, begin, count in edges)


def _equal(found: Sequence[Any]) -> bool:
    return len(found) == 1 or len({texts.dumps(one) for one in found}) == 1


def _volume(sizes: Iterable[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found
