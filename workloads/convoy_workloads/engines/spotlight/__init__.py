"""The engine spotlight: reinforcement learning of a flow policy. Spot nodes explore seeds while it trains."""

from __future__ import annotations

from convoy_workloads.engines.entry import EngineEntry, Metric
from convoy_workloads.engines.spotlight.request_counts import MEANINGS, metric_name

ENGINE = EngineEntry(
    package=__name__,
    description="Trains a flow policy by GRPO, while spot nodes explore seeds for the next iteration.",
    role_kind="Training",
    family="ray",
    example="spotlight.yaml",
    small={
        "steps": 12,
        "problem": {
            "kind": "ring",
            "prompts": 4,
            "modes": 4,
            "width": 16,
            "pretrainingSteps": 20,
            "pretrainingBatch": 64,
        },
        "samplerSteps": 4,
        "promptsPerIteration": 2,
        "groupSize": 4,
        "maxSeeds": 8,
        "evaluationSeeds": 2,
        "cluster": {"bootSeconds": 5},
    },
    metrics=(
        Metric("held_out_reward", help="Mean reward of samples that the policy never trains on."),
        Metric("zero_contrast_ratio", "ratio", "Share of the groups whose rewards are almost equal."),
        Metric("explored_seeds", help="Seeds that were explored for the iteration."),
        Metric(
            "rank_correlation",
            help="Spearman correlation of stale and fresh rewards; 1 before the first check.",
        ),
        Metric("stale_trips", help="Iterations whose exploring had to wait for fresh weights."),
        Metric("idle_spot_ratio", "ratio", "Share of the spot nodes' time without work."),
        Metric("spend", help="Cost of all nodes, in the unit of the prices."),
        Metric("trained_samples", help="Samples that were trained on so far."),
        Metric("workers_failed", help="Workers that failed on a node that stays, since the trainer started."),
        Metric(
            "unobserved_seconds",
            "seconds",
            "Time between checkpoints and restarts of the trainer. `spend` lacks pods that came and went.",
        ),
        *(Metric(metric_name(name), help=f"Number of {one}.") for name, one in MEANINGS.items()),
    ),
    paper="[Spotlight](https://arxiv.org/abs/2606.19004)",
)
