"""Reads the system and the options of a simulation."""

from __future__ import annotations

import re
import struct
from enum import StrEnum
from typing import TypeVar

from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    CollectiveType,
    Implementation,
    Optimization,
    Options,
    SchedulingPolicy,
    SharedBus,
    System,
)
from convoy_controllers.astrasim.parsing.fields import Field
from convoy_controllers.astrasim.parsing.graph import bandwidth

E = TypeVar("E", bound=StrEnum)

MOST_SPLITS = 100_000
MOST_QUEUES = 1_024
LEAST_PERFORMANCE = 1e-9
"""10^12 operations per second: 1,000 operations per second."""

OPTION_FIELDS = frozenset({"num-queues-per-dim", "injection-scale", "comm-scale", "rendezvous-protocol"})
SYSTEM_FIELDS = frozenset(
    {
        "scheduling-policy", "endpoint-delay", "active-chunks-per-dimension", "preferred-dataset-splits",
        "all-reduce-implementation", "all-gather-implementation", "reduce-scatter-implementation",
        "all-to-all-implementation", "collective-optimization", "local-mem-bw", "roofline-enabled",
        "peak-perf", "model-shared-bus", "L", "o", "g", "G", "local-reduction-delay",
        # Without effect on the figures.
        "boost-mode", "inter-dimension-scheduling", "intra-dimension-scheduling",
    }
)  # fmt: skip

_IMPLEMENTATIONS = {
    "all-reduce-implementation": CollectiveType.ALL_REDUCE,
    "all-gather-implementation": CollectiveType.ALL_GATHER,
    "reduce-scatter-implementation": CollectiveType.REDUCE_SCATTER,
    "all-to-all-implementation": CollectiveType.ALL_TO_ALL,
}
_NAME = re.compile(
    r"(?:(direct|oneDirect)([1-9]\d{0,4})?|ring|oneRing|halvingDoubling|oneHalvingDoubling|doubleBinaryTree)"
)


def system(field: Field, options: Field, dimensions: int) -> System:
    """Return the system settings."""
    field.only(SYSTEM_FIELDS)
    delay = 10
    if field.has("endpoint-delay"):
        scale = options["injection-scale"].number() if options.has("injection-scale") else 1.0
        delay = int(int(field["endpoint-delay"].number()) * scale)
    return System(
        implementations=_implementations(field, dimensions),
        splits=field["preferred-dataset-splits"].whole(1, MOST_SPLITS),
        memory_bandwidth=bandwidth(field["local-mem-bw"]),
        endpoint_delay=delay,
        active_chunks=field["active-chunks-per-dimension"].whole(1)
        if field.has("active-chunks-per-dimension")
        else 1,
        policy=_choice(field, "scheduling-policy", SchedulingPolicy.LIFO),
        optimization=_choice(field, "collective-optimization", Optimization.BASELINE),
        roofline=field.has("roofline-enabled") and field["roofline-enabled"].flag(),
        peak_performance=_performance(field["peak-perf"]) if field.has("peak-perf") else 0.0,
        shared_bus=_shared_bus(field),
    )


def options(field: Field) -> Options:
    """Return the options of a run."""
    field.only(OPTION_FIELDS)
    if field.has("comm-scale"):
        field["comm-scale"].number()  # Without effect on the figures.
    return Options(
        queues=field["num-queues-per-dim"].whole(1, MOST_QUEUES) if field.has("num-queues-per-dim") else 1,
        rendezvous=field.has("rendezvous-protocol") and field["rendezvous-protocol"].flag(),
    )


def implementation(field: Field) -> Implementation:
    """Return the algorithm of a name such as `ring`, `direct4` or `oneHalvingDoubling`."""
    name = field.text()
    match = _NAME.fullmatch(name)
    if match is None:
        raise field.error(
            f"there is no implementation {name[:60]!r}: use ring, direct, halvingDoubling, doubleBinaryTree, "
            "oneRing, oneDirect or oneHalvingDoubling; direct may have a number of messages at once"
        )
    window = int(match[2]) if match[2] else None
    flat = name.startswith("one")
    base = match[1] or name
    if flat:
        base = base[3].lower() + base[4:]
    return Implementation(AlgorithmKind(base), window, flat)


def _implementations(field: Field, dimensions: int) -> dict[CollectiveType, tuple[Implementation, ...]]:
    found = {}
    for name, type_ in _IMPLEMENTATIONS.items():
        if field.has(name):
            found[type_] = tuple(implementation(one) for one in field[name].items())
            if len(found[type_]) > dimensions:
                raise field[name].error(
                    f"has {len(found[type_])} implementations, but the network has {dimensions} dimensions"
                )
    return found


def _performance(field: Field) -> float:
    """Return 10^12 operations per second; 0 without roofline."""
    found = field.number()
    if 0 < found < LEAST_PERFORMANCE:
        raise field.error(f"must be 0 or at least {LEAST_PERFORMANCE:g}, is {found:g}")
    return found


def _choice(field: Field, name: str, default: E) -> E:
    return field[name].choice(type(default)) if field.has(name) else default


def _shared_bus(field: Field) -> SharedBus | None:
    if not field.has("model-shared-bus") or not field["model-shared-bus"].flag():
        return None

    def number(name: str) -> float:
        # Upstream stores the four values in single precision.
        value = field[name].number() if field.has(name) else 0.0
        return float(struct.unpack("f", struct.pack("f", value))[0])

    delay = field["local-reduction-delay"].whole() if field.has("local-reduction-delay") else 1
    return SharedBus(int(number("L")), int(number("o")), int(number("g")), number("G"), delay)
