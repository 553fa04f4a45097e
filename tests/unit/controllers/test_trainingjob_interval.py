"""Tests of jobs that let Convoy choose their save interval."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.checkpoint.interval import MAX_SECONDS, MIN_SECONDS
from convoy_controllers.commands import Assign
from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import ClusterEvent, TrainingPaused
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.program import Program
from convoy_controllers.testing.builders import NOW, ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.interval import UNMEASURED, assigned_seconds, decided, described, seconds
from convoy_controllers.views import RankView, SlotView
from convoy_crds import terms
from convoy_crds.trainingjob_status import (
    CheckpointStatus,
    ChosenInterval,
    Goodput,
    Progress,
    Restarts,
    TrainingJobStatus,
)

AUTO = {"interval": "Auto", "tiers": {"local": {}, "peer": {}}}
FIVE_MINUTES = ChosenInterval(seconds=300, reason=UNMEASURED)


def status(
    failures: int = 0, hours: float = 0.0, kept: ChosenInterval | None = None, incarnation: int = 1
) -> TrainingJobStatus:
    """Return the status of a job that has trained for `hours`, and waited in the queue for much longer."""
    return TrainingJobStatus(
        incarnation=incarnation,
        restarts=Restarts(total=failures),
        goodput=Goodput(seconds={"productive": hours * 3000, "recompute": hours * 600, "queue": 1e7}),
        checkpoint=CheckpointStatus(incarnation=1, step=1, tier="local", time=NOW, interval=kept),
    )


def views(*costs: tuple[float, float], incarnation: int = 1) -> list[SlotView]:
    """Return the report of one pod for each pair in `costs`. A pair is the stall of a save and the time
    until its copies were made, both in seconds.
    """
    return [
        SlotView(
            f"u{number}",
            "node",
            True,
            incarnation=incarnation,
            ranks=(RankView(number, "RUNNING", save_seconds=save, copy_seconds=copy),),
        )
        for number, (save, copy) in enumerate(costs)
    ]


@pytest.mark.parametrize(
    ("costs", "failures", "hours", "seconds", "why"),
    [
        ([], 0, 0, 300, UNMEASURED),
        ([(0.0, 0.0)], 9, 5, 300, UNMEASURED),
        ([(0.01, 0.5)], 0, 0, 42, "a save stalls for 10 ms, a failure is expected every 24.0 h"),
        ([(0.01, 0.5)], 9, 0, 14, "a failure is expected every 2.4 h"),
        ([(0.01, 0.5), (0.4, 0.1)], 0, 0, 263, "a save stalls for 400 ms"),
        ([(1.0, 0.0)], 99, 76, 85, "a failure is expected every 60 min"),
        ([(60.0, 0.0)], 99, 0, 1715, "may cost 3.5% of the time"),
        ([(0.01, 0.5), (0.01, 100.0)], 0, 0, 100, "copying a save takes 100.0 s"),
        ([(1000.0, 0.0)], 0, 0, MAX_SECONDS, "never more than 30 min"),
        ([(0.0001, 0.0)], 10**6, 0, MIN_SECONDS, "a save stalls for 0 ms"),
    ],
)
def test_measurements_decide_the_interval(
    costs: list[tuple[float, float]], failures: int, hours: float, seconds: float, why: str
) -> None:
    found = decided(make_job(checkpoint=AUTO), status(failures, hours), views(*costs))
    assert found is not None and found.seconds == seconds and why in found.reason


@pytest.mark.parametrize(
    ("kept", "reason", "changes"),
    [
        (42, "as before", False),
        (35, "as before", False),
        (34, "as before", True),
        (51, "as before", False),
        (52, "as before", True),
        (42, UNMEASURED, True),
        (300, UNMEASURED, True),
    ],
)
def test_interval_close_to_the_new_choice_stays(kept: int, reason: str, changes: bool) -> None:
    known = ChosenInterval(seconds=kept, reason=reason)
    found = decided(make_job(checkpoint=AUTO), status(kept=known), views((0.01, 0.5)))
    assert found is not None and (found != known) is changes
    assert found.seconds == (42 if changes else kept)


costs = st.tuples(st.floats(1e-6, 1e6), st.floats(0, 1e6))


@given(costs, costs, st.integers(0, 10**5), st.floats(0, 1e5), st.integers(1, 1800))
def test_decided_interval_is_within_bounds_and_stable(
    before: tuple[float, float], after: tuple[float, float], failures: int, hours: float, kept: int
) -> None:
    job, known = make_job(checkpoint=AUTO), ChosenInterval(seconds=kept, reason="as before")
    for measured in (before, after):
        found = decided(job, status(failures, hours, known), views(measured))
        assert found is not None and MIN_SECONDS <= found.seconds <= MAX_SECONDS
        assert decided(job, status(failures, hours, found), views(measured)) == found
        known = found


def test_save_cost_counts_only_from_the_running_incarnation() -> None:
    job, known = make_job(checkpoint=AUTO), ChosenInterval(seconds=77, reason="as before")
    assert decided(job, status(kept=known, incarnation=2), views((0.01, 0.5))) == known
    assert decided(job, status(incarnation=2), views((0.01, 0.5))) == FIVE_MINUTES


@pytest.mark.parametrize(
    ("checkpoint", "kept", "wanted"),
    [
        (AUTO, None, 300),
        (AUTO, ChosenInterval(seconds=85, reason="measured"), 85),
        ({**AUTO, "interval": "30s"}, None, 30),
    ],
)
def test_interval_in_seconds_of_each_spec(checkpoint: Any, kept: ChosenInterval | None, wanted: int) -> None:
    assert seconds(make_job(checkpoint=checkpoint), status(kept=kept)) == wanted


def test_time_counts_only_while_ranks_report_steps() -> None:
    job = make_job(checkpoint=AUTO)
    running = status(failures=99, kept=FIVE_MINUTES)
    running.goodput = Goodput(cause="productive", since=NOW)
    running.progress = Progress(step=9, time=NOW + timedelta(hours=76))
    assert decided(job, running, views((1.0, 0.0))) == decided(job, status(99, 76), views((1.0, 0.0)))
    running.goodput = Goodput(cause="restart", since=NOW)
    assert decided(job, running, views((1.0, 0.0))) == decided(job, status(99, 0), views((1.0, 0.0)))


@pytest.mark.parametrize(
    "checkpoint",
    [{}, {"interval": "30s", "tiers": {"local": {}}}],
)
def test_job_with_a_fixed_interval_gets_no_decision(checkpoint: Any) -> None:
    job, known = make_job(checkpoint=checkpoint), ChosenInterval(seconds=77, reason="of another spec")
    assert decided(job, status(kept=known), views((0.01, 0.5))) is None
    assert assigned_seconds(job, status(kept=known)) == 0
    assert described(job, status(kept=known)) == job.spec.checkpoint.interval


# Tests of the interval in whole plans


def job(checkpoint: Any = AUTO) -> ToyCluster:
    roles = [{"name": "worker", "replicas": 3}]
    return ToyCluster(make_job(roles=roles, checkpoint=checkpoint), make_engine()).settle()


def measured(cluster: ToyCluster, step: int = 5, save: float = 0.01, copy: float = 0.5) -> ToyCluster:
    """Let every rank report the cost of a save, and commit the generation."""
    return cluster.train(step, save_seconds=save, copy_seconds=copy).commit(step, "local").settle()


def assigned(cluster: ToyCluster, since: int = 0) -> list[tuple[int, int, int]]:
    """Return (incarnation, slot, interval) of every assignment since the plan with number `since`."""
    return [
        (command.incarnation, command.slot, command.memory.interval_seconds if command.memory else 0)
        for plan in cluster.plans[since:]
        for command in plan.commands
        if isinstance(command, Assign)
    ]


def message(cluster: ToyCluster) -> str:
    found = (one for one in cluster.job.status.conditions if one.type == "Checkpointing")
    return next(found).message


def chosen(cluster: ToyCluster) -> ChosenInterval | None:
    point = cluster.job.status.checkpoint
    return point.interval if point else None


def test_interval_is_five_minutes_before_the_first_measurement() -> None:
    cluster = job()
    made = cluster.plans[0].manifests[0]
    environment = {entry["name"]: entry["value"] for entry in made["spec"]["containers"][0]["env"]}
    assert environment[terms.ENV_CHECKPOINT_SECONDS] == "300"
    assert {interval for _, _, interval in assigned(cluster)} == {0}
    assert "(interval 300 s (Auto: nothing measured yet))" in message(cluster)
    cluster.train(5).commit(5, "local").settle()
    assert chosen(cluster) == FIVE_MINUTES


def test_measured_interval_is_shown_and_sent_to_slot_0_without_a_restart() -> None:
    cluster = job()
    before = len(cluster.plans)
    measured(cluster)
    found = chosen(cluster)
    assert found is not None and found.seconds == 42
    assert f"saving every 42 s (Auto: {found.reason})" in message(cluster)
    assert assigned(cluster, before) == [(1, 0, 42)]
    assert [cluster.views[uid].interval_seconds for uid in cluster.uids] == [42, 0, 0]
    states = {rank.state for view in cluster.views.values() for rank in view.ranks}
    assert (cluster.job.status.incarnation, states) == (1, {"RUNNING"})


def test_unchanged_interval_is_neither_resent_nor_written() -> None:
    cluster = measured(job())
    before = len(cluster.plans)
    made = cluster.step()
    assert (made.status, made.commands, made.requeue_after) == (None, (), None)
    made = cluster.wait(3600).step()
    assert (made.status, made.commands) == (None, ())
    # The next save costs about as much as the one before, so the interval stays.
    measured(cluster, 50, save=0.011, copy=0.6)
    assert assigned(cluster, before) == []
    measured(cluster, 90, save=0.4)
    assert [one[:2] for one in assigned(cluster, before)] == [(1, 0)]


def test_unacknowledged_interval_is_resent() -> None:
    cluster = job()
    cluster.drop_commands = True
    measured(cluster)
    repeated = [one for one in assigned(cluster) if one[2]]
    assert len(repeated) > 1 and set(repeated) == {(1, 0, 42)}
    assert cluster.plans[-1].requeue_after == 5.0
    cluster.drop_commands = False
    assert cluster.settle().views[cluster.uids[0]].interval_seconds == 42


def test_next_incarnation_starts_with_the_chosen_interval() -> None:
    cluster = measured(job())
    known, before = chosen(cluster), len(cluster.plans)
    cluster.rank(0, state="EXITED", exit_code=1).settle().wait(2).settle()
    assert cluster.job.status.incarnation == 2 and chosen(cluster) == known
    assert set(assigned(cluster, before)) == {(2, 0, 42), (2, 1, 0), (2, 2, 0)}
    measured(cluster, 9, save=0.1)
    found = chosen(cluster)
    assert found is not None and known is not None and found.reason != known.reason


def test_fixed_interval_in_the_spec_removes_the_chosen_interval() -> None:
    cluster = measured(job())
    cluster.spec(suspend=True).settle()
    assert chosen(cluster) is not None
    cluster.spec(checkpoint={**AUTO, "interval": "30s"}).settle()
    assert chosen(cluster) is None
    before = len(cluster.plans)
    cluster.spec(suspend=False).settle()
    assert {interval for _, _, interval in assigned(cluster, before)} == {0}


def test_simulated_ranks_save_at_the_assigned_interval() -> None:
    cluster = Cluster([Machine(f"node-{number}") for number in range(2)], engines=[make_engine()])
    pauses: list[float] = []

    def listen(event: ClusterEvent) -> None:
        if isinstance(event, TrainingPaused):
            pauses.append(cluster.kernel.now)

    cluster.listeners.append(listen)
    cluster.operator.lead()
    auto = make_job(checkpoint=AUTO)
    auto.metadata.uid = ""
    began = cluster.kernel.now
    cluster.submit(auto, Program(total_steps=10**6, save_seconds=0.01))
    cluster.run(600)
    found = cluster.job("job").status.checkpoint
    assert found is not None and found.interval is not None and found.interval.seconds == 42
    gaps = [after - before for before, after in zip([began, *pauses], pauses, strict=False)]
    assert 300 <= gaps[0] <= 310
    assert len(gaps) >= 7 and all(42 <= gap <= 44 for gap in gaps[1:])
