"""The rules that decide on the claims. A missing proof never counts as a proof of the opposite: a claim that
the data neither show nor exclude is undecided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from convoy_crds.experiment_plan import Contrast, Direction
from convoy_crds.experiment_status import Verdict
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.engines.orchestration.arms import (
    COMPARED,
    LAG,
    LEARNED,
    OWN,
    ROBUST,
    SECOND,
    TUNED,
)
from convoy_workloads.engines.orchestration.evidence import Estimated, Finished, share_left
from convoy_workloads.engines.orchestration.systems import System
from convoy_workloads.experiments.result import HypothesisResult

OFTEN = 0.25
"""Smallest share that counts as often."""
SMALL = 0.1
"""Largest share of the advantage over the own comparator that counts as a vanished advantage."""
LISTED = 8
"""Number of names that a reason lists."""
MARGIN = 0.05
"""Loss that counts as none, as a share of the comparator's figure."""


class ClaimAnswer(StrEnum):
    """The answer to a claim."""

    SEEN = "seen here"
    NOT_SEEN = "not seen here"
    UNDECIDED = "undecided"
    """The data neither show the claim nor exclude it."""
    NOT_DECIDABLE = "not decidable here"
    """The study has nothing that could decide it."""


Decision = tuple[ClaimAnswer, str]


def reversals(valid: Sequence[Finished]) -> Decision:
    """Decide whether most predicted reversals do not occur."""
    counts = {arm: Counter[Reversal]() for arm in COMPARED}
    for item in valid:
        losing = {one.comparator for one in _named(item, "gain-") if one.verdict is Verdict.CONTRADICTED}
        for one in _named(item, "reversal-"):
            if one.comparator not in losing:
                counts[one.comparator][_reversal(item, one)] += 1
    found = sum(counts.values(), Counter[Reversal]())
    total = found.total()
    if not total:
        return ClaimAnswer.NOT_DECIDABLE, "the learned controllers lose to all comparators anyway"
    by_arm = "; ".join(f"{arm}: {_counted(one)}" for arm, one in counts.items() if one)
    text = f"of {total} predicted reversals, {_counted(found)} ({by_arm})"
    return _majority(found[Reversal.EXCLUDED], found[Reversal.OCCURS], total), text


class Reversal(StrEnum):
    """The outcome of a predicted reversal."""

    OCCURS = "occur"
    EXCLUDED = "are excluded"
    UNDECIDED = "are undecided"
    COLLAPSED = "have a collapsed comparator"


def _reversal(item: Finished, one: HypothesisResult) -> Reversal:
    if one.verdict is Verdict.SUPPORTED:
        return Reversal.OCCURS
    if one.verdict is Verdict.COMPARATOR_COLLAPSED:
        return Reversal.COLLAPSED
    excluded = one.verdict is Verdict.CONTRADICTED or _loss_is_excluded(item, one)
    return Reversal.EXCLUDED if excluded else Reversal.UNDECIDED


def _counted(found: Counter[Reversal]) -> str:
    return ", ".join(f"{found[one]} {one.value}" for one in Reversal)


def _majority(excluded: int, occurred: int, total: int) -> ClaimAnswer:
    """Return the answer that holds whatever the undecided ones are."""
    if excluded > total / 2:
        return ClaimAnswer.SEEN
    return ClaimAnswer.NOT_SEEN if occurred >= total / 2 else ClaimAnswer.UNDECIDED


def _loss_is_excluded(item: Finished, one: HypothesisResult) -> bool:
    return one.magnitude is not None and item.loss_is_excluded(one.comparator, one.magnitude, MARGIN)


def diagnosis(valid: Sequence[Finished]) -> Decision:
    """Decide whether failed predictions say more about the comparator than about the learned controller."""
    collapsed = weaker = failed = undecided = 0
    for item in valid:
        for one in _tested(item):
            if not one.prediction.startswith("degrades-") or one.comparator != OWN:
                continue
            if one.verdict is Verdict.COMPARATOR_COLLAPSED:
                collapsed += 1
            elif one.verdict is Verdict.CONTRADICTED:
                failed += 1
                cells = item.cells(one.magnitude, degradation=True)
                lead = item.lead(TUNED, OWN, cells)
                weaker += lead is not None and lead.low > 0
            elif one.verdict is Verdict.UNDECIDED:
                undecided += 1
    total = collapsed + failed
    if not total:
        return ClaimAnswer.UNDECIDED, f"no prediction degrades-own failed, and {undecided} are undecided"
    text = (
        f"of {total} failed predictions, {collapsed} have a collapsed comparator, and in {weaker} the own "
        f"comparator degrades more than the tuned one; {undecided} more predictions are undecided"
    )
    return _seen(collapsed + weaker >= OFTEN * total), text


