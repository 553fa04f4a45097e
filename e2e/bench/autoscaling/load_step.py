"""Measures a step of load on real nodes, and compares each decision with Kubernetes' own controller."""

from __future__ import annotations

from convoy_workloads.bench.figures import Figures, Metric
from e2e.cluster.progress import Progress
from e2e.drive.jobs import restricted_namespace
from e2e.drive.load_step import MOST, logged_decisions, run_step
from e2e.drive.serving_jobs import ServingJobs
from e2e.install import bring_up

TITLE = f"a step of load on nodes, 1 to {MOST} replicas and back"


def add(found: Figures, progress: Progress) -> None:
    """Measure one step, and add the rows."""
    cluster = bring_up("step", 3, progress)
    try:
        serving = ServingJobs.of(cluster, restricted_namespace(cluster, "step"))
        with logged_decisions(cluster):
            step = run_step(cluster, serving, "step")
    finally:
        cluster.down()
    pairs = zip(step.made, step.kubernetes, strict=True)
    differ = sum(sync.decision.desired != theirs for sync, theirs in pairs)
    found.add(Metric(f"{TITLE}: decisions that differ from Kubernetes'", "decisions", 0), differ)
    found.add(Metric(f"{TITLE}: decisions", "decisions"), len(step.made))
    found.add(Metric(f"{TITLE}: most replicas", "replicas", MOST, higher_is_better=True), max(step.numbers))
    found.add(Metric(f"{TITLE}: replicas at the end", "replicas", 1), step.numbers[-1])
    lost = step.report["scheduled"] - step.report["ok"]
    found.add(Metric(f"{TITLE}: requests without a complete response", "requests", 0), lost)
