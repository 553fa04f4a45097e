"""Tests of the autoscaler of ServingJobs on real nodes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from convoy_controllers.autoscale.decide import decide
from e2e.cluster.cluster import Cluster
from e2e.drive.load_step import MOST, logged_decisions, run_step
from e2e.drive.serving_jobs import ServingJobs


@pytest.mark.full
def test_a_step_of_load_adds_replicas_and_its_end_removes_them(
    cluster: Cluster, serving: ServingJobs
) -> None:
    with logged_decisions(cluster):
        step = run_step(cluster, serving, "step")
    assert step.report["ok"] == step.report["scheduled"] > 0, step.report

    decisions = serving.status("step")["scaling"][0]["decisions"]
    assert (decisions[0]["toReplicas"], decisions[0]["reason"]) == (1, "BelowTarget")
    assert max(one["toReplicas"] for one in decisions) == MOST
    assert step.numbers[-1] == 1 and max(step.numbers) == MOST, step.numbers
    for sync in step.made:
        assert decide(sync.scaling, sync.observed, sync.state, sync.at) == sync.decision
    for before, after in pairwise(step.made):
        assert after.state == before.decision.state, "a decision follows from the one before"
        assert after.observed.spec_replicas == before.decision.desired
    assert step.kubernetes == [sync.decision.desired for sync in step.made]
