"""The engine experiment-analysis: registers the plan of an Experiment, and analyses its blocks."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry

_PLAN = {
    "apiVersion": "convoy.dev/v1alpha1",
    "kind": "Experiment",
    "name": "small",
    "engines": [],
    "spec": {
        "arms": [
            {
                "name": "ours",
                "type": "Simulation",
                "role": "Candidate",
                "simulation": {"simulator": "recovery"},
            },
            {
                "name": "theirs",
                "type": "Simulation",
                "role": "Comparator",
                "simulation": {"simulator": "recovery"},
            },
        ],
        "outcomes": [{"name": "goodput", "better": "Higher", "source": {"metric": "goodput"}}],
        "store": "s3",
        "blocks": 6,
        "predictions": [
            {
                "name": "better",
                "outcome": "goodput",
                "candidate": "ours",
                "comparator": "theirs",
                "direction": "Better",
            }
        ],
    },
}
ENGINE = EngineEntry(
    package=__name__,
    description="Registers the plan of an Experiment, or analyses its blocks and writes the report.",
    role_kind="Training",
    family="tools",
    example="experiment-analysis.yaml",
    small={"action": "register", "plan": _PLAN},
    tool=True,
)
