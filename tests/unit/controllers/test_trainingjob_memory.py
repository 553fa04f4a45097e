"""Tests of jobs that keep checkpoints in node memory: which node keeps which copies, and the condition
Checkpointing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from convoy_agents.wire import hub_pb2
from convoy_controllers.commands import Assign, MemoryTiers
from convoy_controllers.testing.builders import NOW, ToyCluster, make_engine, make_job, make_store
from convoy_controllers.trainingjob.checkpointing import GRAVEST_FIRST, TROUBLES, finding, overdue
from convoy_controllers.views import NodeView
from convoy_crds import terms
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import CheckpointStatus, Progress

BOTH = {"tiers": {"local": {}, "peer": {}}}


def job(replicas: int = 3, checkpoint: Any = BOTH, **spec: Any) -> ToyCluster:
    roles = [{"name": "worker", "replicas": replicas}]
    return ToyCluster(make_job(roles=roles, checkpoint=checkpoint, **spec), make_engine())


def label(cluster: ToyCluster, *values: str, key: str = "topology.kubernetes.io/zone") -> None:
    """Give a label to the nodes of the pods; the values are in the order of the pods."""
    for pod, value in zip(cluster.pods.values(), values, strict=True):
        assert pod.node is not None
        view = cluster.nodes.get(pod.node, NodeView(pod.node))
        cluster.nodes[pod.node] = replace(view, labels={key: value})


def assigned(cluster: ToyCluster, incarnation: int = 1) -> dict[str, MemoryTiers | None]:
    """Return the memory settings that each node got in its newest assignment, by name of the node."""
    return {
        command.node: command.memory
        for plan in cluster.plans
        for command in plan.commands
        if isinstance(command, Assign) and command.incarnation == incarnation
    }


def test_every_slot_is_assigned_hosts_for_its_copies() -> None:
    settings = assigned(job().settle())
    assert len(settings) == 3
    for node, memory in settings.items():
        assert memory is not None and memory.copies == 1 and memory.limit == 0
        assert len(memory.hosts) == 1 and node not in memory.hosts
    # Each node keeps the copies of exactly one other node.
    hosts = [memory.hosts[0] for memory in settings.values() if memory]
    assert len(set(hosts)) == 3


@pytest.mark.parametrize(
    "replicas, tiers, copies",
    [
        (1, {"local": {}, "peer": {}}, 0),
        (2, {"local": {}, "peer": {"copies": 4}}, 1),
        (3, {"local": {}, "peer": {"copies": 2}}, 2),
        (3, {"local": {}}, 0),
    ],
)
def test_number_of_copies_is_limited_by_the_other_nodes(replicas: int, tiers: Any, copies: int) -> None:
    for memory in assigned(job(replicas, {"tiers": tiers}).settle()).values():
        assert memory is not None and memory.copies == copies == len(memory.hosts)


def test_only_the_slot_with_an_invalid_token_is_assigned_again() -> None:
    cluster = job().settle()
    uid = next(uid for uid, view in cluster.views.items() if any(one.rank == 1 for one in view.ranks))
    cluster.views[uid] = replace(cluster.views[uid], slot_token_valid=False)
    made = cluster.step()
    assignments = [(one.incarnation, one.slot) for one in made.commands if isinstance(one, Assign)]
    assert assignments == [(1, 1)] and len(made.commands) == 1
    assert cluster.job.status.incarnation == 1 and cluster.step().commands == made.commands
    cluster.views[uid] = replace(cluster.views[uid], slot_token_valid=True)
    assert cluster.step().commands == ()


def test_memory_limit_is_assigned_in_bytes() -> None:
    settings = assigned(job(checkpoint={"tiers": {"local": {"memory": "3Gi"}}}).settle())
    assert {memory.limit for memory in settings.values() if memory} == {3 * 2**30}


def test_job_without_memory_tiers_gets_no_memory_settings() -> None:
    assert set(assigned(job(checkpoint={}).settle()).values()) == {None}


def test_slot_0_gets_the_other_holders() -> None:
    cluster = job()
    cluster.holders = ("elsewhere", "node-0")
    settings = assigned(cluster.settle())
    first = cluster.pods["job-worker-0"].node
    members = {pod.node for pod in cluster.pods.values()}
    for node, memory in settings.items():
        assert memory is not None
        wanted = tuple(one for one in cluster.holders if one not in members) if node == first else ()
        assert memory.holders == wanted


def test_copies_are_in_another_zone_if_possible() -> None:
    cluster = job().settle()
    label(cluster, "a", "b", "b")
    zone = {node: view.labels["topology.kubernetes.io/zone"] for node, view in cluster.nodes.items()}
    cluster.rank(0, state="EXITED", exit_code=1).settle().wait(2).settle()
    settings = assigned(cluster, 2)
    apart = [zone[memory.hosts[0]] != zone[node] for node, memory in settings.items() if memory]
    assert sorted(apart) == [False, True, True]


def test_pods_get_the_save_settings_as_variables() -> None:
    cluster = job(checkpoint={"interval": "30s", "tiers": {"local": {}, "peer": {}}})
    made = cluster.step().manifests[0]
    environment = {entry["name"]: entry["value"] for entry in made["spec"]["containers"][0]["env"]}
    assert environment[terms.ENV_CHECKPOINT_TIERS] == "local,peer"
    assert environment[terms.ENV_CHECKPOINT_SECONDS] == "30"
    assert terms.ENV_CHECKPOINT_JOURNAL not in environment
    full = job(checkpoint={"journal": False, "tiers": {"local": {}}}).step().manifests[0]
    environment = {entry["name"]: entry["value"] for entry in full["spec"]["containers"][0]["env"]}
    assert environment[terms.ENV_CHECKPOINT_JOURNAL] == "false"


def test_template_does_not_override_convoys_variables() -> None:
    own = [
        {"name": terms.ENV_CHECKPOINT_DIR, "value": "/mine"},
        {"name": terms.ENV_SOCKET, "value": "/mine"},
        {"name": "MINE", "value": "1"},
    ]
    template = {"spec": {"containers": [{"name": "worker", "env": own}]}}
    job = make_job(roles=[{"name": "worker", "replicas": 1, "template": template}])
    made = ToyCluster(job, make_engine()).step().manifests[0]
    environment = {entry["name"]: entry["value"] for entry in made["spec"]["containers"][0]["env"]}
    assert terms.ENV_CHECKPOINT_DIR not in environment and environment["MINE"] == "1"
    assert environment[terms.ENV_SOCKET] != "/mine"


def test_watermarks_only_grow_and_show_the_farthest_tier_of_the_newest() -> None:
    cluster = job().settle().train(5)
    cluster.commit(10, "local").settle().wait(60).settle()
    point = cluster.job.status.checkpoint
    assert point and (point.step, point.tier) == (10, "local")
    cluster.commit(10, "peer").settle().wait(60).settle()
    point = cluster.job.status.checkpoint
    assert point and (point.step, point.tier) == (10, "peer")
    cluster.commit(20, "local").settle().wait(60).settle()
    point = cluster.job.status.checkpoint
    assert point and (point.step, point.tier) == (20, "local")
    assert point.watermarks.peer and point.watermarks.peer.step == 10
    cluster.commit(15, "local").settle().wait(60).settle()
    assert cluster.job.status.checkpoint and cluster.job.status.checkpoint.step == 20


def test_save_problem_is_a_condition_and_an_event() -> None:
    cluster = job().settle()
    assert cluster.condition["Checkpointing"] == ("False", "NothingSaved")
    cluster.commit(0, "local").settle().wait(60).settle()
    assert cluster.condition["Checkpointing"] == ("True", "SingleDomain")
    uid = next(iter(cluster.views))
    cluster.views[uid] = replace(
        cluster.views[uid], troubles=(("NO_MEMORY", "rank 0: 7 more bytes are needed"),)
    )
    cluster.settle()
    assert cluster.condition["Checkpointing"] == ("False", "NoCheckpointMemory")
    found = next(one for one in cluster.job.status.conditions if one.type == "Checkpointing")
    assert "7 more bytes are needed" in found.message and cluster.views[uid].node in found.message
    assert cluster.events.count("NoCheckpointMemory") == 1
    # A lost shard is reported. The loss no longer matters after this incarnation has committed a generation
    # itself.
    cluster.rank(0, state="EXITED", exit_code=1).settle().wait(2).settle()
    uid = next(iter(cluster.views))
    cluster.views[uid] = replace(cluster.views[uid], troubles=(("LOST", "nobody has shard 1 of gen-1-10"),))
    cluster.settle()
    assert cluster.condition["Checkpointing"] == ("False", "CheckpointsLost")
    cluster.commit(3, "local").settle().wait(60).settle()
    assert cluster.condition["Checkpointing"][0] == "True"
    cluster.views[uid] = replace(cluster.views[uid], troubles=(("INEXACT", "rank 1: two.weight"),))
    cluster.settle()
    assert cluster.condition["Checkpointing"] == ("True", "InexactJournal")


def test_every_save_problem_has_a_rank_in_the_severity_table() -> None:
    assert TROUBLES.keys() == set(hub_pb2.Trouble.Kind.keys())
    assert set(TROUBLES.values()) <= set(GRAVEST_FIRST) and len(set(GRAVEST_FIRST)) == len(GRAVEST_FIRST)


GRAVEST = [
    ("NOT_RESTORED", ("False", "StoreUnavailable")),
    ("NO_MEMORY", ("False", "NoCheckpointMemory")),
    ("LOST", ("False", "CheckpointsLost")),
    ("NOT_COPIED", ("False", "NotCopied")),
    ("NOT_STORED", ("False", "NotStored")),
    ("INEXACT", ("True", "InexactJournal")),
]


@pytest.mark.parametrize("worst", range(len(GRAVEST)))
@pytest.mark.parametrize("apart", [False, True])
def test_condition_shows_the_gravest_problem(worst: int, apart: bool) -> None:
    """Agents report several problems, of one pod or of several, in any order. The condition shows the
    gravest one.
    """
    cluster = job().settle()
    cluster.commit(5, "peer").settle()
    # The checkpoint is of an earlier incarnation, so it does not hide a loss in the next one.
    cluster.rank(0, state="EXITED", exit_code=1).settle().wait(2).settle()
    troubles = [(kind, f"why {kind}") for kind, _ in reversed(GRAVEST[worst:])]
    uids = list(cluster.views)
    if apart:
        for number, one in enumerate(troubles):
            uid = uids[number % len(uids)]
            known = cluster.views[uid]
            cluster.views[uid] = replace(known, troubles=(*known.troubles, one))
    else:
        cluster.views[uids[-1]] = replace(cluster.views[uids[-1]], troubles=tuple(troubles))
    cluster.settle()
    kind, wanted = GRAVEST[worst]
    assert cluster.condition["Checkpointing"] == wanted
    (condition,) = [one for one in cluster.job.status.conditions if one.type == "Checkpointing"]
    assert f"why {kind}" in condition.message


def test_loss_without_a_save_is_reported_as_nothing_saved() -> None:
    cluster = job().settle()
    uid = next(iter(cluster.views))
    cluster.views[uid] = replace(cluster.views[uid], troubles=(("LOST", "nobody knows of any checkpoint"),))
    assert cluster.settle().condition["Checkpointing"] == ("False", "NothingSaved")


def test_missing_copies_are_reported_with_a_remedy() -> None:
    cluster = job().settle().commit(5, "peer").settle()
    uid = next(iter(cluster.views))
    why = "two: 7 more bytes are needed: the node's limit is 8 bytes"
    cluster.views[uid] = replace(cluster.views[uid], troubles=(("NOT_COPIED", why),))
    cluster.settle()
    (condition,) = [one for one in cluster.job.status.conditions if one.type == "Checkpointing"]
    for words in (
        why,
        cluster.views[uid].node,
        "agent.checkpointMemoryMiB",
        "spec.checkpoint.tiers.peer.copies",
    ):
        assert words in condition.message
    assert cluster.events.count("NotCopied") == 1
    # The job's checkpoints are not copied, so the message must not claim that the last step is saved.
    cluster.spec(suspend=True).step()
    assert "the last steps may be lost" in cluster.job.status.message
    assert "(NotCopied)" in cluster.job.status.message


def test_suspend_message_mentions_the_save_if_ranks_can_save() -> None:
    cluster = job().settle().commit(5, "peer").settle()
    cluster.spec(suspend=True).step()
    assert "the ranks save their state" in cluster.job.status.message


BEGAN = NOW.timestamp()


@pytest.mark.parametrize(
    ("interval", "saved", "stepped", "steps", "wanted"),
    [
        (10, 0, 130, 50, False),
        (10, 0, 131, 50, True),
        (10, 500, 630, 50, False),
        (10, 500, 631, 50, True),
        (300, 0, 1500, 50, False),
        (300, 0, 1501, 50, True),
        # A step may take longer than all limits of time, so a save is overdue only after 3 further steps.
        (10, 0, 7200, 2, False),
        (10, 0, 7200, 3, True),
        # A checkpoint of an earlier incarnation counts as saved at the first step of this incarnation.
        (10, -86400, 130, 50, False),
        (10, -86400, 131, 50, True),
        # The checkpoint is reported before the step that it contains.
        (10, 500, 400, -3, False),
    ],
)
def test_time_after_which_a_save_is_overdue(
    interval: int, saved: int, stepped: int, steps: int, wanted: bool
) -> None:
    point = CheckpointStatus(incarnation=1, step=100, tier="local", time=NOW + timedelta(seconds=saved))
    progress = Progress(step=100 + steps, time=NOW + timedelta(seconds=stepped))
    assert overdue(point, progress, BEGAN, interval) is wanted
    assert not overdue(point, progress.model_copy(update={"time": None}), BEGAN, interval)


@pytest.mark.parametrize("interval", ["30s", "Auto"])
def test_job_that_steps_without_saves_is_not_reported_as_saving(interval: str) -> None:
    limit = 150 if interval == "30s" else 5 * 300
    cluster = job(checkpoint={"interval": interval, **BOTH}).settle().train(1).settle()
    label(cluster, "a", "b", "a")
    cluster.commit(1, "peer").settle()
    cluster.wait(limit).train(40).settle()
    assert cluster.condition["Checkpointing"] == ("True", "Saving")
    cluster.wait(1).settle()
    assert cluster.condition["Checkpointing"] == ("True", "Saving"), "time alone says nothing"
    cluster.train(41).settle()
    assert cluster.condition["Checkpointing"] == ("False", "Overdue")
    (condition,) = [one for one in cluster.job.status.conditions if one.type == "Checkpointing"]
    assert "(step 1)" in condition.message and cluster.events.count("Overdue") == 1
    # The next incarnation has saved nothing yet, but its limits count only from its own first step, so no
    # save is overdue.
    cluster.rank(0, state="EXITED", exit_code=1).settle().wait(2).settle().train(42).settle()
    assert cluster.condition["Checkpointing"] == ("True", "Saving")
    cluster.wait(limit + 1).train(90).settle()
    assert cluster.condition["Checkpointing"] == ("False", "Overdue")
    cluster.commit(90, "local").settle()
    assert cluster.condition["Checkpointing"] == ("True", "Saving")


def test_missing_peer_precedes_an_inexact_restore() -> None:
    alone = job(1).settle().commit(5, "local").settle()
    uid = next(iter(alone.views))
    alone.views[uid] = replace(alone.views[uid], troubles=(("INEXACT", "rank 0: two.weight"),))
    assert alone.settle().condition["Checkpointing"] == ("False", "NoPeer")


def test_past_loss_does_not_hide_a_current_problem_of_the_same_pod() -> None:
    cluster = job().settle()
    cluster.commit(5, "peer").settle()
    uid = next(iter(cluster.views))
    both = (("LOST", "nothing is whole"), ("NOT_STORED", "gen-1-5: the store is full"))
    cluster.views[uid] = replace(cluster.views[uid], troubles=both)
    assert cluster.settle().condition["Checkpointing"] == ("False", "NotStored")


@pytest.mark.parametrize(
    "zones, wanted",
    [
        (("a", "b", "a"), ("True", "Saving")),
        (("a", "a", "a"), ("True", "SingleDomain")),
        (("", "", ""), ("True", "SingleDomain")),
        (("a", "", ""), ("True", "Saving")),
    ],
)
def test_single_zone_for_all_copies_is_reported(zones: tuple[str, ...], wanted: tuple[str, str]) -> None:
    cluster = job().settle()
    label(cluster, *zones)
    cluster.commit(5, "peer").settle()
    assert cluster.condition["Checkpointing"] == wanted


def test_first_report_of_an_incarnation_does_not_set_no_peer() -> None:
    """Only one agent has reported the incarnation so far. The condition NoPeer is not set, because the pods
    are on several nodes.
    """
    cluster = job().settle()
    first = next(iter(cluster.views))
    for uid, view in cluster.views.items():
        if uid != first:
            cluster.views[uid] = replace(view, incarnation=0)
    found = finding(cluster.observed(), cluster.job.status)
    assert found and found.reason == Reasons.NOTHING_SAVED


def test_single_node_has_no_peer() -> None:
    assert job(1).settle().condition["Checkpointing"] == ("False", "NoPeer")
    alone = job(1, {"tiers": {"local": {}}}).settle().commit(5, "local").settle()
    assert alone.condition["Checkpointing"] == ("True", "Saving")
    assert "Checkpointing" not in job(1, {}).settle().condition


@pytest.mark.parametrize(
    "memory, wanted",
    [("512Mi", True), ("1073741824", True), ("1.5Gi", False), ("0", False), ("-1Gi", False), ("8GB", False)],
)
def test_memory_amounts_are_validated(memory: str, wanted: bool) -> None:
    def made() -> Any:
        return make_job(checkpoint={"tiers": {"local": {"memory": memory}}})

    if wanted:
        assert made()
    else:
        with pytest.raises(ValidationError, match="memory"):
            made()


STORED = {"tiers": {"local": {}, "remote": {"store": "s3"}}}


def _source(store: str = "s3", remote: bool = True) -> TrainingJob:
    mark = {"incarnation": 2, "step": 50, "time": "2026-01-01T00:00:00Z"}
    point = {**mark, "tier": "remote", "watermarks": {"local": mark, **({"remote": mark} if remote else {})}}
    tiers = {"tiers": {"local": {}, "remote": {"store": store}}}
    found = make_job(name="other", checkpoint=tiers)
    raw = {**found.to_dict(), "status": {"checkpoint": point}}
    raw["metadata"]["uid"] = "uid-of-other"
    return TrainingJob.model_validate(raw)


def test_job_resumed_from_another_job_is_assigned_the_source() -> None:
    cluster = job(checkpoint={**STORED, "resumeFrom": {"job": "other", "step": 40}})
    cluster.stores["s3"], cluster.source = make_store(), _source()
    for memory in assigned(cluster.settle()).values():
        assert memory is not None and memory.store is not None
        assert (memory.store.resume_uid, memory.store.resume_step) == ("uid-of-other", 40)
    cluster.source = None
    cluster.rank(0, state="EXITED", exit_code=1).settle().wait(2).settle()
    assert cluster.job.status.phase == "Running", "once it has begun, the other one may be gone"
    gone = job(checkpoint={**STORED, "resumeFrom": {"uid": "0a-1b"}})
    gone.stores["s3"] = make_store()
    (use, *_) = [memory.store for memory in assigned(gone.settle()).values() if memory]
    assert use is not None and (use.resume_uid, use.resume_step) == ("0a-1b", 0)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (None, "no such job"),
        (_source(store="else"), "does not save to CheckpointStore 's3'"),
        (_source(remote=False), "that job has no checkpoint in the store yet"),
    ],
)
def test_job_waits_for_the_state_to_resume(source: TrainingJob | None, why: str) -> None:
    cluster = job(checkpoint={**STORED, "resumeFrom": {"job": "other"}})
    cluster.stores["s3"], cluster.source = make_store(), source
    cluster.settle()
    assert cluster.job.status.phase == "Pending" and not cluster.pods
    assert cluster.condition["Valid"] == ("False", "NothingToResume")
    assert why in cluster.job.status.message
    cluster.source = _source()
    assert cluster.settle().job.status.phase == "Running"
