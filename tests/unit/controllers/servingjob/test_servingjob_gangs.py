"""Tests of the gangs of replicas: PodGroups, places near each other, and what is reported."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.placement.gang_objects import (
    PLUGINS,
    V1ALPHA2,
    V1ALPHA3,
    V1BETA1,
    VOLCANO_GROUPS,
)
from tests.unit.controllers.servingjob.gang_servers import PAIRS, RACK, REQUIRED, GangServers, with_cpu

from convoy_controllers.resources import CONTROLLER_REVISIONS
from convoy_controllers.servingjob.creation import MAX_SEARCHES
from convoy_controllers.views import NodeView
from convoy_crds.servingjob_status import GroupRecord

# PodGroups


def test_each_replica_of_several_pods_is_a_gang_of_its_own() -> None:
    servers = GangServers(V1BETA1, replicas=2)
    first = servers.step()
    assert not first.creations and first.requeue_after is not None and first.requeue_after <= 0.05
    servers.settle()
    assert servers.job.status.ready == "2/2"
    assert servers.groups.names == sorted([servers.group(0), servers.group(1)])
    assert servers.group(0).startswith("llm-worker-0-") and servers.group(1).startswith("llm-worker-1-")
    for name in servers.pods:
        assert servers.link(name) == servers.group(int(name.split("-")[2]))
    for body in servers.groups.stored.values():
        assert body["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}


def test_a_replica_of_one_pod_has_no_podgroup() -> None:
    servers = GangServers(V1BETA1, roles=[{"name": "worker", "engine": {"name": "lm"}}]).settle()
    assert servers.job.status.ready == "1/1" and not servers.groups.applied
    assert servers.record().gang is None


@pytest.mark.parametrize("spec", [{}, {"placement": {"gang": "None"}}])
def test_without_a_backend_the_pods_start_alone(spec: dict[str, Any]) -> None:
    served = () if not spec else (V1BETA1,)
    servers = GangServers(*served, **spec).settle()
    assert servers.job.status.ready == "1/1" and not servers.groups.applied
    assert {servers.link(name) for name in servers.pods} == {""} and servers.record().gang is None


def test_the_podgroup_has_the_requests_and_class_of_the_revision() -> None:
    template = {
        "spec": {
            "priorityClassName": "serving",
            "containers": with_cpu()[0]["template"]["spec"]["containers"],
        }
    }
    servers = GangServers(VOLCANO_GROUPS, roles=with_cpu(template=template)).settle()
    assert servers.groups.only()["spec"] == {
        "minMember": 2,
        "minTaskMember": {"worker": 2},
        "minResources": {"cpu": "2"},
        "priorityClassName": "serving",
    }


def test_the_choice_causes_no_rollout_when_another_backend_appears() -> None:
    servers = GangServers(PLUGINS, replicas=2).settle()
    before, uids = servers.groups.names, {pod.uid for pod in servers.pods.values()}
    servers.groups.served = frozenset({V1BETA1, PLUGINS})
    servers.settle()
    assert {pod.uid for pod in servers.pods.values()} == uids and servers.groups.names == before
    plain = GangServers(replicas=2).settle()
    uids = {pod.uid for pod in plain.pods.values()}
    plain.groups.served = frozenset({V1BETA1})
    plain.settle()
    assert {pod.uid for pod in plain.pods.values()} == uids and not plain.groups.names


def test_a_podgroup_stays_although_another_version_of_its_api_shows_it_too() -> None:
    servers = GangServers(V1BETA1, V1ALPHA3).settle().schedule().settle()
    assert servers.groups.names == [servers.group()]


def test_the_podgroup_goes_with_its_replica() -> None:
    servers = GangServers(V1BETA1, replicas=2).settle()
    servers.edit(replicas=1).settle()
    assert servers.groups.names == [servers.group(servers.records[0].number)]
    servers.edit(suspend=True).settle()
    assert not servers.groups.names


def test_a_new_revision_gets_podgroups_of_its_own() -> None:
    servers = GangServers(V1BETA1, replicas=2).settle()
    before = servers.groups.names
    roles = [{**PAIRS[0], "engine": {"name": "lm", "params": {"size": 2}}}]
    servers.edit(roles=roles).settle()
    assert servers.job.status.ready == "2/2" and not set(before) & set(servers.groups.names)
    assert len(servers.groups.names) == 2


# Replaced pods and restarts


def replace_pod(servers: GangServers, name: str) -> str:
    """Let a pod fail, and return the PodGroup of the pod that replaces it."""
    uid = servers.pods[name].uid
    servers.pod(name, phase="Failed", exit_code=1, termination_message="boom", ready=False)
    servers.settle()
    assert servers.pods[name].uid != uid
    return servers.link(name)


def test_a_replaced_pod_joins_the_gang_of_those_that_stay() -> None:
    servers = GangServers(V1BETA1).settle()
    before = servers.group()
    assert replace_pod(servers, "llm-worker-0-1") == before and servers.group() == before


def test_a_start_without_any_pod_gets_another_podgroup() -> None:
    servers = GangServers(V1BETA1).settle()
    before = servers.group()
    for name in list(servers.pods):
        servers.pod(name, phase="Failed", exit_code=1, ready=False)
    servers.settle()
    assert servers.job.status.ready == "1/1"
    assert servers.group() != before and servers.groups.names == [servers.group()]
    assert {servers.link(name) for name in servers.pods} == {servers.group()}


def test_a_replica_from_before_the_upgrade_gets_no_gang_until_it_starts_anew() -> None:
    servers = GangServers().settle()
    servers.groups.served = frozenset({V1BETA1})
    assert replace_pod(servers, "llm-worker-0-1") == "" and servers.record().gang is None
    for name in list(servers.pods):
        servers.pod(name, phase="Failed", exit_code=1, ready=False)
    servers.settle()
    assert servers.group() and {servers.link(name) for name in servers.pods} == {servers.group()}


def test_a_changed_placement_applies_to_replicas_that_start_later() -> None:
    servers = GangServers(V1BETA1, topology=True, placement=REQUIRED).settle()
    before, uids = servers.group(), {pod.uid for pod in servers.pods.values()}
    revisions = [key for key in servers.objects if key[0] == CONTROLLER_REVISIONS]
    servers.edit(placement={"gang": "Native", "topologyKeys": ["zone"]}).settle()
    assert {pod.uid for pod in servers.pods.values()} == uids, "no rollout"
    assert [key for key in servers.objects if key[0] == CONTROLLER_REVISIONS] == revisions
    assert servers.groups.only()["spec"]["schedulingConstraints"] == {"topology": [{"key": RACK}]}
    servers.edit(replicas=2).settle()
    other = servers.groups.stored[V1BETA1, servers.group(1)]
    assert servers.group(0) == before and "schedulingConstraints" not in other["spec"]


# Reasons


def test_a_missing_backend_holds_back_the_replica() -> None:
    servers = GangServers(V1BETA1, placement={"gang": "Volcano"}).run(3)
    assert not servers.pods and servers.condition["Degraded"] == ("True", "GangBackendMissing")
    assert servers.message("Degraded").startswith("replica worker-0: spec.placement.gang: Volcano needs")
    assert "Volcano needs the API" in servers.message("Available")
    assert "Volcano needs the API" in servers.message("Progressing")
    servers.groups.served |= {VOLCANO_GROUPS}
    servers.run(3)
    servers.schedule("Running").settle()
    assert servers.job.status.ready == "1/1" and servers.condition["Degraded"][0] == "False"


def test_a_pod_is_not_replaced_while_the_api_of_its_gang_is_gone() -> None:
    servers = GangServers(VOLCANO_GROUPS).settle()
    servers.groups.served, servers.groups.stored = frozenset(), {}
    servers.settle()
    assert servers.job.status.ready == "1/1" and servers.condition["Degraded"][0] == "False"
    servers.pod("llm-worker-0-1", phase="Failed", exit_code=1, ready=False)
    servers.run(4)
    assert "llm-worker-0-1" not in servers.pods
    assert servers.plans[-1].requeue_after is not None and servers.plans[-1].requeue_after >= 1
    assert "Volcano needs the API" in servers.message("Available")


def test_a_refused_podgroup_holds_back_its_replica_only() -> None:
    servers = GangServers(V1BETA1, replicas=1).settle()
    servers.groups.refuses = "no PriorityClass with name high"
    servers.edit(replicas=2).run(3)
    assert servers.job.status.ready == "1/2" and servers.condition["Degraded"] == ("True", "GangRefused")
    assert "no PriorityClass with name high" in servers.message("Degraded")
    assert all(not child.required for child in servers.groups.applied), "the Service does not depend on it"
    servers.groups.refuses = ""
    servers.run(3)
    servers.schedule().settle()
    assert servers.job.status.ready == "2/2" and servers.condition["Degraded"][0] == "False"


def test_a_scheduler_that_ignores_gangs_is_reported() -> None:
    servers = GangServers(V1ALPHA2).settle()
    servers.wait(20).step()
    assert servers.condition["Degraded"] == ("True", "GangIgnored")
    assert servers.condition["Available"][0] == "True"
    servers.schedule().step()
    assert servers.condition["Degraded"][0] == "False"


def test_a_scheduler_that_does_not_run_is_reported() -> None:
    servers = GangServers(VOLCANO_GROUPS)
    servers.places = lambda pod: False
    servers.run(2)
    for name in servers.pods:
        servers.pod(name, unschedulable="")
    servers.wait(30).step()
    assert servers.condition["Degraded"] == ("True", "SchedulerMissing")
    assert "no scheduler named 'volcano'" in servers.message("Degraded")


# Near each other


def test_the_pods_of_a_replica_run_in_one_rack() -> None:
    servers = GangServers(replicas=2, roles=with_cpu(3), placement=REQUIRED).settle()
    assert servers.job.status.ready == "2/2"
    assert len(servers.racks_of(0)) == len(servers.racks_of(1)) == 1
    assert servers.racks_of(0) != servers.racks_of(1), "a rack holds four pods, two replicas have six"
    assert servers.job.status.packed == "2/2"
    body = servers.manifests["llm-worker-0-0"]["spec"]["affinity"]["nodeAffinity"]
    [term] = body["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": RACK, "operator": "In", "values": list(servers.racks_of(0))} in term["matchExpressions"]


def test_a_replica_without_room_waits_without_pods_and_says_so() -> None:
    servers = GangServers(replicas=3, roles=with_cpu(3), placement=REQUIRED).run(12)
    assert servers.job.status.ready == "2/3" and len(servers.pods) == 6
    assert servers.record(2).no_room
    assert "replica worker-2: spec.placement.pack: Required: no rack has room" in servers.message(
        "Progressing"
    )
    assert servers.condition["Degraded"][0] == "False", "room may come"
    made = servers.plans[-1]
    assert made.requeue_after is not None and 1 <= made.requeue_after <= 5
    servers.cores["node-0"] = 5
    servers.settle()
    assert servers.job.status.ready == "3/3" and not servers.record(2).no_room


def test_a_replica_without_room_takes_no_room_of_volcanos_queue() -> None:
    servers = GangServers(VOLCANO_GROUPS, replicas=3, roles=with_cpu(3), placement=REQUIRED).run(12)
    assert servers.record(2).no_room and len(servers.pods) == 6
    assert servers.groups.names == sorted([servers.group(0), servers.group(1)])
    servers.cores["node-0"] = 5
    servers.settle()
    assert len(servers.pods) == 9 and len(servers.groups.names) == 3


def test_a_replica_is_in_the_volcano_queue_of_its_job() -> None:
    servers = GangServers(VOLCANO_GROUPS)
    servers.job.metadata.annotations = {"scheduling.volcano.sh/queue-name": "team"}
    assert servers.settle().groups.only()["spec"]["queue"] == "team"
    servers.job.metadata.annotations = {}
    assert servers.settle().groups.only()["spec"]["queue"] == "team", "it stays until the next start"


def test_a_rack_that_could_never_hold_a_replica_is_a_fault() -> None:
    servers = GangServers(roles=with_cpu(5), placement=REQUIRED).run(3)
    assert not servers.pods and servers.condition["Degraded"] == ("True", "NeverTogether")
    assert "r0 can hold 4" in servers.message("Available")


def test_a_key_that_no_node_has_is_a_fault() -> None:
    servers = GangServers(placement={"topologyKeys": ["rak"]}).run(3)
    assert not servers.pods and servers.condition["Degraded"] == ("True", "UnknownTopologyKey")
    assert "no node has the label rak" in servers.message("Available")


def test_the_room_is_read_before_the_pods_are_created() -> None:
    servers = GangServers(roles=with_cpu(), placement=REQUIRED)
    servers.reading = True
    made = servers.run(2).plans[-1]
    assert not servers.pods and "Convoy reads the pods of the cluster" in servers.message("Available")
    assert made.requeue_after is not None and made.requeue_after <= 1
    servers.reading = False
    servers.settle()
    assert servers.job.status.ready == "1/1" and servers.condition["Degraded"][0] == "False"


def test_preferred_packing_starts_a_replica_in_two_racks_if_none_has_room() -> None:
    servers = GangServers(roles=with_cpu(5), placement={"topologyKeys": [RACK]}).settle()
    assert servers.job.status.ready == "1/1" and servers.racks_of() == {"r0", "r1"}
    assert servers.job.status.packed == "0/1"


def test_a_replacement_comes_near_the_pods_that_stay() -> None:
    servers = GangServers(roles=with_cpu(), placement={"topologyKeys": [RACK]}).settle()
    [rack] = servers.racks_of()
    other = next(node for node, name in servers.racks.items() if name != rack)
    servers.cores[other] = 1  # The best fit for a pod alone.
    replace_pod(servers, "llm-worker-0-1")
    assert servers.racks_of() == {rack}


def test_the_scheduler_chooses_the_rack_if_it_can() -> None:
    servers = GangServers(V1BETA1, topology=True, roles=with_cpu(), placement=REQUIRED)
    servers.reading = True
    servers.settle()
    assert servers.job.status.ready == "1/1"
    assert "affinity" not in servers.manifests["llm-worker-0-0"]["spec"]
    kept = GangServers(V1BETA1, roles=with_cpu(), placement=REQUIRED).settle()
    assert "affinity" in kept.manifests["llm-worker-0-0"]["spec"], "the API server dropped the key"


def lose_room(servers: GangServers) -> set[str]:
    """Let a node of the replica fail and lose its room. Return the uids of the pods that stay."""
    lost = "llm-worker-0-0"
    node = servers.pods[lost].node
    assert node
    servers.cores[node] = 1
    servers.pod(lost, phase="Failed", exit_code=1, ready=False)
    return {one.uid for one in servers.pods.values() if one.name != lost}


def test_a_replica_moves_to_another_rack_if_its_own_has_no_room_for_a_lost_pod() -> None:
    servers = GangServers(roles=with_cpu(4), placement=REQUIRED).settle()
    [before] = servers.racks_of()
    staying = lose_room(servers)
    servers.settle()
    assert servers.job.status.ready == "1/1" and len(servers.racks_of()) == 1
    assert servers.racks_of() != {before} and not staying & {one.uid for one in servers.pods.values()}


def test_pods_of_a_replica_without_room_do_not_idle_on_their_nodes() -> None:
    servers = GangServers(roles=with_cpu(4), placement=REQUIRED).settle()
    [rack] = servers.racks_of()
    other = next(node for node, name in servers.racks.items() if name != rack)
    servers.cores[other] = 0
    lose_room(servers)
    servers.run(4)
    assert len(servers.pods) == 3
    assert f"the other pods run in rack {rack}, which has room for 0 of the 1" in servers.message("Available")
    servers.wait(61).run(6)
    assert not servers.pods, "the nodes are free for others"
    servers.cores[other] = 2
    servers.settle()
    assert servers.job.status.ready == "1/1" and servers.racks_of() != {rack}


def test_a_rollout_goes_on_if_no_rack_has_room_for_the_surge() -> None:
    servers = GangServers(replicas=1, roles=with_cpu(4), placement=REQUIRED, rollout={"maxUnavailable": 1})
    servers.cores["node-2"] = 0
    servers.settle()
    roles = with_cpu(4, engine={"name": "lm", "params": {"size": 2}})
    servers.edit(roles=roles).settle(120)
    assert servers.job.status.ready == "1/1"
    assert servers.job.status.current_revision == servers.job.status.update_revision
    assert servers.condition["Progressing"] == ("True", "RolloutComplete")


def test_one_plan_searches_room_for_a_bounded_number_of_replicas() -> None:
    count = MAX_SEARCHES + 5
    servers = GangServers(replicas=count, roles=with_cpu(), placement=REQUIRED)
    servers.cores = dict.fromkeys(servers.racks, 2 * count)
    first = servers.step()
    while not first.creations:
        first = servers.step()
    assert len(first.creations) == 2 * MAX_SEARCHES
    assert first.requeue_after is not None and first.requeue_after <= 0.1
    assert len(servers.step().creations) == 2 * 5


def test_the_column_is_absent_without_topology_keys() -> None:
    assert GangServers(V1BETA1).settle().job.status.packed == ""


def test_a_node_without_the_label_packs_nothing() -> None:
    servers = GangServers(roles=with_cpu(), placement={"topologyKeys": [RACK]}).settle()
    assert servers.job.status.packed == "1/1"
    servers.racks = dict.fromkeys(servers.racks, "")
    servers.nodes = {name: NodeView(name) for name in servers.racks}
    servers.step()
    assert servers.job.status.packed == "0/1"


def test_a_record_without_a_gang_costs_no_bytes() -> None:
    assert GroupRecord(role="worker", number=1).to_dict() == {"role": "worker", "number": 1}
