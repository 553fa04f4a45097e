"""Tests of queues with the complete operator and a real Kueue. The tests act as the kubelets and the agents.

Kueue is built by `make kueue`. Without it the tests are skipped.
"""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator

import pytest
from tests.integration.conftest import ControlPlane, running_control_plane

from convoy_agents.wire import hub_pb2 as wire
from convoy_operator import discovery

from .conftest import eventually
from .kueue_process import API, Administrator, running_kueue
from .kueue_process import installed as kueue_built
from .queue_team import MERGE, PORT, RACK, host_of, placed_node, queued_job, team
from .test_operator import JOBS, ranks

pytestmark = pytest.mark.skipif(not kueue_built(), reason="Kueue was not built; run `make kueue`")


@pytest.fixture(autouse=True)
def often_discovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the served APIs every few tenths of a second."""
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS", 0.3)


@pytest.fixture(scope="module")
def queue_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server with Kueue."""
    with (
        running_control_plane(tmp_path_factory.mktemp("kueue-plane")) as plane,
        running_kueue(plane),
    ):
        administrator = Administrator(plane)
        administrator.create("resourceflavors", "plain", {"spec": {"nodeLabels": {"pool": "plain"}}})
        levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
        administrator.create("topologies", "racks", {"spec": {"levels": levels}})
        placed = {"nodeLabels": {"pool": "placed"}, "topologyName": "racks"}
        administrator.create("resourceflavors", "placed", {"spec": placed})
        administrator.create("workloadpriorityclasses", "high", {"value": 1000})
        yield plane


async def test_a_job_waits_for_quota_and_its_end_frees_it(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, server):
        await own.submit("first", 2)
        pods = await own.pods("first", 2)
        workload = await own.workload("first")
        for one in pods:
            meta = one["metadata"]
            assert meta["labels"]["kueue.x-k8s.io/podset"] == "worker"
            assert "kueue.x-k8s.io/queue-name" not in meta["labels"]
            assert meta["annotations"]["kueue.x-k8s.io/workload"] == workload["metadata"]["name"]
            assert one["spec"]["nodeSelector"]["pool"] == "plain"
            assert not one["spec"].get("schedulingGates")
        await own.submit("second", 1)
        waiting = await own.reason("second", "QueueWaiting", "insufficient")
        assert waiting["phase"] == "Pending"
        assert waiting["placement"]["queue"]["state"] == "Waiting"
        assert waiting["goodput"]["cause"] == "queue"
        assert await own.pods("second", 0) == []

        await own.start(server, "first", pods)
        await own.holds("first", "PodsReady", "True", "Started")
        assert (await own.admitted("first"))["clusterQueue"] == own.cluster_queue
        await own.finish("first", pods)
        await own.holds("first", "Finished", "True", "Succeeded")
        await own.pods("second", 1)
        await own.admitted("second")


async def test_partial_admission_runs_the_pods_that_fit(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, server):
        await own.submit("elastic", 3, least=1)
        pods = await own.pods("elastic", 2)
        await own.start(server, "elastic", pods)
        await own.holds("elastic", "PodsReady", "True")
        status = await own.status("elastic")
        assert status["roles"][0]["absent"] == [2]
        admitted = next(one for one in status["conditions"] if one["type"] == "Admitted")
        assert (admitted["status"], admitted["reason"]) == ("True", "QueuePartial")
        assert "worker: 2 of 3" in admitted["message"]


async def test_a_job_of_higher_priority_preempts_one_that_saves_first(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, server):
        saves = {"checkpoint": {"tiers": {"local": {}}}}
        await own.submit("low", 2, **saves)
        pods = await own.pods("low", 2)
        await own.start(server, "low", pods)
        await own.submit("urgent", 2, priority="high")
        evicted = await own.reason("low", "QueueEvicted", "Preempted/InClusterQueue")
        assert evicted["phase"] == "Suspending"
        assert evicted["goodput"]["cause"] == "queue"
        leaving = await own.pods("low", 2)
        for one in leaving:
            # The ranks get the whole grace period of their pods to save.
            assert one["metadata"]["deletionGracePeriodSeconds"] == 30
        assert await own.pods("urgent", 0) == [], "the quota is still in use while the ranks save"
        assert (await own.status("low"))["placement"]["queue"]["state"] == "Evicted"

        await own.end("low")
        urgent = await own.pods("urgent", 2)
        waiting = await own.reason("low", "QueueWaiting", "insufficient")
        assert waiting["placement"]["queue"] | {"evictions": 1} == waiting["placement"]["queue"]
        await own.holds("low", "Requeued", "True", "Preempted")

        await own.start(server, "urgent", urgent)
        await own.finish("urgent", urgent)
        again = await own.pods("low", 2)
        assert {one["metadata"]["uid"] for one in again}.isdisjoint(one["metadata"]["uid"] for one in pods)
        await own.start(server, "low", again)
        assert (await own.status("low"))["incarnation"] > 1


