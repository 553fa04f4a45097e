"""The arms of the comparison: the engine, its baselines, and the engine without one mechanism at a time.

Every arm has the same number of tuning trials, on the same windows, which are never used again. The strongest
baseline, `async-pods`, has all mechanisms of the workers too, so that only the learning differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SPOTLIGHT = "spotlight"
STRONGEST = "async-pods"
EXPLORED = "spotlight-explored"
CONTROL = "no-exploring"
"""The engine with its mechanism switched off: all nodes sample, and no seed is chosen."""
SHAM = "no-choice"
"""The engine with all its work, whose choice of seeds ignores their rewards."""
_RATES: tuple[Mapping[str, Any], ...] = (
    {"path": "learningRate", "type": "Double", "min": 2e-3, "max": 3e-2, "log": True},
    {"path": "kl", "type": "Double", "min": 1e-3, "max": 0.1, "log": True},
)
_SEEDS: Mapping[str, Any] = {"path": "maxSeeds", "type": "Int", "min": 8, "max": 64}
_PLAIN = {"elastic": False, "warm": False}
"""Groups are pairs, and their workers start anew with each change."""
_NO_SPOT = {"spot": 0}
_FRESH = {"explore": 0, "rollout": 0}
_ONE_BEHIND = {"explore": 1, "rollout": 1}
_EXPLORED: Mapping[str, Any] = {"trainOn": "explored", "staleness": _ONE_BEHIND, "canary": {"seeds": 0}}


@dataclass(frozen=True, slots=True)
class StudyArm:
    """A variant of the engine that the study compares."""

    name: str
    description: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the common parameters of the simulator."""
    explores: bool = True
    weak: bool = False
    """True for a baseline that the engine is expected to beat."""

    @property
    def search(self) -> tuple[Mapping[str, Any], ...]:
        """Return the parameters that are tuned, and their ranges."""
        return (*_RATES, _SEEDS) if self.explores else _RATES


ARMS: tuple[StudyArm, ...] = (
    StudyArm(SPOTLIGHT, "the engine with all mechanisms", {"planner": "gain"}),
    StudyArm(
        "on-demand",
        "no spot nodes and no exploring",
        {"selection": "none", "cluster": _NO_SPOT},
        explores=False,
        weak=True,
    ),
    StudyArm(
        "on-demand-best-of-n",
        "no spot nodes; the exploring comes first",
        {"staleness": _FRESH, "cluster": _NO_SPOT},
        weak=True,
    ),
    StudyArm(
        "spot-restart",
        "rollouts on spot nodes, which idle during the training; lost requests start anew",
        {"selection": "none", "systems": {**_PLAIN, "commits": False}},
        explores=False,
        weak=True,
    ),
    StudyArm(
        "static-split",
        "rollouts are dealt out in equal shares",
        {"selection": "none", "systems": {**_PLAIN, "commits": False, "pull": False}},
        explores=False,
        weak=True,
    ),
    StudyArm(
        "fresh-pods",
        "exploring with fresh weights, first, on all nodes; the engine without M3",
        {"staleness": _FRESH},
    ),
    StudyArm(
        STRONGEST,
        "trains on explored samples of one version before, with a ratio for each step",
        _EXPLORED,
    ),
    StudyArm(
        EXPLORED,
        "the engine with trainOn: explored, so the planner is all that differs from the strongest baseline",
        {"planner": "gain", **_EXPLORED},
    ),
    StudyArm("minus-warm-regroup", "without M4", {"planner": "gain", "systems": {"warm": False}}),
    StudyArm("minus-planner", "without M5: the same number of seeds for all prompts"),
    StudyArm(
        "minus-elastic",
        "without M6: all groups are pairs",
        {"planner": "gain", "systems": {"elastic": False}},
    ),
    StudyArm(
        "minus-pull",
        "without M7: shares instead of leases, and no saved steps",
        {"planner": "gain", "systems": {"pull": False, "commits": False}},
    ),
    StudyArm(
        "oracle", "the workers know the end of each node", {"planner": "gain", "systems": {"foresight": True}}
    ),
    StudyArm(
        CONTROL,
        "rollouts on all nodes with all mechanisms of the workers",
        {"selection": "none"},
        explores=False,
    ),
    StudyArm(
        SHAM,
        "explores as the engine does, and then trains on the seeds that were explored first",
        {"planner": "gain", "choose": "first"},
    ),
)  # fmt: skip

_SMALL_GROUPS: Mapping[str, Any] = {"groupSize": 4}
IDEAS: tuple[StudyArm, ...] = tuple(
    StudyArm(
        f"{arm}-small-groups",
        f"{arm}, with half as many samples of a prompt that are trained on",
        {**params, **_EXPLORED, **_SMALL_GROUPS},
    )
    for arm, params in ((EXPLORED, {"planner": "gain"}), (STRONGEST, {}))
)
"""An idea against the strongest baseline, for the engine and for the baseline, so that a gain of the idea is
not taken for a gain of the engine.
"""
