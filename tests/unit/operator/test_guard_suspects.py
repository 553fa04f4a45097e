"""Tests of a suspect whose job is swapped, so that the node can be tested, with an API server in memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.conftest import FakeApi
from tests.unit.operator.guarded_cluster import MINUTE, Cluster

from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import Slow
from convoy_controllers.resources import HEALTH_SWEEPS, NODE_HEALTHS, PODS

SECOND = timedelta(seconds=1)
LOST = 130.0
"""GPU-seconds that exceed the cost of a swap, which is two minutes of two ranks."""


def suspect(it: Cluster, node: str, loss: float, cause: str = "Compute") -> None:
    """Let the job suspect a node: its rank has too few peers for a proof."""
    found = Suspicion("default/job", it.now - 5 * MINUTE, it.now, 1.5, loss, cause, gain=0.5, ranks=(0,))
    it.hub.seen[node] = (found,)


def status(it: Cluster, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = it.api.objects[NODE_HEALTHS.plural, "", f"hw{number}"]["status"]
    return found


def suspected(api: FakeApi, cause: str = "Compute", **policy: Any) -> Cluster:
    """Return a cluster whose node n0 is a suspect that has cost its job as much as a swap costs."""
    it = Cluster(api, **{"sweeps": {}, **policy})
    it.reconcile()
    it.pace_of(1, 2.0, "n0", "n1")
    suspect(it, "n0", LOST, cause)
    it.reconcile()
    return it


def saved_since(it: Cluster) -> Cluster:
    """Let the job save its state after the suspicion was recorded."""
    it.job(saved=timedelta(0))
    it.reconcile(5 * SECOND)
    it.reconcile()
    it.reconcile()
    return it


def test_job_is_swapped_off_a_suspect_at_its_next_checkpoint_and_the_node_is_tested(api: FakeApi) -> None:
    it = suspected(api)
    assert status(it)["noticed"]["cause"] == "Compute"
    assert it.ours() == {} and it.evicted() == [], "the job has not saved its state since then"
    it.now += 5 * SECOND
    saved_since(it)
    assert it.state() == "Unverified" and it.evicted() == ["job-worker-0"]
    assert it.ours() == {"convoy.dev/unqualified": "NoSchedule"}, "no other pod may run beside the test"
    assert it.node()["metadata"]["labels"]["convoy.dev/node-health"] == "Sweeping"
    (action,) = status(it)["actions"]
    assert action["test"] and action["jobs"] == ["default/job"] and action["paces"][0]["gain"] == 0.5
    (sweep,) = (raw for (plural, _, _), raw in api.objects.items() if plural == HEALTH_SWEEPS.plural)
    assert sweep["spec"]["nodes"] == ["n0"] and sweep["metadata"]["name"] == status(it)["sweep"]["name"]
    assert "quarantines" not in status(it) and "evidence" not in status(it)


@pytest.mark.parametrize(
    ("policy", "job", "cause", "loss"),
    [
        pytest.param({"mode": "Observe"}, {}, "Compute", LOST, id="observe"),
        pytest.param({"sweeps": None}, {}, "Compute", LOST, id="no sweeps"),
        pytest.param({"budgets": {"reservedSpares": 4}}, {}, "Compute", LOST, id="no spare node"),
        pytest.param({}, {"action": "Observe"}, "Compute", LOST, id="the job forbids it"),
        pytest.param({}, {}, "Input", LOST, id="late input"),
        pytest.param({}, {}, "Compute", 100.0, id="a swap costs more"),
    ],
)
def test_job_stays_on_a_suspect(
    api: FakeApi, policy: dict[str, Any], job: dict[str, Any], cause: str, loss: float
) -> None:
    it = suspected(api, cause, **policy)
    it.now += 5 * SECOND
    it.job(saved=timedelta(0), **job)
    suspect(it, "n0", loss, cause)
    it.reconcile(5 * SECOND)
    it.reconcile()
    assert it.evicted() == [] and it.ours() == {} and "sweep" not in status(it)


def test_blocked_swap_for_a_test_is_explained(api: FakeApi) -> None:
    it = suspected(api, budgets={"reservedSpares": 4})
    it.now += 5 * SECOND
    saved_since(it)
    assert it.acting()["status"] == "False" and it.acting()["reason"] == "SparesBudget"


def test_one_job_is_swapped_for_one_test_at_a_time(api: FakeApi) -> None:
    it = suspected(api, sweeps={"atOncePercent": 100}, budgets={"fleetPercentPerHour": 100})
    suspect(it, "n1", LOST)
    it.reconcile()
    it.now += 5 * SECOND
    saved_since(it)
    assert it.evicted() == ["job-worker-0"] and it.ours(1) == {}


@pytest.mark.parametrize("verdict", ["Pass", "Inconclusive"])
def test_tested_node_returns_to_service_and_is_not_tested_again_soon(api: FakeApi, verdict: str) -> None:
    it = suspected(api)
    it.now += 5 * SECOND
    saved_since(it)
    name = status(it)["sweep"]["name"]
    api.objects.pop((PODS.plural, "default", "job-worker-0"))
    it.cache.pods.remove(next(pod for pod in it.cache.pods if pod.name == "job-worker-0"))
    sweep = api.objects[HEALTH_SWEEPS.plural, "", name]
    at = f"{it.now + MINUTE:%Y-%m-%dT%H:%M:%SZ}"
    found = {"node": "n0", "hardware": "hw0", "verdict": verdict, "tier": "L1", "at": at}
    api.put(HEALTH_SWEEPS, {**sweep, "status": {"nodes": [found]}})
    it.hub.seen.clear()
    it.reconcile(2 * MINUTE)
    it.reconcile()
    assert it.state() == ("Qualified" if verdict == "Pass" else "Unverified") and it.ours() == {}
    assert "noticed" not in status(it) and "sweep" not in status(it)
    it.job(saved=timedelta(0))
    suspect(it, "n0", LOST)
    it.reconcile(5 * SECOND)
    assert "noticed" not in status(it)


def test_job_that_is_as_slow_elsewhere_is_not_swapped_again(api: FakeApi) -> None:
    """The rank's own work is the cause, so no other node is suspected of it."""
    it = suspected(api)
    it.now += 5 * SECOND
    saved_since(it)
    again = Slow(frozenset((0,)), "Compute", 0.5)
    it.pace_of(2, 2.0, "n2", "n1", slow=(again,))
    it.hub.seen.clear()
    suspect(it, "n2", LOST)
    it.reconcile(30 * MINUTE)
    it.reconcile()
    (action,) = status(it)["actions"]
    assert action["outcome"] == "Wrong" and action["paces"][0]["followed"]
    assert it.state() == "Unverified" and "noticed" not in status(it, 2)
