"""The decision of all ranks on one cost model and one table of batch sizes.

Rank 0 decides, from the timings of all ranks, and sends its result. Ranks that fitted and sorted on their own
could differ in the last bit of a cost, and deal different batches.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from convoy_workloads.data.agreement import Gathers, raise_faults
from convoy_workloads.data.bucket_options import BucketOptions
from convoy_workloads.data.bucket_table import BucketTable, fit_model, make_table
from convoy_workloads.packing.step_cost import CostModel, LinearQuadratic, PowerLaw, Timing, mape

NANO = 10**9
TOLERANCE = 0.15
"""Mean relative error of the model above which it is fitted again."""
MODEL_NUMBERS = 4


def model_numbers(model: CostModel | None) -> list[int]:
    """Return a model as integers of 64 bits: its kind, and the bits of its coefficients."""
    match model:
        case PowerLaw(scale, exponent):
            kind, values = 1, (scale, exponent, 0.0)
        case LinearQuadratic(linear, quadratic, fixed):
            kind, values = 2, (linear, quadratic, fixed)
        case _:
            kind, values = 0, (0.0, 0.0, 0.0)
    return [kind, *struct.unpack("<3q", struct.pack("<3d", *values))]


def model_of(numbers: Sequence[int]) -> CostModel | None:
    """Return the model of `model_numbers`."""
    values = struct.unpack("<3d", struct.pack("<3q", *numbers[1:]))
    match numbers[0]:
        case 1:
            return PowerLaw(*values[:2])
        case 2:
            return LinearQuadratic(*values)
    return None


def first_table(kinds: Sequence[int], options: BucketOptions) -> tuple[CostModel | None, BucketTable]:
    """Return the model and the table before any step was measured."""
    model = fit_model(options.rule, [], options.exponent)
    return model, make_table(kinds, options.memory_tokens, model, _limit(model, options))


def decide(
    exchange: Gathers,
    own: Sequence[Timing],
    options: BucketOptions,
    model: CostModel | None,
    table: BucketTable,
    rank: int,
) -> tuple[CostModel | None, BucketTable]:
    """Return the model and the table of rank 0. `own`: the timings of this rank. All ranks call it.

    If rank 0 cannot decide, it raises the error, and the others raise PeerLost.
    """
    everything = _gather_timings(exchange, own)
    kinds = sorted(table.sizes)
    numbers, fault = [0] * (1 + len(kinds) + MODEL_NUMBERS), None
    if rank == 0:
        try:
            model = _fitted(model, everything, options)
            made = make_table(kinds, options.memory_tokens, model, _limit(model, options))
            version = table.version + (made.sizes != table.sizes)
            numbers = [*BucketTable(version, made.sizes).numbers(), *model_numbers(model)]
        except Exception as error:
            fault = error
    rows = exchange.gather([int(fault is not None), *numbers])
    raise_faults([row[0] for row in rows], fault)
    decided = rows[0][1:]
    return model_of(decided[-MODEL_NUMBERS:]), BucketTable.from_numbers(decided[:-MODEL_NUMBERS], kinds)


def _gather_timings(exchange: Gathers, own: Sequence[Timing]) -> list[Timing]:
    counts = exchange.gather([len(own)])
    width = max(count for (count,) in counts)
    rows = [(one.batch, one.tokens, round(one.seconds * NANO)) for one in own]
    rows += [(0, 0, 0)] * (width - len(rows))
    return [
        Timing(numbers[at], numbers[at + 1], numbers[at + 2] / NANO)
        for numbers in exchange.gather([value for row in rows for value in row])
        for at in range(0, len(numbers), 3)
        if numbers[at]
    ]


def _fitted(model: CostModel | None, timings: Sequence[Timing], options: BucketOptions) -> CostModel | None:
    """Return the model, or another one if it does not fit the timings."""
    fitted = fit_model(options.rule, timings, options.exponent)
    if fitted is not None and (model is None or mape(model, timings) > TOLERANCE):
        return fitted
    return model


def _limit(model: CostModel | None, options: BucketOptions) -> float | None:
    """Return the compute limit in the unit of the model."""
    if options.compute is not None and isinstance(model, PowerLaw):
        return options.compute * model.scale
    return options.compute
