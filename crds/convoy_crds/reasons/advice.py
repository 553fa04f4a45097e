"""Reasons about the rules of advice that a job is checked against."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class AdviceReasons:
    """Reasons about the rules of advice that a job is checked against."""

    RULES_VIOLATED = Reason(
        "RulesViolated", "{warnings} warnings and {hints} hints: {findings}", warning=True
    )
    HINTS_ONLY = Reason("HintsOnly", "no warning and {hints} hints: {findings}")
    RULES_KEPT = Reason("RulesKept", "the job violates no rule of advice")
    ADVICE_DENIED = Reason(
        "AdviceDenied",
        "{path}: {message} ({rule}). Remedy: {remedy}. spec.lint.enforce is Deny: correct the spec, or add "
        "{rule} to spec.lint.ignore",
        warning=True,
    )
