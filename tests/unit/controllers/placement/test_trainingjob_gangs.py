"""Tests of the gang of a TrainingJob, from its spec to PodGroup, pods and conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controllers.placement.gang_objects import (
    PLUGINS,
    V1ALPHA2,
    V1ALPHA3,
    V1BETA1,
    VOLCANO_GROUPS,
    PodGroups,
    scheduled,
)
from tests.unit.controllers.placement.placed_nodes import CORE, node_rooms

from convoy_controllers.placement.gang_state import written
from convoy_controllers.placement.rooms import Rooms
from convoy_controllers.plan import Plan
from convoy_controllers.resources import Resource
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.observed import Observed
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType


class Gangs(ToyCluster):
    """One job on a cluster that serves APIs of PodGroups."""

    def __init__(self, *served: Resource, topology: bool = False, **spec: Any) -> None:
        super().__init__(make_job(**spec), make_engine())
        self.groups = PodGroups(*served, topology=topology)
        self.refused: dict[str, str] = {}
        """Pods that the API server refuses, and why."""
        self.priority = 0
        self.rooms: Rooms | None = None

    def observed(self) -> Observed:
        errors = {}
        if self.groups.refuses and self.groups.applied:
            errors = {self.groups.applied[-1].name: self.groups.refuses}
        self.create_errors = {**errors, **self.refused}
        read = written(self.groups.served)
        found = replace(super().observed(), priority=self.priority, rooms=self.rooms)
        return replace(found, served=self.groups.served, gang_objects=self.groups.objects(read))

    def step(self, effects: int | None = None) -> Plan:
        made = super().step(effects)
        self.groups.carry_out(made, self.now)
        return made

    @property
    def group(self) -> str:
        """The stored name of the job's PodGroup."""
        placed = self.job.status.placement
        return placed.group if placed else ""

    @property
    def links(self) -> list[str]:
        """The PodGroup that each created pod has named, in the order of their creation."""
        return [
            body["spec"].get("schedulingGroup", {}).get("podGroupName", "")
            for made in self.plans
            for body in made.manifests
        ]

    def why(self, kind: str) -> str:
        """Return the message of a condition."""
        return next(one.message for one in self.job.status.conditions if one.type == kind)


ELASTIC = [{"name": "worker", "replicas": 3, "minReplicas": 2}]
RACKS = {"topologyKeys": ["rack"], "pack": "Required"}


