"""Tests of jobs that upload checkpoints to a CheckpointStore: assignments to agents, and conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.commands import Assign, StoreUse
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job, make_store
from convoy_controllers.trainingjob.digests import digest
from convoy_crds import terms
from convoy_crds.trainingjob_status import Phase

REMOTE = {"store": "s3"}


def cluster(remote: Any = REMOTE, *stores: Any) -> ToyCluster:
    made = ToyCluster(make_job(checkpoint={"tiers": {"local": {}, "remote": remote}}), make_engine())
    made.stores = {store.metadata.name: store for store in stores or (make_store(),)}
    return made


@pytest.mark.parametrize(
    ("remote", "use"),
    [
        ({"store": "s3"}, StoreUse("s3", 600, 2, 0)),
        (
            {"store": "s3", "every": "2h", "keepLast": 7, "keepEverySteps": 1000},
            StoreUse("s3", 7200, 7, 1000),
        ),
    ],
)
def test_every_slot_is_assigned_the_store_and_its_interval(remote: Any, use: StoreUse) -> None:
    made = cluster(remote).settle()
    assigned = [one for plan in made.plans for one in plan.commands if isinstance(one, Assign)]
    assert {one.slot for one in assigned} == {0, 1}
    assert all(one.memory is not None and one.memory.store == use for one in assigned)


def test_job_without_a_store_is_assigned_no_store() -> None:
    made = ToyCluster(make_job(checkpoint={"tiers": {"local": {}}}), make_engine()).settle()
    assigned = [one.memory for plan in made.plans for one in plan.commands if isinstance(one, Assign)]
    assert assigned and all(one is not None and one.store is None for one in assigned)


def test_store_adds_no_mount_to_pods() -> None:
    plain = ToyCluster(make_job(), make_engine()).step().manifests[0]["spec"]
    spec = cluster().step().manifests[0]["spec"]
    (container,) = spec["containers"]
    assert spec["volumes"] == plain["volumes"]
    assert container["volumeMounts"] == plain["containers"][0]["volumeMounts"]
    assert container.keys() == plain["containers"][0].keys()
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    before = {entry["name"] for entry in plain["containers"][0]["env"]}
    assert environment.keys() - before == {terms.ENV_CHECKPOINT_TIERS, terms.ENV_CHECKPOINT_SECONDS}
    assert environment[terms.ENV_CHECKPOINT_TIERS] == "local,remote"
    assert environment[terms.ENV_CHECKPOINT_SECONDS] == "300"


@pytest.mark.parametrize(
    ("stores", "reason", "words"),
    [
        ([make_store("other")], "UnknownStore", "no CheckpointStore 's3'; create it or name one of: other"),
        (
            [make_store(allowedNamespaces=["elsewhere"])],
            "StoreNotAllowed",
            "CheckpointStore 's3' does not allow jobs of namespace 'default'",
        ),
    ],
)
def test_job_waits_for_its_store_and_starts_when_the_store_exists(
    stores: Any, reason: str, words: str
) -> None:
    made = cluster(REMOTE, *stores).settle()
    assert (made.job.status.phase, made.job.status.reason) == (Phase.PENDING, reason)
    assert made.condition["Valid"] == ("False", reason) and not made.pods
    assert words in made.job.status.message
    made.stores = {"s3": make_store()}
    made.settle()
    assert made.job.status.phase is Phase.RUNNING and made.condition["Valid"] == ("True", "Accepted")


def test_running_job_survives_the_deletion_of_its_store() -> None:
    made = cluster().settle().commit(5, "local").settle()
    assert made.condition["Checkpointing"] == ("True", "Saving")
    uids = made.uids
    made.stores = {}
    made.settle()
    assert made.job.status.phase is Phase.RUNNING and made.uids == uids
    assert made.condition["Checkpointing"] == ("False", "UnknownStore")


@pytest.mark.parametrize(
    ("ready", "wanted"),
    [
        ("True", ("True", "Saving")),
        ("False", ("False", "StoreNotReady")),
        ("", ("True", "Saving")),
    ],
)
def test_store_that_is_not_ready_is_reported_and_delays_nothing(ready: str, wanted: tuple[str, str]) -> None:
    made = (
        cluster(REMOTE, make_store(ready=ready, why="connection refused"))
        .settle()
        .commit(5, "local")
        .settle()
    )
    assert made.job.status.phase is Phase.RUNNING
    assert made.condition["Checkpointing"] == wanted
    if ready == "False":
        found = next(one for one in made.job.status.conditions if one.type == "Checkpointing")
        assert "'s3' is not ready, so checkpoints may be only in memory: connection refused" in found.message
        assert made.events.count("StoreNotReady") == 1
        made.stores = {"s3": make_store()}
        made.settle()
        assert made.condition["Checkpointing"] == ("True", "Saving")


def test_failed_upload_is_reported_until_an_upload_succeeds() -> None:
    made = cluster().settle()
    made.commit(3, "local").settle().wait(60).settle()
    uid = next(iter(made.views))
    why = "gen-1-20: bucket checkpoints: HTTP 403 ExpiredToken; the credentials have expired"
    made.views[uid] = replace(made.views[uid], troubles=(("NOT_STORED", why),))
    made.settle()
    assert made.condition["Checkpointing"] == ("False", "NotStored")
    found = next(one for one in made.job.status.conditions if one.type == "Checkpointing")
    assert why in found.message and made.views[uid].node in found.message and "'s3'" in found.message
    assert made.events.count("NotStored") == 1
    # The store itself is not ready, which explains more than the failed upload.
    made.stores["s3"] = make_store(ready="False", why="the agent of node n could not use it")
    made.wait(60).settle()
    assert made.condition["Checkpointing"] == ("False", "StoreNotReady")
    made.stores["s3"] = make_store()
    made.views[uid] = replace(made.views[uid], troubles=())
    made.wait(60).settle()
    assert made.condition["Checkpointing"][0] == "True"


AWAY = "bucket checkpoints: list: HTTP 503; it is tried again"


def _fail_restore(made: ToyCluster, *troubles: tuple[str, str]) -> ToyCluster:
    """Let a rank end because the store is unavailable. `troubles` are the problems that its agent reports."""
    uid = next(iter(made.views))
    made.views[uid] = replace(made.views[uid], troubles=troubles)
    made.exit(0, 69, stderr="StoreAway: no checkpoint", ended=made.now.timestamp())
    return made.settle()


def test_job_outlasts_any_outage_of_its_store() -> None:
    made = cluster().settle().train(5).commit(5, "local").settle()
    uids = made.uids
    for number in range(1, 21):
        made.views[uids[0]] = replace(made.views[uids[0]], troubles=(("NOT_RESTORED", AWAY),))
        made.settle()
        assert made.condition["Checkpointing"] == ("False", "StoreUnavailable")
        _fail_restore(made, ("NOT_RESTORED", AWAY)).wait(150).settle()
        status = made.job.status
        assert (status.phase, status.incarnation) == (Phase.RUNNING, 1 + number)
        assert (status.restarts.total, status.restarts.counted) == (number, 0)
        assert status.internal.restarts.times == []
        assert made.uids == uids, "nobody's pod is at fault"
        assert status.restarts.last is not None and status.restarts.last.reason == "StoreUnavailable"
        assert AWAY in status.restarts.last.message
    assert made.job.status.offenders == []
    # A fault that the job causes itself still counts.
    made.train(6).settle().exit(0, 1).settle()
    assert made.job.status.restarts.counted == 1


@pytest.mark.parametrize("troubles", [(), (("NOT_STORED", AWAY),)])
def test_program_that_fakes_a_store_outage_uses_its_restart_budget(
    troubles: tuple[tuple[str, str], ...],
) -> None:
    made = cluster().settle().train(5).settle()
    _fail_restore(made, *troubles)
    assert made.job.status.restarts.last is not None
    assert made.job.status.restarts.last.reason == "RankFailed"
    assert made.job.status.restarts.counted == 1


def test_peers_of_a_rank_that_waits_for_the_store_are_echoes() -> None:
    made = cluster().settle().train(5).settle()
    made.exit(1, 76, ended=made.now.timestamp() - 1)
    _fail_restore(made, ("NOT_RESTORED", AWAY))
    assert made.job.status.restarts.counted == 0


def test_explicit_defaults_do_not_change_the_digest_of_a_spec() -> None:
    """A spec with explicit default values has the same digest as a spec without them. The digest is in the
    status of running jobs, and a different one would look like a changed spec.
    """
    short = make_job(checkpoint={"tiers": {"local": {}, "remote": {"store": "s3"}}})
    assert short.spec.model_dump(exclude_defaults=True, by_alias=True, exclude_none=True)["checkpoint"] == {
        "tiers": {"local": {}, "remote": {"store": "s3"}}
    }
    remote = {"store": "s3", "every": "10m", "keepLast": 2, "keepEverySteps": 0}
    long = make_job(checkpoint={"tiers": {"local": {}, "remote": remote}})
    assert digest(short) == digest(long)
