"""The claims of the study's abstract, each with the rule that decides on it. The rules are part of the plan.

Claims: "Incentives and Evidence in Learned Service Orchestration" (arXiv 2606.16555), in our words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from convoy_workloads.engines.orchestration import claim_rules as rules
from convoy_workloads.engines.orchestration.arms import LAG
from convoy_workloads.engines.orchestration.claim_rules import MARGIN, OFTEN, SMALL, ClaimAnswer
from convoy_workloads.engines.orchestration.evidence import Finished


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the abstract."""

    text: str
    rule: str
    """Condition on which the claim is seen here, as text."""
    decide: Callable[[Sequence[Finished]], rules.Decision]


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A claim with its answer."""

    name: str
    answer: ClaimAnswer
    reason: str
    """The figures behind the answer, as a sentence."""


def _no_artefact(_: Sequence[Finished]) -> rules.Decision:
    return ClaimAnswer.NOT_DECIDABLE, "no published artefact is part of the study"


INTERVALS = (
    "Only valid experiments count. A claim that the data neither show nor exclude is undecided. The "
    "intervals of effects hold for all hypotheses of an experiment together (Bonferroni). Those of ratios "
    "have the level of the experiment. Two kinds of degradation count in no claim but lag: of an arm whose "
    "runs the perturbation does not change, and under a lighter load."
)
CLAIMS: Mapping[str, Claim] = {
    "reversals": Claim(
        "Most predicted reversals do not occur.",
        "Seen if more than half of the predictions reversal-* are excluded; not seen if half of them or more "
        "are Supported. Excluded: Contradicted, or the interval shows that the learned controller is at most "
        f"{MARGIN:.0%} worse. Undecided ones and collapsed comparators are counted apart. Only comparators "
        "count to which the learned controller does not lose without a perturbation.",
        rules.reversals,
    ),
    "diagnosis": Claim(
        "A failed prediction often says more about the comparator than about the learned controller.",
        f"Seen if at least {OFTEN:.0%} of the failed predictions degrades-own are due to the comparator: it "
        "has collapsed, or the interval shows that it degrades more than the tuned comparator. Failed: "
        "Contradicted or ComparatorCollapsed.",
        rules.diagnosis,
    ),
    "lag": Claim(
        "The learned autoscaler's advantage under lag nearly vanishes against the autoscaler of Kubernetes.",
        f"Decided at a lag of {LAG:g} s; all lags are reported. Seen if the interval of the advantage over "
        "the own comparator lies above 0, and the interval of the share that is left against the tuned "
        f"autoscaler ends at or below {SMALL:.0%}; not seen if that interval begins above it, or if the "
        "learned autoscaler has no advantage.",
        rules.lag,
    ),
    "artefact": Claim(
        "One well-known result cannot be rebuilt from its artefact.",
        "Not decidable: the study rebuilds the methods, and runs none of the published artefacts.",
        _no_artefact,
    ),
    "margin": Claim(
        "The strongest reproducible margin is far below the published one.",
        "Seen if the interval of the unperturbed gain of the learned scheduler over the tuned heuristic lies "
        "below half of the published 21 % (Decima); not seen if it lies above. The publications of the other "
        "two systems state no such figure in their abstracts.",
        rules.margin,
    ),
    "magnitude": Claim(
        "Conclusions reverse with the size of the perturbation.",
        "Seen if a prediction degrades-* or reversal-* is Supported at one magnitude and Contradicted at "
        "another; not seen if each has one and the same verdict at all magnitudes. A lighter load is another "
        "perturbation than a heavier one.",
        rules.magnitude,
    ),
    "mode": Claim(
        "Conclusions reverse with the mode of the evaluation.",
        "Seen if, against one comparator under one condition, the learned controller is significantly "
        "better in the level and significantly worse in the degradation, or the reverse; not seen if both "
        "modes agree everywhere.",
        rules.mode,
    ),
    "untuned": Claim(
        "Our own addition: tuning the comparator changes verdicts.",
        "Seen if a prediction has another verdict against the tuned comparator than against the same "
        "controller untuned, and the interval of the difference between the two effects excludes 0; not seen "
        "if all verdicts are decided and equal.",
        rules.untuned,
    ),
}
"""Each claim by name."""
RULES: Mapping[str, str] = {
    "intervals": INTERVALS,
    **{name: f"{one.text} {one.rule}" for name, one in CLAIMS.items()},
}
"""The rules as text, for the plan."""


def decide_claims(finished: Sequence[Finished]) -> list[ClaimResult]:
    """Return the answer to each claim. Experiments whose controls failed do not count."""
    valid = [one for one in finished if one.result.valid]
    if not valid:
        return [ClaimResult(name, ClaimAnswer.NOT_DECIDABLE, "no experiment is valid") for name in CLAIMS]
    return [ClaimResult(name, *one.decide(valid)) for name, one in CLAIMS.items()]
