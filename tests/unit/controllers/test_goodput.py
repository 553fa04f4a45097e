"""Tests of the goodput ledger: every second has one cause, transitions have the times that ranks report,
and the sum of all seconds is the job's age.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_controllers.testing.builders import NOW, ToyCluster, make_engine, make_job
from convoy_controllers.views import GuardView, SlowView
from convoy_crds.goodput import totals
from convoy_crds.trainingjob import TrainingJob


def made(**spec: Any) -> ToyCluster:
    job = make_job(roles=[{"name": "worker", "replicas": 2, "minReplicas": 1}], **spec)
    body = job.to_dict()
    body["metadata"]["creationTimestamp"] = NOW.isoformat()
    return ToyCluster(TrainingJob.model_validate(body), make_engine())


def spent(cluster: ToyCluster) -> dict[str, float]:
    found = totals(cluster.job.status.goodput, cluster.now)
    assert sum(found.values()) == pytest.approx((cluster.now - NOW).total_seconds(), abs=2e-3)
    return {cause: value for cause, value in found.items() if value}


def test_life_without_a_fault() -> None:
    cluster = made()
    cluster.schedulable = False
    cluster.settle().wait(7).settle()
    cluster.schedulable = True
    for pod in ("job-worker-0", "job-worker-1"):
        cluster.lose(pod)
    cluster.settle().wait(3).train(1).settle().wait(20).train(50).settle()
    assert spent(cluster) == {"queue": 7, "start": 3, "productive": 20}
    cluster.wait(5).train(60).settle()
    assert cluster.job.status.goodput.ratio == pytest.approx(25 / 35, abs=1e-3)
    assert cluster.job.status.goodput.elapsed_seconds == pytest.approx(35, abs=0.1)
    cluster.exit_all().settle().wait(100).settle()
    assert cluster.job.status.goodput.cause == ""
    assert sum(totals(cluster.job.status.goodput, cluster.now).values()) == pytest.approx(35)


def test_late_reconcile_assigns_the_same_seconds() -> None:
    cluster = made().settle().wait(3).train(1).wait(10).train(11)
    cluster.wait(5).settle()
    assert spent(cluster) == {"start": 3, "productive": 15}
    died = cluster.now.timestamp()
    cluster.wait(4).exit(1, 137, signal=9, ended=died).settle()
    # The time since the last step is booked as detection, because a collective may stall long before a rank
    # ends.
    assert spent(cluster) == {"start": 3, "productive": 10, "detect": 9}
    cluster.wait(2).settle()
    assert spent(cluster)["restart"] == 2


def test_steps_made_again_are_recomputed_not_productive() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    cluster.exit(1, 137, signal=9, ended=cluster.now.timestamp()).settle().wait(2)
    cluster.train(12).settle().wait(4).train(18).settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "restart": 2, "recompute": 4}
    # The first step was step 12. At 1.5 steps per second, the job reached step 21 again 6 s later.
    cluster.wait(8).train(30).settle()
    assert spent(cluster) == {"start": 1, "productive": 16, "restart": 2, "recompute": 6}


def test_save_time_is_subtracted_from_the_steps_it_delays() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21, checkpoint_seconds=1.5).settle()
    cluster.exit(1, 137, signal=9, ended=cluster.now.timestamp()).settle().wait(2)
    cluster.train(22, checkpoint_seconds=0.0).settle().wait(5).train(30, checkpoint_seconds=0.25)
    cluster.exit_all().settle()
    assert spent(cluster) == {"start": 1, "productive": 13.25, "checkpoint": 1.75, "restart": 2}


def slow(cluster: ToyCluster, *slow: SlowView) -> None:
    cluster.guard = GuardView(cluster.job.status.incarnation, True, slow)
    cluster.settle()


def test_straggler_cost_is_subtracted_from_steps_while_it_lasts() -> None:
    cluster = made().settle().wait(1).train(1).settle()
    one = SlowView("Compute", "rank", (1,), ("node-1",), since=1, slowdown=0.43, lost=0.3)
    slow(cluster.wait(10).train(11), one)
    cluster.wait(10).train(21).settle()
    assert spent(cluster) == {"start": 1, "productive": 20}, "what does not last costs nothing yet"
    slow(cluster, replace(one, persistent=True))
    cluster.wait(10)
    assert spent(cluster) == {"start": 1, "productive": 27, "straggler": 3}, "also before the next write"
    slow(cluster.train(31), replace(one, persistent=True, lost=0.5))
    cluster.wait(10).train(41).settle()
    assert spent(cluster) == {"start": 1, "productive": 32, "straggler": 8}
    assert cluster.job.status.goodput.ratio == pytest.approx(32 / 41, abs=1e-3)
    slow(cluster)
    cluster.wait(10).train(51).settle()
    assert spent(cluster) == {"start": 1, "productive": 42, "straggler": 8}


def test_no_straggler_time_without_steps() -> None:
    cluster = made().settle().wait(1).train(1).settle()
    one = SlowView("Compute", "rank", (1,), ("node-1",), since=1, slowdown=1.0, lost=0.5, persistent=True)
    slow(cluster.wait(10).train(11), one)
    cluster.wait(10).train(21).exit(1, 137, signal=9, ended=cluster.now.timestamp()).settle().wait(4)
    assert spent(cluster) == {"start": 1, "productive": 15, "straggler": 5, "restart": 4}
    cluster.train(22).settle().wait(10).train(32).settle()
    assert spent(cluster)["straggler"] == 5, "the next incarnation's ranks have accused nobody"


@pytest.mark.parametrize(
    "view",
    [
        SlowView("Imbalance", "job", slowdown=0.5, lost=0.3, persistent=True),
        SlowView("Compute", "rank", (1,), slowdown=0.5, lost=0.3),
    ],
    ids=["nobody to blame", "not for long yet"],
)
def test_finding_without_a_persistent_straggler_costs_no_goodput(view: SlowView) -> None:
    cluster = made().settle().wait(1).train(1).settle()
    slow(cluster, view)
    cluster.wait(10).train(11).settle()
    assert spent(cluster) == {"start": 1, "productive": 10}


def test_detection_of_a_hang_starts_at_the_last_step() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21)
    last = cluster.now.timestamp()
    cluster.wait(30)
    for rank in (0, 1):
        cluster.rank(rank, time=last).exit(rank, 134, signal=6, hung=True, ended=last + 30)
    cluster.settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "detect": 30}


def test_detection_of_a_lost_node_starts_at_its_last_heartbeat() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    node = cluster.pods["job-worker-1"].node
    assert node is not None
    cluster.wait(6).silence(node, 6.0, agent_ready=False).settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "detect": 6}


def test_echo_of_a_lost_node_counts_as_detection() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    node = cluster.pods["job-worker-1"].node
    assert node is not None
    cluster.exit(0, 76, ended=cluster.now.timestamp()).wait(1).settle()
    cluster.wait(5).silence(node, 6.0, agent_ready=False).settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "detect": 6}
    cluster.wait(2).train(22).settle()
    assert spent(cluster)["restart"] == 2


def test_detection_during_a_restart_starts_at_the_last_heartbeat() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    cluster.exit(1, 137, signal=9, ended=cluster.now.timestamp()).settle().wait(100)
    node = cluster.pods["job-worker-1"].node
    assert node is not None
    cluster.wait(6).silence(node, 6.0, agent_ready=False).settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "restart": 100, "detect": 6}


def test_steps_made_before_the_ranks_stopped_count() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    cluster.pod("job-worker-1", deleting=True).settle().wait(1).train(23).settle()
    # 10 s after the decision, only ranks on unreachable nodes can still make steps, so step 41 does not
    # count.
    cluster.wait(9).train(41).settle().lose("job-worker-1").settle().wait(2)
    cluster.train(12).settle().wait(10).train(32).settle()
    assert spent(cluster)["recompute"] == 5.5


def test_suspended_and_waiting_for_room_after_a_fault() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    cluster.spec(suspend=True).settle().wait(60).settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "suspended": 60}
    cluster.spec(suspend=False).settle().wait(2).train(22).settle().wait(1).train(23).settle()
    assert spent(cluster) == {"start": 3, "productive": 11, "suspended": 60}


def test_a_job_that_makes_no_progress_writes_no_status() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10)
    assert cluster.step().status is None


def test_job_stalled_behind_its_furthest_step_writes_no_status() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    cluster.exit(1, 137, signal=9, ended=cluster.now.timestamp()).settle().wait(2).train(5).settle().wait(10)
    assert cluster.step().status is None


def test_recompute_is_known_if_first_seen_past_the_furthest_step() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    cluster.exit(1, 137, signal=9, ended=cluster.now.timestamp()).settle().wait(2)
    # After the restart, the job reports step 1 and then, 15 s later, step 31. The 20 lost steps took 10 s of
    # this time.
    cluster.train(1).wait(15).train(31).settle()
    assert spent(cluster) == {"start": 1, "productive": 15, "restart": 2, "recompute": 10}


def test_recompute_excludes_steps_restored_from_a_checkpoint() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).commit(11).settle()
    cluster.exit(1, 137, signal=9, ended=cluster.now.timestamp()).settle().wait(2)
    cluster.train(12).wait(10).train(32).settle()
    assert spent(cluster) == {"start": 1, "productive": 15.5, "restart": 2, "recompute": 4.5}


def test_step_after_the_last_heartbeat_delays_the_start_of_detection() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    node = cluster.pods["job-worker-1"].node
    assert node is not None
    cluster.wait(5.25).silence(node, 6.0, agent_ready=False).settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "detect": 5.25}


def test_fault_without_a_time_has_the_time_of_its_echo() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    cluster.exit(0, 76, ended=cluster.now.timestamp()).wait(0.25)
    cluster.pod("job-worker-1", phase="Failed", exit_code=137, termination_reason="OOMKilled").settle()
    last = cluster.job.status.restarts.last
    assert last is not None and last.reason == "ContainerOutOfMemory"
    assert spent(cluster) == {"start": 1, "productive": 10, "detect": 0.25}


def test_time_between_the_end_and_its_report_is_not_productive() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    for rank in (0, 1):
        cluster.exit(rank, 0, ended=cluster.now.timestamp())
    cluster.wait(20).settle()
    assert cluster.job.status.phase == "Succeeded"
    assert spent(cluster)["productive"] == 10


def test_rank_without_steps_does_not_hide_steps_of_others() -> None:
    cluster = made().settle().wait(1)
    for number in (1, 21):
        at = cluster.now.timestamp()
        cluster.rank(0, step=number, time=at, first_step=at - (number - 1) / 2).settle().wait(10)
    assert spent(cluster) == {"start": 1, "productive": 20}
    cluster.exit(0, 137, signal=9, ended=cluster.now.timestamp()).settle().wait(2)
    at = cluster.now.timestamp()
    cluster.rank(0, step=1, time=at, first_step=at).settle()
    assert cluster.job.status.goodput.cause == "recompute"


EVENTS = st.lists(
    st.tuples(st.sampled_from(["train", "kill", "suspend", "resume", "wait", "lose"]), st.integers(0, 40)),
    max_size=25,
)


@pytest.mark.timeout(cases(180))
@settings(max_examples=cases(30))
@given(EVENTS)
def test_ledger_always_sums_to_the_job_s_age(events: list[tuple[str, int]]) -> None:
    cluster, step = made(recovery={"maxRestarts": 100}), 0
    for what, amount in events:
        if what == "train":
            step += amount
            cluster.wait(amount / 7).train(step, checkpoint_seconds=amount / 50)
        elif what == "kill":
            step = max(0, step - amount)
            cluster.wait(amount / 9).exit(1, 137, signal=9, ended=cluster.now.timestamp() - amount / 11)
        elif what == "lose" and cluster.pods:
            cluster.lose(sorted(cluster.pods)[0])
        elif what in ("suspend", "resume"):
            cluster.spec(suspend=what == "suspend")
        cluster.wait(amount / 3).settle()
        spent(cluster)


# Tests of the time after the last step


def all_ranks(cluster: ToyCluster, **facts: Any) -> ToyCluster:
    return cluster.rank(0, **facts).rank(1, **facts)


def test_work_after_the_last_step_is_not_productive() -> None:
    """A program without a known total evaluates for 30 s after its last step, and then returns. The 30 s
    move from productive to finish only after its return.
    """
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle().wait(30)
    assert spent(cluster) == {"start": 1, "productive": 40}, "it may be one long step"
    all_ranks(cluster, finished=cluster.now.timestamp()).settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "finish": 30}
    cluster.wait(20).settle()
    for rank in (0, 1):
        cluster.exit(rank, 0, ended=cluster.now.timestamp())
    cluster.settle()
    assert cluster.job.status.phase == "Succeeded"
    assert spent(cluster) == {"start": 1, "productive": 10, "finish": 50}


def test_finish_starts_at_the_last_step_if_the_total_is_known() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21, total_steps=21).settle().wait(30)
    assert spent(cluster) == {"start": 1, "productive": 10, "finish": 30}


def test_finish_does_not_start_before_the_last_rank_finishes() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).settle()
    cluster.rank(1, finished=cluster.now.timestamp()).wait(10).settle()
    assert spent(cluster) == {"start": 1, "productive": 20}


def test_end_and_last_steps_may_be_observed_together() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).wait(7)
    for rank in (0, 1):
        cluster.exit(rank, 0, ended=cluster.now.timestamp(), finished=cluster.now.timestamp())
    cluster.wait(2).settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "finish": 7, "detect": 2}


def test_last_save_is_subtracted_from_the_finish() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21, checkpoint_seconds=1.5).settle()
    cluster.wait(8)
    all_ranks(cluster, finished=cluster.now.timestamp(), checkpoint_seconds=6.5).settle()
    assert spent(cluster) == {"start": 1, "productive": 8.5, "checkpoint": 6.5, "finish": 3}


def test_save_time_beyond_the_finish_is_subtracted_from_steps() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21).wait(1)
    all_ranks(cluster, finished=cluster.now.timestamp(), checkpoint_seconds=3.0).settle()
    assert spent(cluster) == {"start": 1, "productive": 8, "checkpoint": 3}


def test_second_training_loop_turns_the_finish_into_productive_time() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21, total_steps=21).settle().wait(30)
    assert spent(cluster)["finish"] == 30
    cluster.train(22, total_steps=50).settle().wait(10).train(32).settle()
    assert spent(cluster) == {"start": 1, "productive": 50}


def test_rank_that_never_ends_hangs_since_its_last_step() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21)
    last = cluster.now.timestamp()
    all_ranks(cluster.wait(5), finished=cluster.now.timestamp()).settle().wait(600)
    for rank in (0, 1):
        cluster.exit(rank, 134, signal=6, hung=True, ended=last + 605)
    cluster.settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "detect": 605}


def test_fault_during_the_finish_ends_the_finish() -> None:
    cluster = made().settle().wait(1).train(1).settle().wait(10).train(21, total_steps=21).settle().wait(30)
    cluster.exit(1, 137, signal=9, ended=cluster.now.timestamp()).wait(1).settle().wait(2).settle()
    assert spent(cluster) == {"start": 1, "productive": 10, "finish": 30, "detect": 1, "restart": 2}