def test_the_podgroup_comes_before_its_pods() -> None:
    cluster = Gangs(V1ALPHA2)
    first = cluster.step()
    assert not first.creations and first.requeue_after is not None and first.requeue_after <= 0.05
    assert cluster.groups.names == [cluster.group]
    assert len(cluster.step().creations) == 2
    assert cluster.links == [cluster.group] * 2
    spec = cluster.groups.only()["spec"]
    assert spec == {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": "PodGroup"}


def test_a_job_without_a_backend_has_no_podgroup() -> None:
    cluster = Gangs().settle()
    assert cluster.links == ["", ""] and not cluster.groups.applied
    placed = cluster.job.status.placement
    assert placed is not None and placed.gang is not None and placed.gang.value == "None"
    assert ConditionType.GANG_SCHEDULED not in cluster.condition


@pytest.mark.parametrize("served", [(V1BETA1, V1ALPHA3), (V1BETA1, V1ALPHA3, PLUGINS, VOLCANO_GROUPS)])
def test_a_podgroup_stays_although_another_version_of_its_api_shows_it_too(served: Any) -> None:
    cluster = Gangs(*served).settle()
    cluster.groups.set_status(cluster.group, scheduled())
    cluster.settle()
    assert cluster.groups.names == [cluster.group]
    assert cluster.condition["GangScheduled"] == ("True", "GangPlaced")


def test_an_elastic_job_needs_its_least_pods() -> None:
    cluster = Gangs(V1BETA1, roles=ELASTIC).settle()
    assert cluster.groups.only()["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert len(cluster.pods) == 3


def test_independent_pods_are_not_part_of_the_gang() -> None:
    roles = [
        {"name": "worker", "replicas": 2},
        {"name": "loader", "replicas": 3, "membership": "Independent"},
    ]
    cluster = Gangs(V1BETA1, roles=roles).settle()
    assert cluster.groups.only()["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert sorted(cluster.links) == ["", "", "", cluster.group, cluster.group]


def test_the_choice_stays_while_the_job_has_pods() -> None:
    cluster = Gangs(PLUGINS).settle()
    before = cluster.group
    cluster.groups.served = frozenset({V1BETA1, PLUGINS})
    cluster.lose("job-worker-1")
    cluster.settle()
    assert cluster.group == before and cluster.groups.names == [before]
    assert [key[0] for key in cluster.groups.stored] == [PLUGINS]


def test_a_replaced_pod_joins_the_gang_of_those_that_stay() -> None:
    cluster = Gangs(V1BETA1, roles=[{"name": "worker", "replicas": 3}]).settle()
    before = cluster.group
    cluster.lose("job-worker-1")
    cluster.settle()
    assert cluster.links == [before] * 4 and cluster.groups.names == [before]


def test_a_restart_in_place_keeps_the_podgroup() -> None:
    cluster = Gangs(V1BETA1).settle()
    before, incarnation = cluster.group, cluster.job.status.incarnation
    cluster.exit(0, 1)
    cluster.wait(120).settle()
    assert cluster.job.status.incarnation > incarnation
    assert cluster.group == before and cluster.groups.names == [before]


def test_a_start_without_any_pod_gets_another_podgroup() -> None:
    cluster = Gangs(V1BETA1).settle()
    before = cluster.group
    cluster.spec(suspend=True).wait(60)
    cluster.settle()
    assert not cluster.pods
    cluster.spec(suspend=False).settle()
    assert cluster.group != before and cluster.groups.names == [cluster.group]
    assert cluster.links == [before] * 2 + [cluster.group] * 2


def test_pods_that_still_end_do_not_share_the_podgroup_of_a_start() -> None:
    """The pods were given back at the schedule deadline: the incarnation is the same."""
    cluster = Gangs(V1BETA1)
    cluster.schedulable = False
    cluster.settle()
    before = cluster.group
    cluster.lose("job-worker-0")
    cluster.pod("job-worker-1", deleting=True, node="node-1")
    cluster.wait(2).step()
    assert cluster.group == f"{before}-2"
    for _ in range(3):
        cluster.step()
    assert cluster.group == f"{before}-2" and cluster.groups.names == [f"{before}-2"]


def test_a_changed_layout_of_a_pending_job_gets_another_podgroup() -> None:
    """Most fields of a PodGroup are immutable."""
    cluster = Gangs(V1ALPHA2)
    cluster.schedulable = False
    cluster.settle()
    before = cluster.group
    cluster.spec(roles=[{"name": "worker", "replicas": 3}]).settle()
    assert cluster.group != before and cluster.groups.names == [cluster.group]
    assert cluster.groups.only()["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert len(cluster.pods) == 3 and cluster.links[-3:] == [cluster.group] * 3


@pytest.mark.parametrize("fields", [{"placement": {"gang": "Volcano"}}])
def test_a_missing_backend_holds_back_all_pods_until_its_api_is_there(fields: dict[str, Any]) -> None:
    cluster = Gangs(V1BETA1, **fields).settle()
    assert not cluster.pods and not cluster.groups.applied
    for kind in ("Scheduled", "Running"):
        assert cluster.condition[kind] == ("False", "GangBackendMissing")
    assert "Volcano needs the API scheduling.volcano.sh/v1beta1" in cluster.why("Running")
    assert cluster.job.status.internal.pending.since is None, "the schedule deadline must not run"
    cluster.groups.served |= {VOLCANO_GROUPS}
    cluster.settle()
    assert len(cluster.pods) == 2


def test_a_pod_is_not_replaced_while_the_api_of_its_gang_is_gone() -> None:
    cluster = Gangs(VOLCANO_GROUPS).settle()
    cluster.groups.served, cluster.groups.stored = frozenset(), {}
    assert cluster.condition["Running"][0] == "True"
    cluster.settle()
    assert cluster.condition["Running"][0] == "True", "a running job goes on"
    cluster.lose("job-worker-1")
    cluster.wait(60)
    made = [cluster.step() for _ in range(3)][-1]
    assert "job-worker-1" not in cluster.pods
    assert cluster.condition["Scheduled"] == ("False", "GangBackendMissing")
    assert made.requeue_after is not None and made.requeue_after >= 1, "no tight loop"


def test_roles_that_no_gang_can_hold_are_reported() -> None:
    high = {"spec": {"priorityClassName": "high", "containers": [{"name": "worker"}]}}
    roles = [{"name": "head", "replicas": 1, "template": high}, {"name": "worker", "replicas": 2}]
    cluster = Gangs(V1BETA1, roles=roles, placement={"gang": "Native"}).settle()
    assert cluster.condition["Running"] == ("False", "GangSplit")
    assert "head: high, worker: none" in cluster.why("Running")
    auto = Gangs(V1BETA1, roles=roles).settle()
    assert len(auto.pods) == 3 and set(auto.links) == {""}


def test_a_refused_podgroup_holds_back_the_pods() -> None:
    cluster = Gangs(V1BETA1)
    cluster.groups.refuses = "no PriorityClass with name high"
    for _ in range(3):
        cluster.step()
    assert not cluster.pods and cluster.condition["Running"] == ("False", "GangRefused")
    assert "no PriorityClass with name high" in cluster.why("Running")
    cluster.groups.refuses = ""
    cluster.settle()
    assert len(cluster.pods) == 2


def test_a_scheduler_that_ignores_gangs_is_reported() -> None:
    cluster = Gangs(V1ALPHA2).settle()
    assert cluster.condition["GangScheduled"] == ("True", "GangPlaced")
    made = cluster.wait(9).step()
    assert made.requeue_after is not None and made.requeue_after <= 1
    cluster.wait(1).step()
    assert cluster.condition["GangScheduled"] == ("False", "GangIgnored")
    cluster.groups.set_status(cluster.group, scheduled())
    cluster.step()
    assert cluster.condition["GangScheduled"] == ("True", "GangPlaced")


def test_a_scheduler_that_does_not_run_is_reported_after_30_seconds() -> None:
    cluster = Gangs(VOLCANO_GROUPS)
    cluster.schedulable = False
    cluster.settle()
    for name in cluster.pods:
        cluster.pod(name, judged=False, unschedulable="")
    cluster.step()
    assert cluster.condition["GangScheduled"] == ("False", "GangWaiting")
    cluster.wait(30).step()
    assert cluster.condition["GangScheduled"] == ("False", "SchedulerMissing")
    assert "no scheduler named 'volcano'" in cluster.why("GangScheduled")


LATE = 700.0
"""More seconds than `recovery.scheduleSeconds`."""


@pytest.mark.parametrize(
    ("served", "kept"), [(V1ALPHA2, True), (V1BETA1, True), (VOLCANO_GROUPS, True), (PLUGINS, False)]
)
def test_a_gang_that_holds_no_nodes_keeps_its_place_at_its_scheduler(served: Resource, kept: bool) -> None:
    cluster = Gangs(served)
    cluster.schedulable = False
    cluster.settle()
    before = cluster.uids
    for _ in range(3):
        cluster.wait(LATE).settle()
    assert (cluster.uids == before) is kept
    if kept:
        assert cluster.job.status.internal.pending.since is None
        assert cluster.condition["GangScheduled"] == ("False", "GangWaiting")


def test_a_gang_of_which_a_pod_has_a_node_gives_its_pods_back() -> None:
    cluster = Gangs(V1BETA1)
    cluster.schedulable = False
    cluster.settle()
    cluster.pod("job-worker-0", node="node-0", unschedulable="")
    cluster.settle().wait(LATE).settle()
    assert not cluster.pods and cluster.job.status.reason == "ScheduleDeadline"


def test_a_gang_for_which_others_could_shrink_gives_its_pods_back() -> None:
    """Pods are claimed before the own ones are created."""
    cluster = Gangs(V1BETA1)
    cluster.schedulable, cluster.priority = False, 10
    cluster.settle().wait(LATE).settle()
    assert not cluster.pods and cluster.job.status.reason == "ScheduleDeadline"


def test_a_gang_of_which_a_quota_refuses_pods_gives_the_others_back() -> None:
    """Two jobs that each hold half of a ResourceQuota would block each other for ever."""
    cluster = Gangs(V1BETA1)
    cluster.schedulable = False
    cluster.settle()
    cluster.lose("job-worker-1")
    cluster.refused = {"job-worker-1": "exceeded quota"}
    cluster.settle().wait(LATE).settle()
    assert not cluster.pods and cluster.job.status.reason == "ScheduleDeadline"


def held_gang(served: Resource, rooms: Rooms) -> Gangs:
    """Return a job with `pack: Required`, and the room for its pods."""
    roles = [{"name": "worker", "replicas": 2, "template": {"spec": CORE}}]
    cluster = Gangs(served, roles=roles, placement=RACKS)
    cluster.rooms = rooms
    return cluster


def test_a_gang_in_a_rack_that_convoy_chose_gives_its_pods_back() -> None:
    """Another rack may have room for it."""
    cluster = held_gang(V1BETA1, node_rooms(racks=2, per_rack=2))
    cluster.schedulable = False
    cluster.settle()
    for _ in range(2):
        assert len(cluster.pods) == 2
        cluster.wait(LATE).settle()
        assert not cluster.pods and cluster.job.status.reason == "ScheduleDeadline"
        cluster.wait(130).settle()


def test_preferred_racks_restrict_a_waiting_gang_only_once() -> None:
    cluster = Gangs(V1BETA1, placement={"topologyKeys": ["rack"]})
    cluster.schedulable, cluster.rooms = False, node_rooms(racks=2, per_rack=2)
    cluster.settle().wait(LATE).settle()
    assert not cluster.pods
    cluster.wait(130).settle()
    before = cluster.uids
    assert len(before) == 2
    cluster.wait(LATE).settle()
    assert cluster.uids == before


@pytest.mark.parametrize(("served", "there"), [(VOLCANO_GROUPS, False), (V1BETA1, True)])
def test_a_job_without_room_takes_no_room_of_volcanos_queue(served: Resource, there: bool) -> None:
    cluster = held_gang(served, node_rooms(racks=2, per_rack=1))
    for _ in range(3):
        cluster.step()
    assert cluster.job.status.reason == "NoRoomTogether" and bool(cluster.groups.names) is there
    cluster.rooms = node_rooms(racks=2, per_rack=2)
    cluster.settle()
    assert len(cluster.pods) == 2 and cluster.groups.names == [cluster.group]
    cluster.rooms = node_rooms(racks=2, per_rack=1)
    cluster.settle()
    assert cluster.groups.names == [cluster.group], "the pods need it"


def test_a_suspended_job_has_no_podgroup_once_its_pods_are_gone() -> None:
    cluster = Gangs(VOLCANO_GROUPS).settle()
    made = cluster.spec(suspend=True).step()
    assert made.deletions and cluster.groups.names, "the pods still end"
    cluster.wait(60).settle()
    assert not cluster.pods and not cluster.groups.names


def test_a_job_that_has_ended_has_no_podgroup_once_its_pods_are_over() -> None:
    cluster = Gangs(VOLCANO_GROUPS).settle()
    cluster.exit_all().step()
    assert cluster.job.status.phase == "Succeeded" and cluster.groups.names
    cluster.wait(60).settle()
    assert len(cluster.pods) == 2 and not cluster.groups.names, "the pods stay for their logs"
    late = Gangs(VOLCANO_GROUPS, activeDeadlineSeconds=60)
    late.schedulable = False
    late.settle().wait(61).settle()
    late.wait(60).settle()
    assert late.job.status.phase == "Failed" and not late.groups.names


QUEUE = "scheduling.volcano.sh/queue-name"


def in_queue(name: str) -> Gangs:
    cluster = Gangs(VOLCANO_GROUPS)
    cluster.job.metadata.annotations |= {QUEUE: name} if name else {}
    return cluster


def test_the_podgroup_is_in_the_volcano_queue_of_the_job() -> None:
    assert in_queue("team").settle().groups.only()["spec"]["queue"] == "team"
    assert "queue" not in in_queue("").settle().groups.only()["spec"]


@pytest.mark.parametrize(("before", "after"), [("team", "other"), ("team", ""), ("", "other")])
def test_another_queue_counts_from_the_next_start_without_pods_on(before: str, after: str) -> None:
    cluster = in_queue(before).settle()
    first, group = cluster.groups.only(), cluster.group
    first["spec"].setdefault("queue", "default")  # as Volcano's webhook does
    cluster.job.metadata.annotations = {QUEUE: after} if after else {}
    cluster.settle()
    assert cluster.groups.only() is first and first["spec"]["queue"] == (before or "default")
    assert cluster.groups.applied[-1].manifest["spec"].get("queue", "default") == (before or "default")
    cluster.spec(suspend=True).wait(60).settle()
    cluster.spec(suspend=False).settle()
    assert cluster.group != group
    assert cluster.groups.only()["spec"].get("queue", "") == after


def test_another_queue_of_a_waiting_job_counts_at_once() -> None:
    cluster = in_queue("team")
    cluster.schedulable = False
    cluster.settle()
    cluster.job.metadata.annotations = {QUEUE: "other"}
    cluster.settle()
    assert cluster.groups.only()["spec"]["queue"] == "other" and len(cluster.pods) == 2


def test_convoy_packs_itself_if_the_api_server_drops_the_key() -> None:
    dropped = Gangs(V1BETA1, placement=RACKS)
    dropped.step()
    assert dropped.groups.applied[0].manifest["spec"]["schedulingConstraints"]
    dropped.step()
    assert not dropped.pods and dropped.condition["Running"] == ("False", Reasons.READING_ROOM.name)
    kept = Gangs(V1BETA1, topology=True, placement=RACKS)
    kept.settle()
    assert len(kept.pods) == 2 and kept.groups.only()["spec"]["schedulingConstraints"]
