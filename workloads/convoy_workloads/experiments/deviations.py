"""Deviations of the data from the plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_data import DataMismatch
from convoy_crds.experiment_schedule import Block, Cell, schedule
from convoy_crds.experiment_status import BlockStatus
from convoy_crds.perturbations import perturbation_type
from convoy_workloads.experiments.hypotheses import condition
from convoy_workloads.experiments.paired import MAGNITUDE_TOLERANCE


def check_blocks(spec: ExperimentSpec, blocks: Sequence[BlockStatus]) -> None:
    """Raise DataMismatch if a block does not belong to the plan, or occurs twice."""
    planned = {one.id: one for one in schedule(spec)}
    seen: set[int] = set()
    for block in blocks:
        if block.id not in planned:
            raise DataMismatch(f"block {block.id}: the plan has no such block")
        if block.id in seen:
            raise DataMismatch(f"block {block.id}: the data contain this block twice")
        seen.add(block.id)
        for what, stored, wanted in _facts(block, planned[block.id]):
            if stored != wanted:
                raise DataMismatch(f"block {block.id}: {what} is {stored}, but the plan says {wanted}")


def _facts(block: BlockStatus, planned: Block) -> Iterator[tuple[str, object, object]]:
    yield "perturbation", block.perturbation, planned.cell.perturbation
    yield "magnitude", block.magnitude, planned.cell.magnitude
    yield "repetition", block.repetition, planned.repetition
    yield "seed", block.seed, planned.seed
    yield "the order of the arms", tuple(block.arms), planned.labels


def deviations(spec: ExperimentSpec, blocks: Sequence[BlockStatus]) -> tuple[str, ...]:
    """Return one sentence for each deviation from the plan that does not prevent the analysis."""
    return (*_missing(spec, blocks), *_unmeasured(spec, blocks), *_achieved(blocks))


def _missing(spec: ExperimentSpec, blocks: Sequence[BlockStatus]) -> Iterator[str]:
    planned, ended = schedule(spec), {one.id for one in blocks}
    if missing := [one.id for one in planned if one.id not in ended]:
        yield (
            f"{len(missing)} of {len(planned)} blocks did not run: {_numbers(missing)}. The p-values hold "
            "only if nobody who had seen values chose the moment of the stop"
        )


def _unmeasured(spec: ExperimentSpec, blocks: Sequence[BlockStatus]) -> Iterator[str]:
    """Yield a sentence for each condition with runs that have values, but no measured magnitude."""
    neutral = {one.name: perturbation_type(one.kind).neutral for one in spec.perturbations or ()}
    counts: dict[str, list[int]] = {}
    for block in blocks:
        if block.magnitude is not None and block.magnitude != neutral.get(block.perturbation):
            of_condition = counts.setdefault(condition_of(block), [0, 0])
            with_values = {one.arm for one in block.figures}
            of_condition[0] += len(with_values - {one.arm for one in block.achieved})
            of_condition[1] += len(with_values)
    for where, (unmeasured, count) in sorted(counts.items()):
        if unmeasured:
            yield (
                f"{where}: {unmeasured} of {count} runs have no measured magnitude, so nothing shows that "
                "they were disturbed"
            )


def _achieved(blocks: Sequence[BlockStatus]) -> Iterator[str]:
    for block in sorted(blocks, key=lambda one: one.id):
        for one in block.achieved:
            asked = block.magnitude
            if asked is not None and not math.isclose(one.magnitude, asked, rel_tol=MAGNITUDE_TOLERANCE):
                where = condition_of(block)
                yield f"block {block.id}: {where} reached {one.magnitude:g} in arm {one.arm}"


def condition_of(block: BlockStatus) -> str:
    """Return the condition of a block as text."""
    return condition(cell_of(block)) or "unperturbed"


def cell_of(block: BlockStatus) -> Cell:
    """Return the condition of a block."""
    return Cell(block.perturbation, block.magnitude)


def _numbers(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown
