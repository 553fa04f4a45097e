"""The engine experiment-simulation: one simulated run of an Experiment, or the tuning of one arm."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry, Metric

ENGINE = EngineEntry(
    package=__name__,
    description="Simulates one run of an Experiment's arm, or tunes the parameters of the arm.",
    role_kind="Training",
    family="tools",
    example="experiment-simulation.yaml",
    small={"action": "run", "simulator": "autoscaling", "params": {"seconds": 600}, "seed": 1},
    metrics=(Metric("best_score", help="Best value of the tuned figure so far. Only while it tunes."),),
    tool=True,
)
