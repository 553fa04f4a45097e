"""The two comparisons: the replica calculator alone, and the whole controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from e2e.oracle.hpa import convoy
from e2e.oracle.hpa.program import Case, Result
from e2e.oracle.hpa.replica_cases import replica_case
from e2e.oracle.hpa.scenarios import scenario

_ERRORS = {
    "unable to get": "Unavailable",
    "no pods returned": "NoPods",
    "did not receive metrics": "NoSamples",
    "missing request": "MissingRequest",
    "missing pod-level request": "MissingRequest",
    "not found in Pod": "NoContainer",
    "no metrics returned matched": "NoRequests",
}
"""Convoy's name of an error, by a part of Kubernetes' text."""
_REASONS = {
    "Current number of replicas above Spec.MaxReplicas": "AboveMaxReplicas",
    "Current number of replicas below Spec.MinReplicas": "BelowMinReplicas",
}
"""Convoy's name of a reason, by Kubernetes' text."""
_ABOVE = " above target"
"""End of Kubernetes' text if a metric asks for more replicas. The text begins with the metric."""


@dataclass(frozen=True)
class Suite:
    """A way to compare Convoy with Kubernetes."""

    name: str
    """Command of the Go program."""
    generate: Callable[[Random], Case]
    convoy: Callable[[Case], Result]
    """Function that returns Convoy's result for a case."""
    comparable: Callable[[Case, Result], Result]
    """Function that returns Kubernetes' result in Convoy's terms."""
    decisions: Callable[[Case], int]
    """Function that returns the number of decisions in a case."""


def _comparable_replicas(case: Case, theirs: Result) -> Result:
    if text := theirs.get("error"):
        return {"error": next((kind for part, kind in _ERRORS.items() if part in text), text)}
    return theirs


def _comparable_decisions(case: Case, theirs: Result) -> Result:
    """Return the decisions. A step in which the number of replicas could not be read has no other result."""
    found = []
    before = 0
    for step, one in zip(case["steps"], theirs, strict=True):
        before = step.get("specReplicas", before)
        after = one["replicas"]
        kept = {name: value for name, value in one.items() if name != "reason"}
        if after != before:
            kept["reason"] = _reason(one.get("reason", ""), after > before)
        found.append({"replicas": after} if step.get("failReads") else kept)
        before = after
    return found


def _reason(text: str, grows: bool) -> str:
    """Return the reason of a change in Convoy's terms. Kubernetes names the direction of the metrics, even if
    an earlier recommendation raises the number.
    """
    if known := _REASONS.get(text):
        return known
    if text.endswith(_ABOVE):
        return "AboveTarget"
    return "Stabilized" if grows else "BelowTarget"


SUITES = (
    Suite("replicas", replica_case, convoy.replicas, _comparable_replicas, lambda case: 1),
    Suite("controller", scenario, convoy.decisions, _comparable_decisions, lambda case: len(case["steps"])),
)


def suite_named(name: str) -> Suite:
    """Return the suite with this name."""
    return next(suite for suite in SUITES if suite.name == name)