LAG_ARMS = (*COMPARED, ROBUST, SECOND)
"""Comparators of the advantage under lag. The last two have no predictions, so they decide nothing."""


@dataclass(frozen=True, slots=True)
class LagRow:
    """The learned autoscaler's advantage under one lag: how much less it degrades than each comparator."""

    lag: float
    over: dict[str, Estimated]
    """Advantage by comparator, with an interval that holds for the whole family."""
    left: dict[str, Estimated | None]
    """Share of the advantage over the own comparator that is left, for the other comparators. None if the
    interval of the advantage over the own comparator does not lie above 0.
    """
    collapsed: tuple[str, ...]
    """Comparators that have collapsed."""


def lag_rows(finished: Sequence[Finished], figure: str = "") -> list[LagRow]:
    """Return the advantage under each lag. `figure`: the primary one by default."""
    for item in finished:
        if item.system.name == "autoscaling" and item.kind == PerturbationKind.OBSERVATION_LAG:
            return list(_lag_rows(item, figure))
    return []


def _lag_rows(item: Finished, figure: str) -> Iterator[LagRow]:
    for hypothesis in _named(item, f"degrades-{OWN}"):
        cells = item.cells(hypothesis.magnitude, degradation=True)
        series = {arm: item.differences(LEARNED, arm, cells, figure) for arm in LAG_ARMS}
        over = {arm: lead for arm in series if (lead := item.lead(LEARNED, arm, cells, figure)) is not None}
        shown = OWN in over and over[OWN].low > 0
        left = {
            arm: share_left(series[arm], series[OWN], 1 - item.result.alpha) if shown else None
            for arm in LAG_ARMS
            if arm != OWN
        }
        collapsed = tuple(
            one.comparator
            for one in _named(item, "degrades-")
            if one.magnitude == hypothesis.magnitude and one.verdict is Verdict.COMPARATOR_COLLAPSED
        )
        yield LagRow(hypothesis.magnitude or 0.0, over, left, collapsed)


def lag(valid: Sequence[Finished]) -> Decision:
    """Decide whether the learned autoscaler's advantage under lag vanishes against the tuned autoscaler."""
    row = next((one for one in lag_rows(valid) if one.lag == LAG), None)
    if row is None or {OWN, TUNED} - set(row.over):
        return ClaimAnswer.NOT_DECIDABLE, f"no valid experiment has the autoscaler under a lag of {LAG:g} s"
    text = (
        f"at a lag of {LAG:g} s the advantage is {row.over[OWN]} points of late requests over the own "
        f"comparator, which is not tuned, and {row.over[TUNED]} over the tuned autoscaler"
    )
    if OWN in row.collapsed:
        text += "; the own comparator has collapsed"
    if row.over[OWN].high <= 0:
        return ClaimAnswer.NOT_SEEN, f"{text}; so there is no advantage that could vanish"
    left = row.left[TUNED]
    if left is None:
        return ClaimAnswer.UNDECIDED, f"{text}; no advantage over the own comparator is shown"
    text += f"; the share that is left is {left}"
    if left.low <= SMALL < left.high:
        return ClaimAnswer.UNDECIDED, text
    return _seen(left.high <= SMALL), text


def margin(valid: Sequence[Finished]) -> Decision:
    """Decide whether the gain over a tuned heuristic is far below the published one."""
    for item in valid:
        published = item.system.published_margin
        one = next(_named(item, f"gain-{TUNED}"))
        if published is None or one.ratio is None or one.ratio_low is None or one.ratio_high is None:
            continue
        low, high = 1 - one.ratio_high, 1 - one.ratio_low
        text = (
            f"the gain over the tuned heuristic is {1 - one.ratio:.1%} [{low:.1%}, {high:.1%}], and the "
            f"published one {published:.0%}"
        )
        if low < published / 2 <= high:
            return ClaimAnswer.UNDECIDED, text
        return _seen(high < published / 2), text
    return ClaimAnswer.NOT_DECIDABLE, "no valid experiment has a system with a published margin"


def magnitude(valid: Sequence[Finished]) -> Decision:
    """Decide whether conclusions reverse with the size of a perturbation."""
    series: dict[str, list[Verdict | None]] = {}
    for item in valid:
        for one in _tested(item):
            if one.magnitude is not None:
                name = f"{item.result.experiment}/{one.prediction}{_direction(item, one.magnitude)}"
                series.setdefault(name, []).append(one.verdict)
    several = {name: verdicts for name, verdicts in series.items() if len(verdicts) > 1}
    if not several:
        return ClaimAnswer.NOT_DECIDABLE, "no perturbation has two magnitudes"
    both = {Verdict.SUPPORTED, Verdict.CONTRADICTED}
    reverse = [name for name, verdicts in several.items() if both <= set(verdicts)]
    kept = sum(len(set(verdicts)) == 1 and verdicts[0] in both for verdicts in several.values())
    return _flips(reverse, kept, len(several), "predictions")


