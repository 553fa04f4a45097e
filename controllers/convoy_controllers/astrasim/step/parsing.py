"""Reads the members `step`, `links` and `sweep` of a what-if file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.astrasim.parameters import AlgorithmKind
from convoy_controllers.astrasim.parsing.fields import Field
from convoy_controllers.astrasim.parsing.graph import LEAST_BANDWIDTH
from convoy_controllers.astrasim.step.predict import ENDPOINT_NS, MEMORY
from convoy_controllers.astrasim.step.racks import Rates
from convoy_controllers.astrasim.step.shape import Reduction, StepShape
from convoy_controllers.astrasim.step.study import AXES, Setup

MEMBER = "step"
MOST_RANKS = 1024
MOST_SECONDS = 3600.0
MOST_BYTES = 1 << 42
BUCKET_BYTES = 26_214_400
"""Size of DistributedDataParallel's buckets, 25 MiB."""
_FILE = frozenset({MEMBER, "links", "sweep", "id", "note"})
_DESCRIBED = frozenset({"forwardSeconds", "backwardSeconds", "optimizerSeconds", "gradientBytes"})
_STEP = frozenset({"ranks", "placement", "algorithm", "bucketBytes", "memoryGBps", "endpointDelayNs"})
_LINKS = frozenset({"hostGBps", "uplinkGBps", "hostLatencyNs", "uplinkLatencyNs"})

ReadTrace = Callable[[str], tuple[StepShape, int]]
"""(path as in the file) -> the step that the traces show, and the number of ranks."""


@dataclass(frozen=True, slots=True)
class StudyFile:
    """The content of a file."""

    setup: Setup
    axes: Mapping[str, tuple[Any, ...]]


def _rate(field: Field) -> float:
    return field.number(LEAST_BANDWIDTH)


_READ: Mapping[str, Callable[[Field], Any]] = {
    "ranks": lambda field: field.whole(2, MOST_RANKS),
    "placement": Field.text,
    "hostGBps": _rate,
    "uplinkGBps": _rate,
    "hostLatencyNs": Field.number,
    "uplinkLatencyNs": Field.number,
    "algorithm": lambda field: field.choice(AlgorithmKind),
    "bucketBytes": lambda field: field.whole(1, MOST_BYTES),
}


def study_file(body: Any, read_trace: ReadTrace) -> StudyFile:
    """Return the content of a file. Raises InvalidInput."""
    whole = Field(body, "")
    whole.only(_FILE)
    step, links = whole["step"], whole["links"]
    shape, ranks, bucket = _shape(step, read_trace)
    setup = Setup(
        shape,
        ranks,
        _value(step, "placement", "1 rack"),
        _rates(links),
        _value(step, "algorithm", AlgorithmKind.RING),
        bucket,
        step["memoryGBps"].number(LEAST_BANDWIDTH) if step.has("memoryGBps") else MEMORY,
        step["endpointDelayNs"].whole(1, 10**9) if step.has("endpointDelayNs") else ENDPOINT_NS,
    )
    return StudyFile(setup, _axes(whole["sweep"]) if whole.has("sweep") else {})


def _shape(step: Field, read_trace: ReadTrace) -> tuple[StepShape, int, int | None]:
    """Return the step, its number of ranks, and the bytes of a bucket; None for the buckets of the trace."""
    if step.has("trace"):
        step.only(_STEP | {"trace"})
        shape, ranks = read_trace(step["trace"].text())
        return shape, _value(step, "ranks", ranks), _value(step, "bucketBytes", None)
    step.only(_STEP | _DESCRIBED)
    gradients = Reduction(_seconds(step, "backwardSeconds"), step["gradientBytes"].whole(1, MOST_BYTES))
    shape = StepShape((gradients,), _seconds(step, "forwardSeconds"), _seconds(step, "optimizerSeconds"))
    return shape, _READ["ranks"](step["ranks"]), _value(step, "bucketBytes", BUCKET_BYTES)


def _value(field: Field, name: str, default: Any) -> Any:
    """Return a member, or the default."""
    return _READ[name](field[name]) if field.has(name) else default


def _seconds(step: Field, name: str) -> float:
    found = step[name].number() if step.has(name) else 0.0
    if found > MOST_SECONDS:
        raise step[name].error(f"must be at most {MOST_SECONDS:g}, is {found:g}")
    return found


def _rates(links: Field) -> Rates:
    links.only(_LINKS)
    host = _rate(links["hostGBps"])
    return Rates(
        host,
        _rate(links["uplinkGBps"]) if links.has("uplinkGBps") else host,
        links["hostLatencyNs"].number() if links.has("hostLatencyNs") else 0.0,
        links["uplinkLatencyNs"].number() if links.has("uplinkLatencyNs") else 0.0,
    )


def _axes(sweep: Field) -> dict[str, tuple[Any, ...]]:
    sweep.only(frozenset(AXES))
    found = {}
    for name in sweep.members():
        values = tuple(_READ[name](one) for one in sweep[name].items())
        if not values or len(set(values)) < len(values):
            raise sweep[name].error("needs at least one value, and each only once")
        found[name] = values
    return found
