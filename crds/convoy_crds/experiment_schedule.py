"""The blocks of an Experiment, in the order in which they run. They follow from the spec alone.

All random choices are digests of the experiment's seed and of the thing that is chosen. So they are the same
on every machine and in every version of Python.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_arm import SweepParameter
from convoy_crds.experiment_status import MAX_BLOCKS

T = TypeVar("T")

_SEED_BYTES = 6
"""Length of a block's seed. A number of 48 bits survives JSON and a float."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A condition under which all arms run."""

    perturbation: str = ""
    """Name of the perturbation; empty for the unperturbed condition."""
    magnitude: float | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One repetition under one condition. All its arms run with the same seed."""

    id: int
    """Number of the block, in the order in which the blocks start."""
    cell: Cell
    repetition: int
    """Number of the repetition. Blocks with the same repetition have the same seed under all conditions."""
    seed: int
    arms: tuple[str, ...]
    """Names of the arms, in the order in which they run."""
    combination: int | None = None
    """Number of the combination of a sweep; None for an experiment with a comparison."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the names of the block's runs in results: the arms, or the combination of a sweep."""
        return self.arms if self.combination is None else (str(self.combination),)


def seed_of(seed: int, repetition: int) -> int:
    """Return the seed of all blocks with this repetition. `seed`: the experiment's own."""
    return _number("block", seed, repetition)


def tuning_seed(seed: int, block: int) -> int:
    """Return the seed of a block of the tuning. No block of the experiment has it."""
    return _number("tuning", seed, block)


def cells(spec: ExperimentSpec) -> tuple[Cell, ...]:
    """Return the conditions of an experiment, in the order of its spec."""
    perturbed = [
        Cell(one.name, magnitude) for one in spec.perturbations or () for magnitude in one.magnitudes
    ]
    return (Cell(), *perturbed) if spec.unperturbed or spec.sweep is not None else tuple(perturbed)


def combination_count(parameters: Sequence[SweepParameter]) -> int:
    """Return the number of combinations of a sweep. A few parameters can have billions of them."""
    return math.prod(len(one.values) for one in parameters)


def combinations(parameters: Sequence[SweepParameter]) -> tuple[tuple[Any, ...], ...]:
    """Return the values of each combination of a sweep, in the order of the parameters. The last parameter
    changes fastest. Combinations beyond the maximum number of blocks are left out: no sweep runs them.
    """
    return tuple(itertools.islice(itertools.product(*(one.values for one in parameters)), MAX_BLOCKS))


def schedule(spec: ExperimentSpec) -> tuple[Block, ...]:
    """Return the blocks in the order in which they start.

    A repetition is complete before the next one starts, so an experiment that is stopped has whole
    repetitions. Within a repetition the order of the conditions is random, and so is the order of the arms
    in a block.
    """
    names = [arm.name for arm in spec.arms]
    if spec.sweep is not None:
        return _sweep(spec, names[0], len(combinations(spec.sweep.parameters)))
    found: list[Block] = []
    for repetition in range(spec.blocks):
        for cell in _shuffled(cells(spec), "cells", spec.seed, repetition):
            key = ("arms", spec.seed, repetition, cell.perturbation, cell.magnitude)
            seed, arms = seed_of(spec.seed, repetition), tuple(_shuffled(names, *key))
            found.append(Block(len(found), cell, repetition, seed, arms))
    return tuple(found)


def _sweep(spec: ExperimentSpec, arm: str, count: int) -> tuple[Block, ...]:
    found: list[Block] = []
    for repetition in range(spec.blocks):
        seed = seed_of(spec.seed, repetition)
        for number in _shuffled(range(count), "combinations", spec.seed, repetition):
            found.append(Block(len(found), Cell(), repetition, seed, (arm,), number))
    return tuple(found)


def _shuffled(items: Sequence[T], *key: object) -> list[T]:
    """Return the items in a random order that follows from `key`."""
    numbered = sorted(enumerate(items), key=lambda one: _digest(*key, one[0]))
    return [item for _, item in numbered]


def _number(*key: object) -> int:
    return int.from_bytes(_digest(*key)[:_SEED_BYTES], "big")


def _digest(*key: object) -> bytes:
    return hashlib.sha256("/".join(map(str, key)).encode()).digest()
