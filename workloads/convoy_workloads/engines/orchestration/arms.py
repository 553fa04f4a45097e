"""The arms of the study: learned controllers and their comparators, by system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_workloads.engines.orchestration.params import KindName, SystemName

LEARNED, OWN, DEFAULT, TUNED = "learned", "own", "default", "tuned"
"""Names of the arms that predictions compare. `own` is the comparator of the learned system's publication."""
COMPARED = (OWN, DEFAULT, TUNED)
"""Arms with which the learned arm is compared."""
SECOND, ROBUST = "second", "robust"
"""Names of further tuned comparators, about which there are no predictions."""
SAME, BROKEN = "same", "broken"
"""Names of the controls: the learned arm again, and the learned arm with shuffled weights."""


@dataclass(frozen=True, kw_only=True)
class StudyArm:
    """A controller that the study compares."""

    name: str
    role: str
    """Role of the arm in the Experiment."""
    text: str
    """Controller in words."""
    policy: Mapping[str, Any]
    """Field `policy` of the simulator's parameters, before the tuning."""
    search: tuple[Mapping[str, Any], ...] = ()
    """The parameters that the tuning chooses."""
    tuned_under: tuple[KindName, float] | None = None
    """Perturbation, with its magnitude, of every second window of the tuning; None for undisturbed ones. An
    Experiment tunes on undisturbed windows, so such an arm runs beside it and has no predictions.
    """


def _double(path: str, low: float, high: float, log: bool = False) -> dict[str, Any]:
    return {"path": f"policy.{path}", "type": "Double", "min": low, "max": high, "log": log}


def _int(path: str, low: int, high: int) -> dict[str, Any]:
    return {"path": f"policy.{path}", "type": "Int", "min": low, "max": high}


def _one_of(path: str, *values: str) -> dict[str, Any]:
    return {"path": f"policy.{path}", "type": "Categorical", "values": list(values)}


LAG = 60.0
"""Seconds of lag at which the claim `lag` is decided: the window of a custom metric in Kubernetes, if the
metric states none.
"""
_HPA_SEARCH = (
    _double("target", 20.0, 95.0),
    _double("tolerance", 0.0, 0.3),
    _int("downscaleStabilizationSeconds", 0, 900),
)
_NETWORK = (_double("temperature", 0.0, 1.0), _double("startBias", -2.0, 2.0))
_AUTOSCALING = (
    StudyArm(
        name=LEARNED,
        role="Candidate",
        text="table learnt by Dyna-Q, after Rossi et al.",
        policy={"name": "q-learning", "trainingWindows": 24, "learningRate": 0.05},
        search=(
            _double("latePenalty", 0.5, 50.0, log=True),
            _double("discount", 0.5, 0.98),
            _double("changePenalty", 0.0, 0.1),
            _int("intervalSeconds", 15, 120),
        ),
    ),
    StudyArm(
        name=OWN,
        role="Default",
        text="threshold policy, one replica at a time",
        policy={"name": "threshold"},
    ),
    StudyArm(
        name=DEFAULT,
        role="Default",
        text="HorizontalPodAutoscaler with its defaults, 80 % CPU",
        policy={"name": "hpa"},
    ),
    StudyArm(
        name=TUNED,
        role="Comparator",
        text="HorizontalPodAutoscaler, tuned",
        policy={"name": "hpa"},
        search=_HPA_SEARCH,
    ),
    StudyArm(
        name=ROBUST,
        role="Comparator",
        text=f"HorizontalPodAutoscaler, tuned under a lag of {LAG:g} s in half of the windows",
        policy={"name": "hpa"},
        search=_HPA_SEARCH,
        tuned_under=("ObservationLag", LAG),
    ),
    StudyArm(
        name=SECOND,
        role="Comparator",
        text="forecast by Holt's smoothing, tuned",
        policy={"name": "forecast"},
        search=(
            _double("target", 20.0, 95.0),
            _double("horizonSeconds", 0.0, 300.0),
            _double("level", 0.05, 1.0),
            _int("holdSeconds", 0, 900),
        ),
    ),
    # A fixed number could be less late at the price of more replicas, so it would show no collapse.
    StudyArm(name="naive", role="Naive", text="a random number of replicas", policy={"name": "random"}),
)
_DAG_SCHEDULING = (
    StudyArm(
        name=LEARNED,
        role="Candidate",
        text="network trained by policy gradient, after Decima",
        policy={"name": "learned"},
        search=_NETWORK,
    ),
    StudyArm(name=OWN, role="Default", text="fair share", policy={"name": "weighted-fair"}),
    StudyArm(name=DEFAULT, role="Default", text="FIFO, the default of Spark", policy={"name": "fifo"}),
    StudyArm(
        name=TUNED,
        role="Comparator",
        text="weighted fair share, tuned",
        policy={"name": "weighted-fair"},
        search=(_double("exponent", -3.0, 3.0), _double("limit", 0.1, 1.0)),
    ),
    StudyArm(
        name=SECOND,
        role="Comparator",
        text="gang scheduling, tuned",
        policy={"name": "gang"},
        search=(_double("share", 0.1, 1.0), _one_of("order", "oldest", "shortest")),
    ),
    StudyArm(name="naive", role="Naive", text="longest job first", policy={"name": "longest-job"}),
)
_ORDER = _one_of("order", "oldest", "shortest", "packing")
_ALLOCATION = (
    StudyArm(
        name=LEARNED,
        role="Candidate",
        text="network that chooses job and size, after DeepRM",
        policy={"name": "learned"},
        search=_NETWORK,
    ),
    StudyArm(
        name=OWN,
        role="Default",
        text="Tetris: packing and short jobs first, with the owners' requests",
        policy={"name": "ordered", "order": "packing"},
    ),
    StudyArm(
        name=DEFAULT,
        role="Default",
        text="oldest job first, sizes by VerticalPodAutoscaler with its defaults",
        policy={"name": "ordered", "order": "oldest", "sizing": {"name": "vpa"}},
    ),
    StudyArm(
        name=TUNED,
        role="Comparator",
        text="order and sizes by decaying histogram (VerticalPodAutoscaler), tuned",
        policy={"name": "ordered", "order": "oldest", "sizing": {"name": "vpa"}},
        search=(
            _ORDER,
            _double("shortness", 0.0, 1.0),
            _double("sizing.percentile", 50.0, 100.0),
            _double("sizing.margin", -0.1, 0.5),
            _double("sizing.halfLifeSeconds", 60.0, 86_400.0, log=True),
        ),
    ),
    StudyArm(
        name=SECOND,
        role="Comparator",
        text="order and sizes by moving window (Autopilot's rule), tuned",
        policy={"name": "ordered", "order": "oldest", "sizing": {"name": "autopilot"}},
        search=(
            _ORDER,
            _double("shortness", 0.0, 1.0),
            _int("sizing.samples", 4, 100),
            _double("sizing.margin", -0.1, 0.5),
        ),
    ),
    StudyArm(
        name="naive",
        role="Naive",
        text="longest job first, with the owners' requests",
        policy={"name": "ordered", "order": "longest"},
    ),
)
ARMS: Mapping[SystemName, tuple[StudyArm, ...]] = {
    "autoscaling": _AUTOSCALING,
    "dag-scheduling": _DAG_SCHEDULING,
    "allocation": _ALLOCATION,
}
