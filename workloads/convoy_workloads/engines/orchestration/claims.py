"""The claims of the study's abstract, and the rules that decide on each one. The rules are part of the plan.

Claims: "Incentives and Evidence in Learned Service Orchestration" (arXiv 2606.16555), in our words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from convoy_crds.experiment_plan import Contrast, Direction
from convoy_crds.experiment_status import Verdict
from convoy_workloads.engines.orchestration.arms import DEFAULT, OWN, TUNED
from convoy_workloads.engines.orchestration.systems import System
from convoy_workloads.experiments.result import HypothesisResult, Result

OFTEN = 0.25
"""Smallest share that counts as often."""
SMALL = 0.1
"""Largest share of the advantage over the own comparator that counts as a vanished advantage."""


class ClaimAnswer(StrEnum):
    """The answer to a claim."""

    SEEN = "seen here"
    NOT_SEEN = "not seen here"
    NOT_DECIDABLE = "not decidable here"


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A claim with its answer."""

    name: str
    answer: ClaimAnswer
    reason: str
    """The figures behind the answer, as a sentence."""


@dataclass(frozen=True, slots=True)
class Finished:
    """One experiment of the study with its result."""

    system: System
    kind: str
    result: Result


RULES: Mapping[str, str] = {
    "reversals": (
        "Most predicted reversals do not occur. Seen if fewer than half of the predictions reversal-* are "
        "Supported. Only comparators count to which the learned controller does not lose without a "
        "perturbation, and only valid experiments."
    ),
    "diagnosis": (
        "A failed prediction often says more about the comparator than about the learned controller. Seen "
        f"if, among the predictions degrades-own that are not Supported, at least {OFTEN:.0%} are "
        "ComparatorCollapsed or have another verdict with the tuned comparator."
    ),
    "lag": (
        "The learned autoscaler's advantage under lag nearly vanishes against the autoscaler of Kubernetes. "
        "Seen if, at the lag where the advantage over the own comparator is largest, that advantage is "
        f"significant, and the advantage over the tuned autoscaler is at most {SMALL:.0%} of it."
    ),
    "artefact": (
        "One well-known result cannot be rebuilt from its artefact. Not decidable: the study rebuilds the "
        "methods, and runs none of the published artefacts."
    ),
    "margin": (
        "The strongest reproducible margin is far below the published one. Seen if the unperturbed gain of "
        "the learned scheduler over the tuned heuristic is below half of the published 21 % (Decima). The "
        "publications of the other two systems state no such figure in their abstracts."
    ),
    "magnitude": (
        "Conclusions reverse with the size of the perturbation. Seen if a prediction degrades-* or "
        "reversal-* is Supported at one magnitude and Contradicted at another."
    ),
    "mode": (
        "Conclusions reverse with the mode of the evaluation. Seen if, under the same condition, one mode "
        "finds the learned controller significantly better and another one significantly worse. The modes "
        "are level and degradation, against the own, the default and the tuned comparator."
    ),
    "untuned": (
        "Our own addition: tuning the comparator changes verdicts. Seen if a prediction has another verdict "
        "against the tuned comparator than against the default one."
    ),
}
"""Each claim with its rule, by name."""


def decide_claims(finished: Sequence[Finished]) -> list[ClaimResult]:
    """Return the answer to each claim. Experiments whose controls failed do not count."""
    valid = [one for one in finished if one.result.valid]
    if not valid:
        return [ClaimResult(name, ClaimAnswer.NOT_DECIDABLE, "no experiment is valid") for name in RULES]
    decided = {
        "reversals": _reversals(valid),
        "diagnosis": _diagnosis(valid),
        "lag": _lag(valid),
        "artefact": (ClaimAnswer.NOT_DECIDABLE, "no published artefact is part of the study"),
        "margin": _margin(valid),
        "magnitude": _magnitude(valid),
        "mode": _mode(valid),
        "untuned": _untuned(valid),
    }
    return [ClaimResult(name, *decided[name]) for name in RULES]


Decision = tuple[ClaimAnswer, str]


def _reversals(valid: Sequence[Finished]) -> Decision:
    found: list[HypothesisResult] = []
    for item in valid:
        losing = {
            one.comparator for one in _named(item.result, "gain-") if one.verdict is Verdict.CONTRADICTED
        }
        found += [one for one in _named(item.result, "reversal-") if one.comparator not in losing]
    if not found:
        return (
            ClaimAnswer.NOT_DECIDABLE,
            "the learned controllers lose to all comparators anyway",
        )
    supported = [one for one in found if one.verdict is Verdict.SUPPORTED]
    text = f"{len(supported)} of {len(found)} predicted reversals occur"
    return _seen(len(supported) < len(found) / 2), text


