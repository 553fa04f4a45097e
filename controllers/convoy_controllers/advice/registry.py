"""All rules of advice, and the findings about a job."""

from __future__ import annotations

from collections.abc import Collection

from convoy_controllers.advice.arrays import T03
from convoy_controllers.advice.checkpoints import T04
from convoy_controllers.advice.files import T09
from convoy_controllers.advice.gravity import T07
from convoy_controllers.advice.images import T01
from convoy_controllers.advice.loops import T08
from convoy_controllers.advice.phases import T06
from convoy_controllers.advice.reproducibility import T05, T11, T12
from convoy_controllers.advice.requests import T02
from convoy_controllers.advice.rule import Rule
from convoy_controllers.advice.subject import Subject
from convoy_controllers.advice.usage import T10
from convoy_crds.advice import AdviceFinding, Severity

RULES: tuple[Rule, ...] = (T01, T02, T03, T04, T05, T06, T07, T08, T09, T10, T11, T12)


def findings(subject: Subject, ignore: Collection[str] = ()) -> list[AdviceFinding]:
    """Return all violations, in the order of the rules. `ignore` has the ids of rules to leave out."""
    return [one for rule in RULES if rule.id not in ignore for one in found_by(rule, subject)]


def denied(subject: Subject, ignore: Collection[str] = ()) -> list[AdviceFinding]:
    """Return the violations for which `enforce: Deny` keeps a job from starting: those of severity Warning
    that the spec alone shows.
    """
    static = [rule for rule in RULES if rule.static and rule.id not in ignore]
    found = [one for rule in static for one in found_by(rule, subject)]
    return [one for one in found if one.severity is Severity.WARNING]


def found_by(rule: Rule, subject: Subject) -> list[AdviceFinding]:
    """Return the violations of one rule."""
    return [
        AdviceFinding(
            rule=rule.id,
            severity=one.severity or rule.severity,
            path=one.path,
            message=one.message,
            remedy=one.remedy,
        )
        for one in rule.check(subject)
    ]
