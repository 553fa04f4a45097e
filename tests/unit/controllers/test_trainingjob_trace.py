"""Tests of the decisions about `spec.trace`: which steps are recorded, and what the status says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.commands import Assign, TraceOrder
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job, make_store
from convoy_controllers.trainingjob.trace_results import MISSING_SECONDS
from convoy_controllers.trainingjob.tracing import MAX_ATTEMPTS
from convoy_controllers.views import GuardView, SlowView, TraceView
from convoy_crds.trainingjob_trace import TraceState, TraceStatus


def cluster(replicas: int = 2, **trace: Any) -> ToyCluster:
    job = make_job(roles=[{"name": "worker", "replicas": replicas}], trace={"store": "s3", **trace})
    found = ToyCluster(job, make_engine())
    found.stores["s3"] = make_store()
    return found


def orders(found: ToyCluster) -> list[TraceOrder]:
    """Return the newest order of each slot, in the order of the slots."""
    newest = {
        one.slot: one.trace
        for plan in found.plans
        for one in plan.commands
        if isinstance(one, Assign) and one.incarnation == found.job.status.incarnation
    }
    return [order for _, order in sorted(newest.items()) if order is not None]


def report(found: ToyCluster, rank: int, failure: str = "", **facts: Any) -> ToyCluster:
    """Let the agent of a rank report its trace."""
    for uid, view in found.views.items():
        if any(one.rank == rank for one in view.ranks):
            trace = TraceView(rank, not failure, failure, **facts)
            kept = tuple(one for one in view.traces if one.rank != rank)
            found.views[uid] = replace(view, traces=(*kept, trace))
    return found.settle()


def status(found: ToyCluster) -> TraceStatus:
    assert found.job.status.trace is not None
    return found.job.status.trace


def shown(found: ToyCluster) -> tuple[str, str] | None:
    return found.condition.get("TraceRecorded")


def test_given_steps_are_ordered_with_the_first_assignment_and_stored() -> None:
    found = cluster(steps={"first": 1, "count": 3}, maxMebibytes=2).settle()
    first, second = orders(found)
    assert first == TraceOrder(1, 0, first=1, count=3, ranks=(0,), store="s3", max_bytes=2 * 2**20)
    assert second.ranks == (1,)
    firsts = [one for plan in found.plans for one in plan.commands if isinstance(one, Assign)][:2]
    assert all(one.trace for one in firsts), "the ranks must know of step 1 before they make it"
    assert shown(found) == ("Unknown", "TraceRecording"), "the next step is the first one"
    report(found, 0, bytes=10, sha256="a", nodes=4, comm_bytes_per_step=8, exposed_communication_ratio=0.25)
    assert (status(found).state, [one.rank for one in status(found).files]) == (TraceState.RECORDING, [0])
    report(found, 1, bytes=20, sha256="b", nodes=5, comm_bytes_per_step=8, exposed_communication_ratio=0.5)
    done = status(found)
    assert shown(found) == ("True", "TraceStored")
    assert (done.state, done.bytes, done.nodes, done.comm_bytes_per_step) == (TraceState.STORED, 30, 9, 8)
    assert (done.exposed_communication_ratio, done.first_step, done.last_step) == (0.5, 1, 3)
    assert [one.file for one in done.files] == ["traces/trace-1.0.et", "traces/trace-1.1.et"]
    assert found.events.count("TraceStored") == 1
    assert all(view.trace == (0, 0) for view in found.views.values()), "the order is over"
    assert found.job.status.incarnation == 1, "a trace restarts nothing"


def test_next_steps_are_chosen_ahead_and_again_if_a_rank_is_past_them() -> None:
    found = cluster(steps={"count": 2}).settle()
    assert not orders(found) and shown(found) == ("Unknown", "TraceWaiting")
    found.train(100).settle()
    assert [(one.first, one.count, one.attempt) for one in orders(found)] == [(102, 2, 0)] * 2
    report(found, 0, bytes=10)
    found.train(110)
    report(found, 1, "STEPS_PASSED")
    assert [(one.recording, one.first, one.attempt) for one in orders(found)] == [(2, 126, 1)] * 2
    assert not status(found).files, "the ranks of a recording have made the same steps"
    assert (status(found).attempt, status(found).bytes) == (2, 0)
    report(found, 0, bytes=10)
    assert [one.file for one in status(found).files] == ["traces/trace-2.0.et"], (
        "no name of the first attempt"
    )
    for _ in range(MAX_ATTEMPTS):
        report(found, 1, "STEPS_PASSED")
    assert shown(found) == ("False", "TraceStepsPassed")
    assert found.job.status.phase == "Running"


def test_steps_are_chosen_ahead_of_the_furthest_rank() -> None:
    found = cluster(steps={"count": 2}).settle().train(100).rank(1, step=104).settle()
    assert [one.first for one in orders(found)] == [106] * 2


def test_given_steps_that_have_passed_fail_at_once() -> None:
    found = cluster(steps={"first": 5}).settle().train(9).settle()
    report(found, 1, "STEPS_PASSED")
    assert shown(found) == ("False", "TraceStepsPassed")
    assert "step 5" in status(found).message and "TraceStepsPassed" in found.events


def test_chosen_steps_end_with_the_job() -> None:
    found = cluster(steps={"count": 4}).settle().train(95, total_steps=100).settle()
    assert orders(found)[0].first == 97
    found.spec(trace={"store": "s3", "steps": {"count": 4}, "requestId": "b"}).train(
        96, total_steps=100
    ).settle()
    assert orders(found)[0].first == 97


@pytest.mark.parametrize(
    ("failure", "reason"),
    [("TOO_LARGE", "TraceTooLarge"), ("NOT_STORED", "TraceNotStored"), ("NOT_RECORDED", "TraceNotRecorded")],
)
def test_failure_of_a_rank_is_the_reason_and_other_files_are_shown(failure: str, reason: str) -> None:
    found = cluster(steps={"first": 3}).settle().train(9).settle()
    report(found, 0, bytes=7)
    report(found, 1, failure, message="the disk is full")
    assert shown(found) == ("False", reason)
    assert "rank 1" in status(found).message and "the disk is full" in status(found).message
    assert [one.rank for one in status(found).files] == [0]
    assert found.job.status.phase == "Running"


def test_silent_rank_counts_as_missing_only_long_after_the_last_step() -> None:
    found = (
        cluster(steps={"first": 3, "count": 2}).settle().train(3).settle().wait(2 * MISSING_SECONDS).settle()
    )
    assert shown(found) == ("Unknown", "TraceRecording")
    report(found.train(4).settle(), 0, bytes=7)
    found.wait(MISSING_SECONDS - 5).settle()
    assert shown(found) == ("Unknown", "TraceRecording")
    assert found.plans[-1].requeue_after is not None and found.plans[-1].requeue_after <= 6
    found.wait(10).settle()
    assert shown(found) == ("False", "TraceMissing")
    assert "rank 1 sent no trace" in status(found).message


def test_a_new_incarnation_records_again() -> None:
    found = cluster(steps={"first": 50, "count": 2}).settle().train(51).settle()
    report(found, 0, bytes=7)
    found.exit(1, code=1).settle().wait(60).settle()
    assert found.job.status.incarnation == 2
    assert [(one.first, one.recording) for one in orders(found)] == [(50, 2)] * 2
    assert not status(found).files
    report(report(found.train(60), 0), 1)
    assert shown(found) == ("True", "TraceStored")
    assert (status(found).incarnation, status(found).attempt) == (2, 2)
    assert [one.file for one in status(found).files] == ["traces/trace-2.0.et", "traces/trace-2.1.et"]


def test_running_job_is_recorded_on_request_and_once_more_with_another_id() -> None:
    job = ToyCluster(make_job(), make_engine())
    job.stores["s3"] = make_store()
    job.settle().train(10).settle()
    assert shown(job) is None
    wanted: dict[str, Any] = {"store": "s3", "steps": {"count": 1}, "ranks": [1]}
    job.spec(trace=wanted).settle()
    assert [(one.recording, one.ranks) for one in orders(job)] == [(1, (1,))]
    report(job, 1)
    assert shown(job) == ("True", "TraceStored")
    job.train(20).settle()
    assert status(job).recording == 1, "one request is one recording"
    job.spec(trace={**wanted, "requestId": "again"}).settle()
    assert (status(job).recording, status(job).request_id, orders(job)[-1].recording) == (2, "again", 2)
    job.spec(trace=None).settle()
    assert shown(job) is None and job.job.status.trace is None
    assert all(view.trace == (0, 0) for view in job.views.values())
    assert job.job.status.incarnation == 1


@pytest.mark.parametrize(
    ("trace", "reason", "text"),
    [
        ({"steps": {}, "ranks": [0, 2]}, "TraceRanksUnknown", "spec.trace.ranks: the job has ranks 0 to 1"),
        ({"steps": {}, "store": "other"}, "TraceStoreUnknown", "spec.trace.store: CheckpointStore 'other'"),
        ({"steps": {}, "store": "closed"}, "TraceStoreNotAllowed", "allow namespace 'default'"),
    ],
)
def test_bad_request_is_a_condition_and_never_stops_the_job(
    trace: dict[str, Any], reason: str, text: str
) -> None:
    found = cluster(**trace)
    found.stores["closed"] = make_store("closed", allowedNamespaces=["elsewhere"])
    found.settle().train(5).settle()
    assert shown(found) == ("False", reason)
    message = next(one.message for one in found.job.status.conditions if one.type == "TraceRecorded")
    assert text in message and found.events.count(reason) == 1
    assert found.job.status.phase == "Running" and not orders(found)
    found.spec(trace={"store": "s3", "steps": {}}).settle()
    assert orders(found), "a request that is mended is recorded"


def test_many_ranks_must_be_named() -> None:
    job = make_job(
        roles=[{"name": "worker", "replicas": 2, "processesPerReplica": 33}],
        trace={"store": "s3", "steps": {"first": 1}},
    )
    found = ToyCluster(job, make_engine())
    found.stores["s3"] = make_store()
    assert shown(found.settle()) == ("False", "TraceRanksUnknown")
    found.spec(trace={"store": "s3", "steps": {"first": 1}, "ranks": [40]}).settle()
    assert [one.ranks for one in orders(found)] == [(40,)]


def test_a_shrunk_job_records_the_ranks_that_it_has() -> None:
    for ranks, wanted in (([0, 1], [0]), ([1], None)):
        job = make_job(
            roles=[{"name": "worker", "replicas": 2, "minReplicas": 1}],
            trace={"store": "s3", "steps": {"first": 50}, "ranks": ranks},
        )
        found = ToyCluster(job, make_engine())
        found.stores["s3"] = make_store()
        found.settle().train(9).settle()
        found.schedulable = False
        found.lose("job-worker-1").settle().wait(60).settle()
        assert found.job.status.incarnation == 2
        if wanted is None:
            assert shown(found) == ("False", "TraceRanksUnknown") and not status(found).files
        else:
            assert status(found).ranks == wanted


def test_end_of_the_job_ends_the_recording() -> None:
    found = cluster(steps={"first": 500}).settle().train(9).settle().exit_all().settle()
    assert found.job.status.phase == "Succeeded"
    assert shown(found) == ("False", "TraceBeyondEnd")
    assert "the job ended at step 9, but the recording needs steps 500 to 501" in status(found).message
    unfinished = cluster(steps={"first": 5}).settle().train(9).settle().exit_all().settle()
    assert shown(unfinished) == ("False", "TraceJobEnded")
    stored = report(report(cluster(steps={"first": 5}).settle().train(9), 0), 1).exit_all().settle()
    assert shown(stored) == ("True", "TraceStored")


def slow(found: ToyCluster, *ranks: int, since: int = 40, persistent: bool = True) -> ToyCluster:
    """Let Guard name one straggler for each of the ranks."""
    nodes = {rank.rank: view.node for view in found.views.values() for rank in view.ranks}
    views = tuple(
        SlowView("Compute", "rank", (rank,), (nodes[rank],), since, slowdown=0.5, persistent=persistent)
        for rank in ranks
    )
    found.guard = GuardView(found.job.status.incarnation, True, views)
    return found.settle()


def test_each_straggler_is_recorded_once_beside_a_healthy_peer() -> None:
    rule = {"count": 3, "cooldownSeconds": 600, "maxRecordings": 2}
    found = cluster(5, onStraggler=rule).settle().train(50).settle()
    assert shown(found) == ("Unknown", "TraceArmed") and found.job.status.trace is None
    slow(found, 3, persistent=False)
    assert found.job.status.trace is None, "a recent slowness may pass by itself"
    slow(found, 3)
    assert [(one.ranks, one.count) for one in orders(found)] == [((1,), 3), ((3,), 3)], "rank 0 shares a node"
    assert status(found).trigger == "Straggler"
    named = status(found).straggler
    assert named is not None and (named.rank, named.cause, named.since_step) == (3, "Compute", 40)
    assert named.node == next(view.node for view in found.views.values() if view.ranks[0].rank == 3)
    report(report(found, 1), 3)
    assert f"(straggler: rank 3 on {named.node}, Compute since step 40)" in status(found).message
    assert shown(found) == ("True", "TraceStored")
    slow(found.wait(700).train(90), 3)
    assert status(found).recording == 1, "the same straggler is recorded once"
    slow(found, 0, since=80)
    assert status(found).recording == 2 and status(found).ranks == [0, 1]
    report(report(found, 0), 1)
    slow(found.wait(60), 4, since=90)
    assert status(found).recording == 2, "the cooldown"
    slow(found.wait(700), 4, since=90)
    assert status(found).recording == 2, "at most maxRecordings"
    assert found.job.status.internal.trace.stragglers == 2


def test_cooldown_begins_at_the_end_of_a_recording() -> None:
    found = cluster(5, onStraggler={"cooldownSeconds": 600}).settle().train(50).settle()
    report(report(slow(found, 3), 1), 3)
    slow(found.wait(599), 2, since=60)
    assert status(found).recording == 1
    slow(found.wait(1), 2, since=60)
    assert status(found).recording == 2


def test_restart_ends_the_recording_of_a_straggler() -> None:
    found = cluster(5, onStraggler={}).settle().train(50).settle()
    slow(found, 3).exit(1, code=1).settle().wait(60).settle()
    assert found.job.status.incarnation == 2
    assert shown(found) == ("False", "TraceInterrupted")
    assert not orders(found)


def armed(**trace: Any) -> dict[str, Any]:
    return {"store": "s3", "onStraggler": {}, **trace}


def test_withdrawn_steps_do_not_block_later_recordings() -> None:
    """Remove the steps while the ranks have reported no step, so none is chosen."""
    found = cluster(5, **armed(steps={"count": 2})).settle()
    assert shown(found) == ("Unknown", "TraceWaiting")
    found.spec(trace=armed()).settle()
    assert shown(found) == ("Unknown", "TraceArmed") and found.job.status.trace is None
    slow(found.train(50), 3)
    assert [one.ranks for one in orders(found)] == [(1,), (3,)]
    report(report(found, status(found).ranks[0]), status(found).ranks[1])
    assert shown(found) == ("True", "TraceStored")


def test_withdrawn_steps_can_be_asked_for_again() -> None:
    found = cluster(**armed(steps={"first": 50})).settle().train(9).settle()
    assert orders(found)
    found.spec(trace=armed()).settle()
    assert not orders(found)
    found.spec(trace=armed(steps={"first": 50})).settle()
    assert [(one.recording, one.first) for one in orders(found)] == [(2, 50)] * 2


def test_recording_of_a_straggler_is_withdrawn_with_its_rule() -> None:
    found = cluster(5, **armed(steps={"first": 2})).settle().train(9).settle()
    for rank in range(5):
        report(found, rank)
    slow(found.wait(700).train(50), 3)
    assert status(found).trigger == "Straggler"
    found.spec(trace={"store": "s3", "steps": {"first": 2}}).settle()
    assert shown(found) is None and found.job.status.trace is None and not orders(found)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"store": "other", "steps": {"count": 9}}, "TraceStoreUnknown"),
        ({"store": "s3", "steps": {"first": 7}, "ranks": [5]}, "TraceRanksUnknown"),
    ],
)
def test_recording_goes_on_while_the_spec_is_invalid(edit: dict[str, Any], reason: str) -> None:
    valid: dict[str, Any] = {"store": "s3", "steps": {"first": 50, "count": 2}}
    found = cluster(**valid).settle().train(9).settle()
    before = orders(found)
    found.spec(trace=edit).settle()
    assert shown(found) == ("False", reason) and found.events.count(reason) == 1
    assert orders(found) == before, "the ranks keep their order"
    report(found.train(60), 0)
    assert (status(found).state, len(status(found).files)) == (TraceState.RECORDING, 1)
    report(found, 1)
    assert (status(found).state, status(found).reason) == (TraceState.STORED, "TraceStored")
    assert shown(found) == ("False", reason) and found.events.count(reason) == 1
    found.spec(trace=valid).settle()
    assert shown(found) == ("True", "TraceStored"), "the edit was taken back"
    assert status(found).recording == 1


def test_waiting_recording_keeps_its_request_in_a_restart_while_the_spec_is_invalid() -> None:
    found = cluster(steps={"first": 50, "count": 2}, ranks=[1]).settle().train(9).settle()
    found.spec(trace={"store": "other", "steps": {"count": 9}}).settle()
    found.exit(1, code=1).settle().wait(60).settle()
    assert found.job.status.incarnation == 2
    assert [(one.first, one.count, one.ranks) for one in orders(found)] == [(50, 2, (1,))]


@pytest.mark.parametrize("change", [{"maxMebibytes": 32}, {"store": "s4"}])
def test_larger_limit_or_another_store_records_again(change: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {"store": "s3", "steps": {"count": 2}}
    found = cluster(**wanted)
    found.stores["s4"] = make_store("s4")
    report(report(found.settle().train(9).settle(), 0), 1, "TOO_LARGE", message="17 MiB")
    assert shown(found) == ("False", "TraceTooLarge")
    found.spec(trace={**wanted, **change}).settle()
    assert [one.recording for one in orders(found)] == [2, 2]
    given = orders(found)[0]
    expected = (change.get("maxMebibytes", 16) * 2**20, change.get("store", "s3"))
    assert (given.max_bytes, given.store) == expected


def test_steps_beyond_the_end_of_the_job_fail_with_the_cause() -> None:
    found = cluster(steps={"first": 101}).settle().train(9, total_steps=100).settle()
    assert shown(found) == ("False", "TraceBeyondEnd")
    assert "the job ends at step 100, but the recording needs step 101" in status(found).message
    late = cluster(steps={"count": 2}).settle().train(100, total_steps=100).settle()
    assert shown(late) == ("False", "TraceBeyondEnd")


def test_count_beyond_the_end_of_the_job_is_cut_with_another_order() -> None:
    found = cluster(steps={"first": 99, "count": 4}).settle()
    assert [(one.recording, one.count) for one in orders(found)] == [(1, 4)] * 2
    found.train(9, total_steps=100).settle()
    assert [(one.recording, one.first, one.count) for one in orders(found)] == [(2, 99, 2)] * 2
    assert (status(found).last_step, status(found).attempt) == (100, 2)
    report(report(found.train(100, total_steps=100), 0), 1)
    assert shown(found) == ("True", "TraceStored")
