"""Tests of the places that missing pods get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.controllers.placement.placed_nodes import (
    CORE,
    RACK,
    PlacedJob,
    affinity,
    body,
    node_rooms,
    restricted,
)

from convoy_controllers.placement.placing import PlaceOptions, place
from convoy_controllers.placement.shortlist import SCORED_NODES
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.views import PodView
from convoy_crds.placement import Packing

PREFERRED = Packing(topologyKeys=[RACK])
LARGE = node_rooms(racks=11, per_rack=10)


def pod(**facts: object) -> PodView:
    """A pod of the same gang that stays."""
    return PodView(name="job-w-9", uid="9", phase="Pending", **facts)


def test_the_first_attempt_in_a_large_cluster_is_restricted_to_scored_nodes() -> None:
    assert len(LARGE) > SCORED_NODES
    assert all(map(restricted, place(PREFERRED, LARGE, [body(0), body(1)], []).pods))
    small = node_rooms(racks=2, per_rack=10)
    assert not any(map(restricted, place(PREFERRED, small, [body(0)], []).pods))


def test_an_attempt_after_a_failed_one_only_prefers_its_domains() -> None:
    [made] = place(PREFERRED, LARGE, [body(0)], [], PlaceOptions(restricted=False)).pods
    assert not restricted(made) and affinity(made)["preferredDuringSchedulingIgnoredDuringExecution"]


@pytest.mark.parametrize(
    ("staying", "limit"),
    [
        (pod(unschedulable="0/110 nodes are available: volume node affinity conflict"), False),
        (pod(unschedulable="old message", node="n0-0"), True),
        (pod(), True),
    ],
)
def test_pods_that_join_an_unschedulable_pod_are_not_restricted(staying: PodView, limit: bool) -> None:
    [made] = place(PREFERRED, LARGE, [body(0)], [staying]).pods
    assert restricted(made) is limit


def test_required_packing_stays_required_after_a_failed_attempt() -> None:
    required = Packing(topologyKeys=[RACK], pack="Required")
    staying = pod(unschedulable="no node", annotations={"convoy.dev/planned-node": "n0-0"})
    [made] = place(required, LARGE, [body(0)], [staying], PlaceOptions(restricted=False)).pods
    assert restricted(made)


@pytest.mark.parametrize(("spare", "made"), [({"w": 3}, 2), ({"w": 1}, 2), ({}, 0)])
def test_pods_without_room_beside_the_others_are_not_created(spare: dict[str, int], made: int) -> None:
    required = Packing(topologyKeys=[RACK], pack="Required")
    staying, rooms = pod(node="n0-0"), node_rooms(racks=2, per_rack=2)
    found = place(
        required, rooms, [body(number) for number in range(3)], [staying], PlaceOptions(spare=spare)
    )
    assert len(found.pods) == made and (found.held is None) is bool(made)
    assert all(map(restricted, found.pods))


def rack_of(manifest: Mapping[str, Any]) -> str:
    """The rack to which a pod is restricted."""
    [term] = affinity(manifest)["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(next(one["values"][0] for one in term["matchExpressions"] if one["key"] == RACK))


def test_attempts_of_a_required_job_try_other_racks() -> None:
    """The scheduler alone knows why the first rack does not do: a volume, a port, a device."""
    job = PlacedJob(node_rooms(racks=3, per_rack=2), pack="Required")
    job.schedulable = False
    for _ in range(12):
        job.settle().wait(job.job.spec.recovery.schedule_seconds + 1).settle().wait(130)
    attempts = [{rack_of(one) for one in made.manifests} for made in job.plans if made.manifests]
    assert len(attempts) == 12 and all(len(racks) == 1 for racks in attempts)
    assert set.union(*attempts) == {"r0", "r1", "r2"}


def test_a_job_whose_pods_found_no_node_tries_again_without_restriction() -> None:
    job = PlacedJob(LARGE)
    job.schedulable = False
    first = job.step().manifests
    assert len(first) == 2 and all(map(restricted, first))
    job.settle()
    job.wait(job.job.spec.recovery.schedule_seconds + 1).settle()
    assert job.job.status.internal.pending.cause
    job.wait(130).settle()
    second = job.plans[-1].manifests or next(made.manifests for made in reversed(job.plans) if made.manifests)
    assert len(second) == 2 and not any(map(restricted, second))


@pytest.mark.parametrize(
    "requests", [{"cpu": "2 cores"}, {"cpu": {"a": 1}}, {"cpu": ["1"]}], ids=["text", "map", "list"]
)
def test_pods_with_malformed_requests_are_left_to_the_api_server(requests: dict[str, object]) -> None:
    template = {"containers": [{"name": "worker", "resources": {"requests": requests}}]}
    small = node_rooms(racks=2, per_rack=2)
    assert [affinity(one) for one in place(PREFERRED, small, [body(0, template)], []).pods] == [{}]
    for gang in ("None", "Auto"):
        job = PlacedJob(small, template, gang=gang)
        assert [affinity(made) for made in plan(job.observed(), job.now).manifests] == [{}, {}]


def test_a_template_cannot_reserve_room_on_a_node() -> None:
    annotations = {"convoy.dev/planned-node": "n0-0", "team": "a"}
    template = {"metadata": {"annotations": annotations}, "spec": CORE}
    cluster = ToyCluster(make_job(roles=[{"name": "w", "replicas": 2, "template": template}]), make_engine())
    for made in cluster.step().manifests:
        assert made["metadata"]["annotations"].keys() & annotations.keys() == {"team"}
