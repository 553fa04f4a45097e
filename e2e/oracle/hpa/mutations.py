"""Faults that are put into Convoy's autoscaler on purpose. The comparison must find each of them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from convoy_controllers.autoscale import arithmetic, groups, limits, replicas, samples, spec, state, usage


@dataclass(frozen=True)
class Mutation:
    """A wrong value in place of a constant or a function."""

    name: str
    suite: str
    """Name of the suite that finds the fault."""
    owner: object
    """Module or class that has the constant or function."""
    attribute: str
    wrong: Any

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the fault into the code while the block runs. Raise AttributeError if there is no such name."""
        with mock.patch.object(self.owner, self.attribute, self.wrong):
            yield


def _allow(tolerances: spec.Tolerances, usage_ratio: float) -> bool:
    return 1.0 - tolerances.down < usage_ratio < 1.0 + tolerances.up


def _serves(pod: samples.Pod) -> bool:
    return pod.readiness is not None and pod.readiness.status == "True"


def _changed(events: Iterable[state.ScaleEvent], cutoff: float) -> int:
    return sum(event.change for event in events if event.at >= cutoff)


def _started(kept: state.State, _: int, __: float) -> state.State:
    return kept


def _scale_down_window(scaling: spec.Scaling, behavior: spec.Behavior) -> int:
    window = behavior.scale_down.stabilization_seconds
    return 301 if window is None else window + 1


MUTATIONS = (
    Mutation(
        "a ratio equal to the tolerance counts as outside", "replicas", spec.Tolerances, "allow", _allow
    ),
    Mutation("replicas are rounded down", "replicas", replicas, "ceil32", arithmetic.trunc32),
    Mutation("samples of memory depend on readiness", "replicas", groups, "CPU", "memory"),
    Mutation("pods that do not run count as ready", "replicas", samples.Pod, "serves", property(_serves)),
    Mutation("quotients are rounded down", "replicas", usage, "quotient", operator.floordiv),
    Mutation("at least 5 replicas instead of 4", "controller", limits, "SCALE_UP_AT_LEAST", 5),
    Mutation("three times the replicas instead of twice", "controller", limits, "SCALE_UP_FACTOR", 3),
    Mutation("percentages of a decrease are rounded up", "controller", limits, "trunc32", arithmetic.ceil32),
    Mutation("an event counts at the very end of its period", "controller", limits, "_changed", _changed),
    Mutation(
        "the window for scaling down is a second longer",
        "controller",
        spec.Scaling,
        "scale_down_window",
        _scale_down_window,
    ),
    Mutation(
        "the first number of replicas is no recommendation", "controller", state.State, "started", _started
    ),
)