def _direction(item: Finished, value: float) -> str:
    """Return the direction of a perturbation: a lighter load is no smaller size of a heavier one."""
    if item.kind != PerturbationKind.WORKLOAD_SHIFT:
        return ""
    return " with a lighter load" if value < 1 else " with a heavier load"


def mode(valid: Sequence[Finished]) -> Decision:
    """Decide whether the modes level and degradation have opposite conclusions about the same runs."""
    opposite: list[str] = []
    kept = total = 0
    for item in valid:
        found: dict[tuple[str, float], dict[Contrast, bool | None]] = {}
        for one in _tested(item):
            if one.magnitude is not None:
                key = (one.comparator, one.magnitude)
                found.setdefault(key, {})[one.contrast] = significantly_better(one)
        for (comparator, value), by_mode in found.items():
            if len(by_mode) < len(Contrast):
                continue
            answers = set(by_mode.values())
            total += 1
            kept += len(answers) == 1 and None not in answers
            if {True, False} <= answers:
                opposite.append(f"{item.result.experiment}/{comparator} at {value:g}")
    return _flips(opposite, kept, total, "comparisons")


def untuned(valid: Sequence[Finished]) -> Decision:
    """Decide whether verdicts change when the tuned comparator's controller is left untuned."""
    changed: list[str] = []
    better = worse = kept = total = 0
    for item in valid:
        other = untuned_arm(item.system)
        tuned = {_key(one): one for one in _tested(item) if one.comparator == TUNED}
        for one in _tested(item):
            if one.comparator != other or _key(one) not in tuned:
                continue
            twin = tuned[_key(one)]
            total += 1
            lead = item.lead(TUNED, other, item.cells(one.magnitude, one.contrast is Contrast.DEGRADATION))
            better += lead is not None and lead.low > 0
            worse += lead is not None and lead.high < 0
            if lead is not None and lead.differs and one.verdict is not twin.verdict:
                at = "" if one.magnitude is None else f" at {one.magnitude:g}"
                changed.append(f"{item.result.experiment}/{one.prediction}{at}")
            kept += one.verdict is twin.verdict and significantly_better(one) is not None
    answer, text = _flips(changed, kept, total, "verdicts")
    return (
        answer,
        f"of {total} effects, tuning makes the comparator better in {better} and worse in {worse}; {text}",
    )


def untuned_arm(system: System) -> str:
    """Return the arm that is the tuned comparator before its tuning."""
    tuned = next(one for one in system.arms if one.name == TUNED)
    return next(one.name for one in system.arms if not one.search and one.policy == tuned.policy)


def significantly_better(one: HypothesisResult) -> bool | None:
    """Return True if the learned arm is significantly better, False if it is worse, else None."""
    if one.verdict not in (Verdict.SUPPORTED, Verdict.CONTRADICTED):
        return None
    return (one.direction is Direction.WORSE) != (one.verdict is Verdict.SUPPORTED)


def _flips(changed: Sequence[str], kept: int, total: int, what: str) -> Decision:
    """Return the answer to a claim that some conclusions change. One change is enough to see the claim; only
    kept conclusions everywhere exclude it.
    """
    undecided = total - kept - len(changed)
    text = (
        f"of {total} {what}, {len(changed)} change, {kept} are kept, and {undecided} are undecided; "
        f"changed: {_listed(changed)}"
    )
    if changed:
        return ClaimAnswer.SEEN, text
    return (ClaimAnswer.UNDECIDED if undecided or not total else ClaimAnswer.NOT_SEEN), text


def _listed(names: Sequence[str]) -> str:
    """Return the first few names."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{', '.join(names[:LISTED])}{more}" if names else "none"


def _tested(item: Finished) -> Iterator[HypothesisResult]:
    """Yield the hypotheses without degradations that say nothing: an arm cannot degrade if the perturbation
    reaches none of its measurements, and nothing degrades under a lighter load.
    """
    unaffected = {arm for arm in COMPARED if item.is_unaffected(arm)}
    for one in item.result.hypotheses:
        lighter = item.kind == PerturbationKind.WORKLOAD_SHIFT and (one.magnitude or 1.0) < 1
        if one.contrast is not Contrast.DEGRADATION or not (lighter or one.comparator in unaffected):
            yield one


def _key(one: HypothesisResult) -> tuple[str, Contrast, float | None]:
    return (one.prediction.partition("-")[0], one.contrast, one.magnitude)


def _named(item: Finished, prefix: str) -> Iterator[HypothesisResult]:
    return (one for one in item.result.hypotheses if one.prediction.startswith(prefix))


def _seen(true: bool) -> ClaimAnswer:
    return ClaimAnswer.SEEN if true else ClaimAnswer.NOT_SEEN