def _diagnosis(valid: Sequence[Finished]) -> Decision:
    failed = explained = collapsed = 0
    for item in valid:
        other = {one.magnitude: one.verdict for one in _named(item.result, f"degrades-{TUNED}")}
        for one in _named(item.result, f"degrades-{OWN}"):
            if one.verdict is Verdict.SUPPORTED:
                continue
            failed += 1
            collapsed += one.verdict is Verdict.COMPARATOR_COLLAPSED
            explained += one.verdict is Verdict.COMPARATOR_COLLAPSED or one.verdict != other[one.magnitude]
    if not failed:
        return ClaimAnswer.NOT_DECIDABLE, "all predictions degrades-own are Supported"
    text = (
        f"of {failed} failed predictions, {explained} are explained by the comparator, and in {collapsed} of "
        "these it has collapsed"
    )
    return _seen(explained >= OFTEN * failed), text


def lag_advantages(finished: Sequence[Finished]) -> dict[str, list[HypothesisResult]]:
    """Return, by comparator, how much less the learned autoscaler degrades under each lag. An effect above 0
    is an advantage.
    """
    for item in finished:
        if item.system.name == "autoscaling" and item.kind == "ObservationLag":
            return {other: list(_named(item.result, f"degrades-{other}")) for other in (OWN, DEFAULT, TUNED)}
    return {}


def _lag(valid: Sequence[Finished]) -> Decision:
    found = lag_advantages(valid)
    if not found:
        return ClaimAnswer.NOT_DECIDABLE, "no valid experiment has the autoscaler under lag"
    own = max(found[OWN], key=lambda one: one.effect or 0.0)
    tuned = next(one for one in found[TUNED] if one.magnitude == own.magnitude)
    advantage, left = own.effect or 0.0, tuned.effect or 0.0
    text = (
        f"at a lag of {own.magnitude:g} s the advantage is {advantage:.3g} points of late requests "
        f"over the own comparator and {left:.3g} over the tuned autoscaler"
    )
    if own.low is None or own.low <= 0:
        return ClaimAnswer.NOT_SEEN, f"{text}; the first one is not significant"
    return _seen(left <= SMALL * advantage), text


def _margin(valid: Sequence[Finished]) -> Decision:
    for item in valid:
        published = item.system.published_margin
        if published is None:
            continue
        one = next(_named(item.result, f"gain-{TUNED}"))
        if one.ratio is None:
            continue
        margin = 1 - one.ratio
        text = f"the gain over the tuned heuristic is {margin:.1%}, and the published one {published:.0%}"
        return _seen(margin < published / 2), text
    return ClaimAnswer.NOT_DECIDABLE, "no valid experiment has a system with a published margin"


def _magnitude(valid: Sequence[Finished]) -> Decision:
    reversed_at = []
    for item in valid:
        verdicts: dict[str, set[Verdict | None]] = {}
        for one in item.result.hypotheses:
            verdicts.setdefault(one.prediction, set()).add(one.verdict)
        reversed_at += [
            f"{item.result.experiment}/{name}"
            for name, seen in verdicts.items()
            if {Verdict.SUPPORTED, Verdict.CONTRADICTED} <= seen
        ]
    return _seen(bool(reversed_at)), f"reversed: {', '.join(reversed_at) or 'none'}"


def _mode(valid: Sequence[Finished]) -> Decision:
    reversed_at = []
    for item in valid:
        signs: dict[float | None, set[bool]] = {}
        for one in item.result.hypotheses:
            if (better := significantly_better(one)) is not None:
                signs.setdefault(one.magnitude, set()).add(better)
        reversed_at += [
            f"{item.result.experiment} {'unperturbed' if magnitude is None else f'at {magnitude:g}'}"
            for magnitude, seen in signs.items()
            if len(seen) == 2
        ]
    text = f"{len(reversed_at)} conditions have opposite conclusions: {', '.join(reversed_at) or 'none'}"
    return _seen(bool(reversed_at)), text


def _untuned(valid: Sequence[Finished]) -> Decision:
    changed = total = 0
    for item in valid:
        by_default = {_key(one): one.verdict for one in _against(item.result, DEFAULT)}
        for one in _against(item.result, TUNED):
            total += 1
            changed += one.verdict != by_default[_key(one)]
    return _seen(changed > 0), f"{changed} of {total} verdicts change when the comparator is tuned"


def significantly_better(one: HypothesisResult) -> bool | None:
    """Return True if the learned arm is significantly better, False if it is worse, else None."""
    if one.verdict not in (Verdict.SUPPORTED, Verdict.CONTRADICTED):
        return None
    return (one.direction is Direction.WORSE) != (one.verdict is Verdict.SUPPORTED)


def _key(one: HypothesisResult) -> tuple[str, Contrast, float | None]:
    return (one.prediction.partition("-")[0], one.contrast, one.magnitude)


def _against(result: Result, arm: str) -> Iterator[HypothesisResult]:
    return (one for one in result.hypotheses if one.comparator == arm)


def _named(result: Result, prefix: str) -> Iterator[HypothesisResult]:
    return (one for one in result.hypotheses if one.prediction.startswith(prefix))


def _seen(true: bool) -> ClaimAnswer:
    return ClaimAnswer.SEEN if true else ClaimAnswer.NOT_SEEN
