"""Predicts each combination of some parameters of a step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from convoy_controllers.astrasim.parameters import AlgorithmKind
from convoy_controllers.astrasim.parsing.fields import InvalidInput
from convoy_controllers.astrasim.run import EVENTS
from convoy_controllers.astrasim.step.predict import (
    ENDPOINT_NS,
    MEMORY,
    CannotPredict,
    Prediction,
    predict,
)
from convoy_controllers.astrasim.step.racks import InvalidPlacement, Rates, network, racks_of
from convoy_controllers.astrasim.step.shape import MOST_REDUCTIONS, StepShape, reductions_of, with_buckets

MOST_POINTS = 256
MOST_MESSAGES = 5_000_000
"""Messages of all points together, several minutes."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A step on a network."""

    shape: StepShape
    ranks: int
    placement: str
    rates: Rates
    algorithm: AlgorithmKind = AlgorithmKind.RING
    bucket_bytes: int | None = None
    """Bytes of a bucket; None for the buckets of `shape`."""
    memory: float = MEMORY
    endpoint_ns: int = ENDPOINT_NS


Apply = Callable[[Setup, Any], Setup]


def _of_setup(name: str) -> Apply:
    return lambda setup, value: replace(setup, **{name: value})


def _of_rates(name: str) -> Apply:
    return lambda setup, value: replace(setup, rates=replace(setup.rates, **{name: value}))


AXES: Mapping[str, Apply] = {
    "ranks": _of_setup("ranks"),
    "placement": _of_setup("placement"),
    "hostGBps": _of_rates("host"),
    "uplinkGBps": _of_rates("uplink"),
    "hostLatencyNs": _of_rates("host_latency"),
    "uplinkLatencyNs": _of_rates("uplink_latency"),
    "algorithm": _of_setup("algorithm"),
    "bucketBytes": _of_setup("bucket_bytes"),
}
"""Parameters that a sweep may vary, in the order of the points: the last one varies fastest."""


@dataclass(frozen=True, slots=True)
class Point:
    """One prediction."""

    values: Mapping[str, Any]
    """Value of each axis."""
    prediction: Prediction


def study(setup: Setup, axes: Mapping[str, tuple[Any, ...]], events: int = EVENTS) -> list[Point]:
    """Return the prediction of each combination of the axes' values; one without axes.

    Raises InvalidInput, before anything is simulated, for a combination that is not valid, and for more than
    MOST_POINTS combinations or MOST_MESSAGES messages.
    """
    points = math.prod(len(values) for values in axes.values())
    if points > MOST_POINTS:
        raise InvalidInput("sweep", f"has {points} combinations, at most {MOST_POINTS} are allowed")
    combined = list(_combinations(setup, axes))
    messages = sum(_check(values, one) for values, one in combined)
    if messages > MOST_MESSAGES:
        raise InvalidInput(
            "sweep" if axes else "step",
            f"needs about {messages:,} messages, more than {MOST_MESSAGES:,}: use fewer ranks, larger "
            "buckets or fewer values",
        )
    return [Point(values, _predict(values, one, events)) for values, one in combined]


def _combinations(
    setup: Setup, axes: Mapping[str, tuple[Any, ...]]
) -> Iterator[tuple[dict[str, Any], Setup]]:
    names = [name for name in AXES if name in axes]
    for chosen in itertools.product(*(axes[name] for name in names)):
        values = dict(zip(names, chosen, strict=True))
        changed = setup
        for name, value in values.items():
            changed = AXES[name](changed, value)
        yield values, changed


def _check(values: Mapping[str, Any], setup: Setup) -> int:
    """Return the number of messages. Raises InvalidInput for a combination that is not valid."""
    try:
        racks_of(setup.placement, setup.ranks)
    except InvalidPlacement as error:
        raise InvalidInput(_path(values, "placement"), f"{error}: {setup.placement!r}") from None
    powers = {AlgorithmKind.HALVING_DOUBLING, AlgorithmKind.DOUBLE_BINARY_TREE}
    if setup.algorithm in powers and setup.ranks & (setup.ranks - 1):
        raise InvalidInput(
            _path(values, "algorithm"),
            f"{setup.algorithm} needs a power of two of ranks, has {setup.ranks}",
        )
    size = setup.bucket_bytes
    reductions = reductions_of(setup.shape.bytes, size) if size else len(setup.shape.reductions)
    if reductions > MOST_REDUCTIONS:
        raise InvalidInput(
            _path(values, "bucketBytes"), f"makes {reductions} buckets, more than {MOST_REDUCTIONS}"
        )
    return reductions * 2 * setup.ranks * (setup.ranks - 1)


def _path(values: Mapping[str, Any], name: str) -> str:
    return f"{'sweep' if name in values else 'step'}.{name}"


def _predict(values: Mapping[str, Any], setup: Setup, events: int) -> Prediction:
    shape = setup.shape if setup.bucket_bytes is None else with_buckets(setup.shape, setup.bucket_bytes)
    fabric = network(racks_of(setup.placement, setup.ranks), setup.rates)
    try:
        return predict(
            shape,
            fabric,
            setup.algorithm,
            memory=setup.memory,
            endpoint_ns=setup.endpoint_ns,
            events=events,
        )
    except CannotPredict as error:
        where = ", ".join(f"{name} {value}" for name, value in values.items())
        raise InvalidInput("step", f"cannot end{f' with {where}' if where else ''}: {error}") from None
