"""The Experiment `autoscalers` of an invented cluster: it has ended with four verdicts."""

from __future__ import annotations

import random
from typing import Any

from tests.integration.dashboard.conftest import Cluster
from tests.integration.dashboard.machines import condition
from tests.integration.dashboard.times import at

NAME = "autoscalers"
LATE = {"forecast": (4.0, 16.0), "hpa": (6.0, 7.5), "static": (9.0, 9.5)}
"""Percentage of late requests of each arm, without and with a lag of 60 s."""
BLOCKS = 10


def create(cluster: Cluster) -> None:
    """Create the experiment with its blocks and verdicts."""
    cluster.make(
        "experiments",
        {"kind": "Experiment", "metadata": {"name": NAME, "namespace": "default"}, "spec": _spec(),
         "status": _status()},
    )  # fmt: skip


def _spec() -> dict[str, Any]:
    roles = {"forecast": "Candidate", "hpa": "Comparator", "static": "Naive"}
    compared = {"outcome": "late", "candidate": "forecast", "comparator": "hpa"}
    return {
        "arms": [
            {"name": name, "type": "Simulation", "role": role, "simulation": {"simulator": "autoscaling"}}
            for name, role in roles.items()
        ],
        "outcomes": [
            {"name": "late", "unit": "%", "better": "Lower", "source": {"metric": "latePercent"}},
            {"name": "hours", "unit": "h", "better": "Lower", "source": {"metric": "podHours"}},
        ],
        "perturbations": [{"name": "lag", "kind": "ObservationLag", "magnitudes": [60]}],
        "predictions": [
            {"name": "less-late", "direction": "Better", **compared},
            {"name": "worse-with-lag", "direction": "Worse", "perturbation": "lag", **compared},
            {"name": "no-costlier", "direction": "NotWorse", "margin": 2, **compared, "outcome": "hours"},
        ],
        "store": "s3-main",
        "blocks": BLOCKS,
    }


def _status() -> dict[str, Any]:
    verdicts = [
        _verdict("less-late", "Supported", 2.0, 0.004),
        _verdict("worse-with-lag", "Supported", -8.5, 0.004, perturbation="lag", magnitude=60),
        _verdict("no-costlier", "Undecided", -0.4, 0.31),
    ]
    return {
        "observedGeneration": 1,
        "phase": "Succeeded",
        "reason": "VerdictsReady",
        "message": "2 Supported, 1 Undecided",
        "progress": f"{2 * BLOCKS}/{2 * BLOCKS}",
        "percent": 100,
        "failedBlocks": 1,
        "startTime": at(hours=1),
        "completionTime": at(minutes=4),
        "plan": {"hash": f"sha256:{'5e' * 32}", "registeredAt": at(hours=1)},
        "conditions": [condition("Registered", "True", "PlanRegistered", "the store has the plan")],
        "blocks": [_block(number) for number in range(2 * BLOCKS)],
        "controls": [{"name": "offered requests", "passed": True, "message": "equal in all blocks"}],
        "verdicts": verdicts,
        "summary": "2 Supported, 1 Undecided",
        "artefact": {"store": "s3-main", "jobUid": "u-1", "digest": f"sha256:{'a1' * 32}"},
    }


def _verdict(prediction: str, verdict: str, effect: float, p: float, **more: Any) -> dict[str, Any]:
    return {
        "prediction": prediction,
        "verdict": verdict,
        "effect": effect,
        "low": effect - 1.2,
        "high": effect + 1.1,
        "p": p,
        "minimumEffect": 1.5,
        "blocks": BLOCKS,
        **more,
    }


def _block(number: int) -> dict[str, Any]:
    repetition, perturbed = divmod(number, 2)
    drawn = random.Random(number)
    figures = [
        {"arm": arm, "outcome": outcome, "value": round(value * drawn.uniform(0.9, 1.1), 3)}
        for arm, late in LATE.items()
        for outcome, value in (("late", late[perturbed]), ("hours", 30 - late[0]))
    ]
    condition_of = {"perturbation": "lag", "magnitude": 60} if perturbed else {}
    failed = number == 7
    failure = {"arm": "hpa", "reason": "JobFailed", "message": "rank 0 exited with code 3"}
    return {
        "id": number,
        "repetition": repetition,
        "seed": 1000 + repetition,
        **condition_of,
        "figures": [one for one in figures if not (failed and one["arm"] == "hpa")],
        "failures": [failure] if failed else [],
        "startTime": at(minutes=60 - 2 * number),
        "completionTime": at(minutes=59 - 2 * number),
    }
