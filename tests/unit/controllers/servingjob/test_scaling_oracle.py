"""Tests that the decisions of a running operator can be made again by the oracle."""

from __future__ import annotations

from e2e.oracle.hpa import convoy, live
from tests.unit.controllers.servingjob.test_scaling import SYNC, idle, scaled, servers, waiting

from convoy_controllers.servingjob.scaling.memory import Sync

BEHAVIOR = {
    "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}]},
    "scaleDown": {"stabilizationWindowSeconds": 30},
}


def test_recorded_decisions_are_the_life_of_one_autoscaler() -> None:
    it = servers(behavior=BEHAVIOR)
    syncs: list[Sync] = []
    for load in [waiting(6)] * 4 + [lambda pod: None] + [waiting(3)] * 3 + [idle] * 5:
        it.load = load
        it.step()
        syncs.append(it.memory["worker"].sync)
        it.wait(SYNC + 0.03)
    numbers = [sync.decision.desired for sync in syncs]
    assert numbers[0] == 2 and max(numbers) == 4 and numbers[-1] == 1
    found = convoy.decisions(live.case(scaled(behavior=BEHAVIOR), syncs))
    assert [one["replicas"] for one in found] == numbers
    assert found[4]["conditions"]["ScalingActive"] == ["False", "FailedGetPodsMetric"]
