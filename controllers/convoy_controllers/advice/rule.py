"""A rule of advice, and the findings that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from convoy_controllers.advice.subject import Subject
from convoy_crds.advice import Severity


@dataclass(frozen=True, slots=True)
class Found:
    """One violation of a rule. The message names the problem, the remedy says what to do."""

    path: str
    """Path of the field that is at fault, such as `spec.roles[0].template.spec.containers[0].image`."""
    message: str
    remedy: str
    severity: Severity | None = None
    """Weight of this violation; None for the rule's own."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of advice. A rule that cannot be judged finds nothing."""

    id: str
    title: str
    severity: Severity
    """Weight of the rule's worst violation."""
    check: Callable[[Subject], Iterable[Found]]
    static: bool = True
    """True if the spec alone violates the rule. False if the rule needs facts of the run."""
