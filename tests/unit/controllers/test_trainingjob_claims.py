"""Tests of jobs that make room for a job of higher priority, and of the job that claims the room."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from convoy_controllers.cached import CachedObject, Node
from convoy_controllers.placement.rooms import NodeRoom, Rooms
from convoy_controllers.placement.yielding import SparePod
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.claiming import CLAIM_SECONDS, claims_of, standing
from convoy_controllers.trainingjob.observed import Observed, Yielded
from convoy_crds.trainingjob_status import Phase

SAVES = {"tiers": {"local": {}}}
CPU = {"cpu": 1000, "pods": 1000}


class Neighbours(ToyCluster):
    """A toy cluster whose job has neighbours that it cannot see itself."""

    rooms: Rooms | None = None
    spare: tuple[SparePod, ...] = ()
    yielded: tuple[Yielded, ...] = ()

    def observed(self) -> Observed:
        found = super().observed()
        return replace(found, rooms=self.rooms, spare=self.spare, yielded=self.yielded, priority=10)


def elastic(**spec: Any) -> Neighbours:
    roles = [{"name": "worker", "replicas": 3, "minReplicas": 2}]
    return Neighbours(make_job(roles=roles, checkpoint=SAVES, **spec), make_engine())


def room(free: int, **labels: str) -> dict[str, NodeRoom]:
    labels = {"convoy.dev/agent-ready": "true", **labels}
    size = {"cpu": 8000, "pods": 110_000}
    node = Node("n1", "uid", 1, agent_ready=True, ready=True, labels=labels, allocatable=size)
    return {"n1": NodeRoom(node, {"cpu": free * 1000, "pods": 110_000})}


def claimant(**spec: Any) -> Neighbours:
    limits = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    roles = [{"name": "worker", "replicas": 2, "template": {"spec": limits}}]
    cluster = Neighbours(make_job(roles=roles, **spec), make_engine())
    cluster.spare = (SparePod("default/low", "worker", 2, "n1", CPU),)
    cluster.rooms = room(1)
    return cluster


def test_a_claimed_pod_leaves_and_the_job_goes_on_without_it() -> None:
    cluster = elastic().settle().train(5).settle().wait(10)
    cluster.yielded = (Yielded("worker", 2, "default/high", 100),)
    cluster.settle().wait(60).settle()
    status = cluster.job.status
    assert (status.phase, status.ready, status.roles[0].absent) == (Phase.RUNNING, "2/3", [2])
    assert status.restarts.last is not None and status.restarts.last.reason == "Yielded"
    assert "default/high (priority 100, this job 10)" in status.restarts.last.message
    assert (status.restarts.total, status.restarts.counted) == (1, 0)
    assert "job-worker-2" not in cluster.pods


def test_the_pod_comes_back_when_the_claim_ends() -> None:
    cluster = elastic().settle().train(5).settle().wait(10)
    cluster.yielded = (Yielded("worker", 2, "default/high", 100),)
    cluster.settle().wait(60).settle()
    cluster.yielded = ()
    cluster.settle().wait(30).train(20).settle().commit(20).settle().wait(10).settle()
    assert cluster.job.status.ready == "3/3"
    assert cluster.job.status.roles[0].absent == []


def test_a_job_without_room_claims_pods_and_holds_no_nodes_meanwhile() -> None:
    cluster = claimant().settle()
    placed = cluster.job.status.placement
    assert placed is not None
    assert [(one.namespace, one.job, one.replica) for one in placed.claims] == [("default", "low", 2)]
    assert (cluster.job.status.reason, placed.priority, cluster.pods) == ("MakingRoom", 10, {})
    assert "default/low (1)" in cluster.job.status.message


def test_the_claim_holds_until_the_job_has_started() -> None:
    cluster = claimant().settle()
    cluster.spare, cluster.rooms = (), room(2)
    made = cluster.step()
    assert len(made.manifests) == 2
    assert cluster.job.status.placement is not None and cluster.job.status.placement.claims
    cluster.settle()
    assert cluster.job.status.formed
    assert cluster.job.status.placement is None or not cluster.job.status.placement.claims


def test_a_claim_that_brings_no_room_ends_the_wait_in_time() -> None:
    cluster = claimant().settle().wait(CLAIM_SECONDS - 1).settle()
    assert not cluster.pods
    cluster.wait(2).step()
    assert len(cluster.pods) == 2


@pytest.mark.parametrize("end", [{"suspend": True}, {"engine": {"name": "gone"}}])
def test_a_job_that_stops_waiting_frees_the_pods_that_it_claimed(end: dict[str, Any]) -> None:
    cluster = claimant().settle().spec(**end)
    cluster.engine = None if "engine" in end else cluster.engine
    cluster.settle()
    placed = cluster.job.status.placement
    assert placed is None or not placed.claims


def test_jobs_with_room_and_jobs_that_nobody_helps_start_at_once() -> None:
    cluster = claimant()
    cluster.rooms = room(2)
    assert len(cluster.step().manifests) == 2
    other = claimant()
    other.rooms = room(0)
    assert len(other.step().manifests) == 2


@pytest.mark.parametrize(
    ("phase", "count"), [(None, 1), ("Pending", 1), ("Restarting", 1), ("Running", 0), ("Failed", 0)]
)
def test_claims_of_running_and_ended_jobs_do_not_count(phase: str | None, count: int) -> None:
    status = {"phase": phase, "placement": {"claims": [{"job": "a"}]}}
    raw = {"metadata": {}, "status": {name: one for name, one in status.items() if one is not None}}
    assert len(claims_of(CachedObject("default", "j", "u", 1, raw))) == count


def test_a_job_that_is_being_deleted_claims_nothing() -> None:
    status = {"phase": "Pending", "placement": {"claims": [{"job": "a"}]}}
    raw = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": status}
    assert claims_of(CachedObject("default", "j", "u", 1, raw)) == ()


def test_an_old_claim_does_not_count() -> None:
    placed = {"claims": [{"job": "a"}], "claimedAt": "2026-01-01T00:00:00Z"}
    job = CachedObject("default", "j", "u", 1, {"metadata": {}, "status": {"placement": placed}})
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert len(standing(job, start + timedelta(seconds=CLAIM_SECONDS))) == 1
    assert standing(job, start + timedelta(seconds=CLAIM_SECONDS + 61)) == ()


def test_a_claim_is_dropped_in_time_although_the_job_still_waits_for_a_rack() -> None:
    cluster = claimant(placement={"topologyKeys": ["rack"], "pack": "Required"})
    cluster.rooms = room(1, rack="r1")
    cluster.settle().wait(CLAIM_SECONDS + 1).settle()
    placed = cluster.job.status.placement
    assert placed is not None and placed.claims == []
    assert (cluster.job.status.reason, cluster.pods) == ("NoRoomTogether", {})
    cluster.wait(3600).settle()
    assert cluster.job.status.placement is not None and cluster.job.status.placement.claims


def test_nobody_gives_up_a_pod_for_pods_that_the_api_server_refuses() -> None:
    cluster = claimant()
    made = cluster.step()
    assert [type(one).__name__ for one in made.children if one.resource.kind == "Pod"] == ["Check"]
    placed = cluster.job.status.placement
    assert placed is not None and placed.claims == []
    cluster.create_errors = {"job-worker-0": "exceeded quota"}
    cluster.settle()
    placed = cluster.job.status.placement
    assert placed is None or placed.claims == []
    assert cluster.job.status.reason == "PodRejected"


def test_an_elastic_job_with_its_least_pods_claims_none() -> None:
    cluster = elastic().settle().train(5).settle().wait(10)
    cluster.spare, cluster.rooms = (SparePod("default/low", "worker", 2, "n1", CPU),), room(0)
    cluster.schedulable = False
    cluster.lose("job-worker-2").settle()
    placed = cluster.job.status.placement
    assert placed is None or placed.claims == []


def test_a_held_job_gives_back_pods_that_wait_for_a_node() -> None:
    cluster = claimant(placement={"topologyKeys": ["rack"], "pack": "Required"})
    cluster.spare, cluster.rooms, cluster.schedulable = (), room(2, rack="r1"), False
    cluster.settle()
    assert len(cluster.pods) == 2
    cluster.rooms = room(0, rack="r1")
    cluster.lose("job-worker-1").settle()
    cluster.wait(601).settle()
    assert cluster.pods == {}