async def test_a_deactivated_job_ends_its_pods_and_can_be_activated(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, server):
        await own.submit("train", 1)
        await own.start(server, "train", await own.pods("train", 1))
        workload = await own.workload("train")
        path = f"{API}/namespaces/{own.namespace}/workloads/{workload['metadata']['name']}"
        await own.call("PATCH", path, {"spec": {"active": False}}, content_type=MERGE)
        await own.reason("train", "QueueEvicted", "Deactivated")
        await own.end("train")
        status = await own.reason("train", "QueueInactive")
        assert status["placement"]["queue"]["state"] == "Inactive"
        await own.holds("train", "QuotaReserved", "False")
        await own.call("PATCH", path, {"spec": {"active": True}}, content_type=MERGE)
        await own.start(server, "train", await own.pods("train", 1))


async def test_kueue_reads_the_parameters_of_a_job(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, _):
        notes = {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "600"}
        labels = {"kueue.x-k8s.io/max-exec-time-seconds": "1"}
        await own.submit("train", 1, labels=labels, annotations=notes)
        await own.reason("train", "QueueInactive")
        workload = await own.workload("train")
        assert notes.items() <= workload["metadata"]["annotations"].items()
        await own.holds("train", "Evicted", "True", "DeactivatedDueToMaximumExecutionTimeExceeded")


async def test_a_stopped_queue_drains_its_jobs(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, server):
        await own.submit("train", 1)
        await own.start(server, "train", await own.pods("train", 1))
        path = f"{API}/clusterqueues/{own.cluster_queue}"
        await own.call("PATCH", path, {"spec": {"stopPolicy": "HoldAndDrain"}}, content_type=MERGE)
        await own.reason("train", "QueueEvicted", "ClusterQueueStopped")
        await own.end("train")
        await own.reason("train", "QueueWaiting")
        await own.call("PATCH", path, {"spec": {"stopPolicy": "None"}}, content_type=MERGE)
        await own.pods("train", 1)


async def test_a_suspended_job_gives_its_quota_back(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, server):
        await own.submit("first", 2)
        await own.start(server, "first", await own.pods("first", 2))
        await own.submit("second", 2)
        await own.reason("second", "QueueWaiting", "insufficient")
        await own.patch("first", {"spec": {"suspend": True}})
        await own.reason("first", "Suspending")
        await own.workload("first")
        await own.end("first")
        await own.reason("first", "Suspended")
        await own.pods("second", 2)
        assert "queue" not in (await own.status("first")).get("placement", {})
        await own.patch("first", {"spec": {"suspend": False}})
        await own.reason("first", "QueueWaiting", "insufficient")


