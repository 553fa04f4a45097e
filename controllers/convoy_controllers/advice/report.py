"""Reports findings in the status of a job, and decides whether they keep it from starting. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_controllers.advice.registry import denied, findings
from convoy_controllers.advice.subject import Subject
from convoy_controllers.workers.violation import Violation
from convoy_crds.advice import MAX_FINDINGS, AdviceFinding, Enforce, Lint, Severity
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.summaries import shorten_list

MAX_NAMES = 8
"""Maximum number of findings that the condition names. `status.advice` explains them."""


@dataclass(frozen=True, slots=True)
class Report:
    """The findings for `status.advice`, and the condition Advice."""

    findings: list[AdviceFinding]
    holds: bool
    """Status of the condition: True if a finding is a warning."""
    reason: Reason
    message: str


def report(subject: Subject, lint: Lint) -> Report:
    """Return the report about a job."""
    found = findings(subject, lint.ignore)
    warnings = sum(one.severity is Severity.WARNING for one in found)
    reason = Reasons.RULES_VIOLATED if warnings else Reasons.HINTS_ONLY if found else Reasons.RULES_KEPT
    named = shorten_list([f"{one.rule} {one.path}" for one in found], MAX_NAMES)
    message = reason.format(warnings=warnings, hints=len(found) - warnings, findings=named)
    return Report(found[:MAX_FINDINGS], bool(warnings), reason, message)


def denial(subject: Subject, lint: Lint) -> Violation | None:
    """Return why `lint` keeps a job from starting; None if it may start."""
    if lint.enforce is not Enforce.DENY:
        return None
    found = next(iter(denied(subject, lint.ignore)), None)
    if found is None:
        return None
    return Violation(Reasons.ADVICE_DENIED, Reasons.ADVICE_DENIED.format(**found.to_dict()))
