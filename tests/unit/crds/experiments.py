"""Builders of Experiments for tests."""

from __future__ import annotations

from typing import Any

from convoy_crds.experiment import Experiment, ExperimentSpec


def arm(name: str, role: str, **more: Any) -> dict[str, Any]:
    """Return an arm that simulates."""
    body = {"name": name, "type": "Simulation", "role": role}
    return {**body, "simulation": {"simulator": "autoscaling", "params": {}}, **more}


def spec(**more: Any) -> dict[str, Any]:
    """Return the spec of an experiment with two simulated arms and one prediction."""
    prediction = {"name": "p", "outcome": "late", "candidate": "fast", "comparator": "hpa"}
    return {
        "arms": [arm("fast", "Candidate"), arm("hpa", "Comparator")],
        "outcomes": [{"name": "late", "source": {"metric": "latePercent"}, "better": "Lower"}],
        "predictions": [{**prediction, "direction": "Better"}],
        "store": "s3",
        "blocks": 3,
        **more,
    }


def make_spec(**more: Any) -> ExperimentSpec:
    """Return the model of `spec`."""
    return ExperimentSpec.model_validate(spec(**more))


def make_experiment(name: str = "trial", **more: Any) -> Experiment:
    """Return an experiment with the spec of `spec`."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1}
    return Experiment.model_validate({"metadata": metadata, "spec": spec(**more)})