async def test_a_changed_queue_moves_a_running_job(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, server):
        await own.submit("train", 1)
        await own.start(server, "train", await own.pods("train", 1))
        before = (await own.workload("train"))["metadata"]["name"]
        await own.patch("train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        await own.reason("train", "QueueChanged", before)
        await own.end("train")
        await own.reason("train", "QueueWaiting", "other")
        assert (await own.workload("train"))["metadata"]["name"] != before
        await own.patch("train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}})
        pod = (await own.pods("train", 1))[0]
        assert "kueue.x-k8s.io/workload" not in pod["metadata"]["annotations"]


async def test_a_deleted_workload_ends_the_pods_and_queues_the_job_again(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=1) as (own, server):
        await own.submit("train", 1)
        await own.start(server, "train", await own.pods("train", 1))
        workload = await own.workload("train")
        await own.call("DELETE", f"{API}/namespaces/{own.namespace}/workloads/{workload['metadata']['name']}")
        # Kueue may admit the next Workload at once. The pods then go on, because they are part of it.
        await own.holds("train", "Admitted", "True")
        assert (await own.workload("train"))["metadata"]["uid"] != workload["metadata"]["uid"]


async def test_a_job_larger_than_its_queue_says_so(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, _):
        await own.submit("huge", 5)
        await own.reason("huge", "QueueWaiting", "maximum capacity")
        await own.submit("lost", 1, queue="nowhere")
        await own.reason("lost", "QueueWaiting", "doesn't exist")
        await own.submit("unknown", 1, priority="nobody")
        await own.reason("unknown", "QueuePriorityMissing", "nobody")


async def test_completed_independent_pods_free_their_quota(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, server):
        body = queued_job("train", 1)
        template = body["spec"]["roles"][0]["template"]
        outside = {"name": "rollout", "replicas": 1, "membership": "Independent", "template": template}
        body["spec"]["roles"].append(outside)
        await own.call("POST", JOBS.format(own.namespace), body)
        worker = await own.pods("train", 1)
        await own.start(server, "train", worker)
        rollout = next(one for one in await own.pods("train", 2) if "rollout" in one["metadata"]["name"])
        uid = rollout["metadata"]["uid"]
        agent = own.agent
        assert agent is not None
        await own.kubelet.start(rollout, agent.node, "10.2.1.1")
        await agent.send(pod=wire.PodReport(pod_uid=uid, launcher_connected=True))
        asked = await eventually(
            lambda: (found := agent.last("pick_port")) is not None and found.pod_uid == uid and found,
            what="port of the rollout",
        )
        number = {
            "incarnation": asked.incarnation,
            "master_port": PORT,
            "port_incarnation": asked.incarnation,
        }
        await agent.send(
            pod=wire.PodReport(pod_uid=uid, launcher_connected=True, ranks=ranks("RUNNING", 0), **number)
        )
        await own.submit("next", 1)
        await own.reason("next", "QueueWaiting", "insufficient")
        await agent.send(
            pod=wire.PodReport(pod_uid=uid, launcher_connected=True, ranks=ranks("EXITED", 0), **number)
        )
        await own.pods("next", 1)
        status = (await own.workload("train"))["status"]
        assert status["reclaimablePods"] == [{"name": "rollout", "count": 1}]


async def test_kueue_chooses_the_nodes_of_a_packed_job(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=8, flavor="placed") as (own, server):
        racks = {f"{own.namespace}-{rack}{number}": rack for rack in "ab" for number in (1, 2)}
        for name, rack in racks.items():
            await placed_node(own, server, name, rack, cpus=2 if rack == "b" else 1)
        placement = {"topologyKeys": [RACK], "pack": "Required"}
        await own.submit("packed", 3, placement=placement)
        pods = await own.pods("packed", 3)
        hosts = [one["spec"]["nodeSelector"]["kubernetes.io/hostname"] for one in pods]
        assert {racks[host] for host in hosts} == {"b"}, "only rack b has room for all"
        assert hosts == sorted(hosts), "ranks of a node follow each other"
        for one in pods:
            notes = one["metadata"]["annotations"]
            assert notes["kueue.x-k8s.io/podset-required-topology"] == RACK
            assert "affinity" not in one["spec"], "Convoy does not pin what Kueue places"
        await own.submit("wide", 3, placement=placement)
        await own.reason("wide", "QueueWaiting")


async def test_a_failed_node_is_replaced_where_kueue_says(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=8, flavor="placed") as (own, server):
        nodes = [f"{own.namespace}-c{number}" for number in range(3)]
        for name in nodes:
            await placed_node(own, server, name, "c", cpus=1)
        await own.submit("packed", 2, placement={"topologyKeys": [RACK], "pack": "Required"})
        pods = await own.pods("packed", 2)
        places = {host_of(one): one for one in pods}
        for number, (host, one) in enumerate(places.items()):
            await own.kubelet.start(one, host, f"10.3.0.{number}")
        await own.holds("packed", "Admitted", "True")
        lost, spare = min(places), (set(nodes) - set(places)).pop()
        await own.call("DELETE", f"/api/v1/nodes/{lost}")

        async def replaced() -> bool:
            return {host_of(one) for one in await own.kubelet.list()} == {max(places), spare}

        await eventually(replaced, 60.0, what=f"a pod on {spare}")
        await own.holds("packed", "Admitted", "True")
        assert "unhealthyNodes" not in (await own.workload("packed"))["status"]
        assert not (await own.status("packed")).get("restarts", {}).get("counted")


async def test_pods_that_kueue_queues_itself_are_named(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=2) as (own, _):
        local = {"spec": {"clusterQueue": own.cluster_queue}}
        own.administrator.create("localqueues", "default", local, own.namespace)
        await own.submit("queued", 1)
        (pod,) = await own.pods("queued", 1)
        assert not pod["spec"].get("schedulingGates"), "Kueue leaves pods of a queued job alone"
        body = queued_job("captured", 1)
        del body["metadata"]["labels"]
        await own.call("POST", JOBS.format(own.namespace), body)

        async def named() -> bool:
            found = (await own.status("captured")).get("conditions") or ()
            return any(one["reason"] == "QueueCaptured" for one in found)

        await eventually(named, 30.0, what="QueueCaptured")


async def test_kueue_refuses_a_wrong_workload(
    queue_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team(queue_plane, monkeypatch, cpus=8) as (own, _):
        body = queued_job("many", 1)
        role = body["spec"]["roles"][0]
        body["spec"]["roles"] = [{**role, "name": f"role-{number}"} for number in range(9)]
        try:
            await own.call("POST", JOBS.format(own.namespace), body)
        except urllib.error.HTTPError as error:
            assert error.code == 422, "a job may not have so many roles at all"
            return
        await own.reason("many", "QueueRefused", "podSets")
