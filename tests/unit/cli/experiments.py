"""An Experiment with results for tests of the command line."""

from __future__ import annotations

from typing import Any

from tests.unit.crds.experiments import make_experiment

from convoy_crds.experiment import Experiment

LAG = [{"name": "lag", "kind": "ObservationLag", "magnitudes": [60.0]}]
PLAN = "sha256:" + "ab" * 32
RESULT = "sha256:" + "cd" * 32


def figures(fast: float, hpa: float | None) -> list[dict[str, Any]]:
    """Return the figures of one block."""
    values = {"fast": fast, "hpa": hpa}
    return [
        {"arm": arm, "outcome": "late", "value": value} for arm, value in values.items() if value is not None
    ]


def block(number: int, *values: Any, **more: Any) -> dict[str, Any]:
    """Return a block that has ended."""
    return {"id": number, "repetition": number, "seed": 7, "figures": figures(*values), **more}


BLOCKS = [
    block(0, 1.25, 5.0),
    block(1, 2.25, 6.0),
    block(2, 9.0, None, failures=[{"arm": "hpa", "reason": "JobFailed", "message": "exit code 1"}]),
    block(3, 4.0, 8.0, perturbation="lag", magnitude=60.0),
]
VERDICT = {
    "prediction": "p",
    "verdict": "Supported",
    "effect": 3.75,
    "low": 2.0,
    "high": 5.5,
    "p": 0.03125,
    "minimumEffect": 1.5,
    "blocks": 2,
}
ENDED: dict[str, Any] = {
    "phase": "Succeeded",
    "reason": "VerdictsReady",
    "message": "1 Supported",
    "progress": "4/6",
    "failedBlocks": 1,
    "plan": {"hash": PLAN, "registeredAt": "2026-01-01T12:00:00Z"},
    "blocks": BLOCKS,
    "controls": [{"name": "A/A", "passed": True, "message": "no difference"}],
    "verdicts": [VERDICT],
    "summary": "1 Supported",
    "tuning": [
        {
            "arm": "hpa",
            "trials": 20,
            "best": 0.5,
            "values": [{"path": "target", "value": "70", "atEdge": True}],
        }
    ],
    "artefact": {"store": "s3", "jobUid": "uid-1", "digest": RESULT},
}


def experiment(spec: dict[str, Any] | None = None, **status: Any) -> Experiment:
    """Return the experiment `trial` with a status."""
    made = make_experiment(**{"perturbations": LAG, **(spec or {})}).to_dict()
    return Experiment.model_validate({**made, "status": status})
