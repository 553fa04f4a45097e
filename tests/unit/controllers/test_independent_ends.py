"""Independent pods when the process group restarts, ends or is suspended."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controllers import group_alone
from tests.unit.controllers.independents import (
    FIRST,
    ROLLOUT,
    WORKER,
    counts,
    end,
    group,
    incarnation,
    make_cluster,
)

from convoy_controllers.children import Delete
from convoy_controllers.commands import ReportMembers
from convoy_controllers.plan import Plan
from convoy_controllers.testing.builders import NOW, ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.independent import records
from convoy_controllers.trainingjob.independent.assignments import addresses
from convoy_controllers.trainingjob.independent.scope import split
from convoy_controllers.workers.faults import missing_fault
from convoy_crds.layout import first_slots, independent_slots, slots
from convoy_crds.trainingjob_independent import MAX_RECORDS, Budget, Ending, IndependentRecord
from convoy_crds.trainingjob_status import Phase


def deleted(made: Plan) -> dict[str, int | None]:
    """Return the grace periods of the deleted Independent pods, by name."""
    found = (one for one in made.children if isinstance(one, Delete))
    return {one.name: one.grace_seconds for one in found if one.name.startswith("job-rollout-")}


def of_worker(toy: ToyCluster, number: int, code: int) -> ToyCluster:
    """Let a rank of the process group end."""
    return end(toy, f"job-worker-{number}", code)


ALL = {f"job-rollout-{number}": None for number in range(3)}


def test_a_restart_of_the_group_leaves_the_pods_alone() -> None:
    toy = make_cluster()
    uids = {name: toy.pods[name].uid for name in ALL}
    starts = {name: incarnation(toy, name) for name in ALL}
    of_worker(toy, 1, 1).settle()
    assert toy.job.status.incarnation == 2 and toy.job.status.phase is Phase.RUNNING
    assert {name: toy.pods[name].uid for name in ALL} == uids
    assert {name: incarnation(toy, name) for name in ALL} == starts
    told = [one for made in toy.plans for one in made.commands if isinstance(one, ReportMembers)]
    assert {one.incarnation for one in told} == {1, 2}
    assert {toy.views[uid].members_incarnation for uid in uids.values()} == {2}


def test_addresses_are_reported_only_when_all_are_known() -> None:
    toy = make_cluster()
    of_worker(toy, 1, 1).step()
    toy.pod("job-worker-1", ip=None)
    toy.settle()
    status = toy.job.status
    assert status.incarnation == 2
    assert addresses(split(toy.observed()).members, status) == ()
    toy.pod("job-worker-1", ip="10.9.9.9").settle()
    found = addresses(split(toy.observed()).members, status)
    assert [one.rank for one in found] == [0, 1] and found[1].address == "10.9.9.9"
    assert {toy.views[toy.pods[name].uid].members_incarnation for name in ALL} == {2}


def test_the_end_of_the_group_drains_the_pods() -> None:
    toy = make_cluster()
    made = of_worker(of_worker(toy, 0, 0), 1, 0).step()
    assert toy.job.status.phase is Phase.SUCCEEDED
    assert deleted(made) == ALL, "each has its own grace period"
    assert "IndependentReady" not in toy.condition
    assert {name for name in toy.pods if not toy.pods[name].deleting} == {"job-worker-0", "job-worker-1"}


def test_the_failure_of_the_group_drains_the_pods_and_keeps_logs_of_completed_ones() -> None:
    toy = make_cluster(recovery={"maxRestarts": 0})
    end(toy, code=0).settle()
    toy.wait(1.0).settle()
    of_worker(toy, 0, 10)
    made = toy.step()
    assert toy.job.status.phase is Phase.FAILED
    assert deleted(made) == {name: None for name in ALL if name != FIRST}
    assert deleted(toy.step()) == {}, "a later plan has nothing to add"


def test_an_independent_pod_never_decides_the_end() -> None:
    toy = make_cluster()
    for name in ALL:
        end(toy, name, 0)
    toy.settle()
    assert toy.job.status.phase is Phase.RUNNING and counts(toy).completed == 3
    assert "(3 completed)" in next(
        one.message for one in toy.job.status.conditions if one.type == "IndependentReady"
    )


def test_a_pod_that_outlived_the_operator_is_drained_after_the_end() -> None:
    toy = make_cluster()
    of_worker(of_worker(toy, 0, 0), 1, 0).step(effects=1)
    assert toy.job.status.phase is Phase.SUCCEEDED, "the operator crashed after the status"
    assert deleted(toy.step()) == ALL


def test_suspension_stops_the_pods_and_resume_starts_them_with_later_numbers() -> None:
    toy = make_cluster()
    newest = max(incarnation(toy, name) for name in ALL)
    made = toy.spec(suspend=True).step()
    assert deleted(made) == ALL, "each has its own grace period"
    toy.wait(40.0).settle()
    assert toy.job.status.phase is Phase.SUSPENDED and not toy.pods
    assert toy.job.status.internal.independent == [] and toy.job.status.independent == ""
    assert [(one.name, one.ready) for one in toy.job.status.roles] == [("worker", 0), ("rollout", 0)]
    toy.spec(suspend=False).settle()
    assert toy.job.status.independent == "3/3"
    assert min(incarnation(toy, name) for name in ALL) > newest


def test_a_group_that_gives_its_pods_back_gives_these_back_too() -> None:
    toy = make_cluster(recovery={"scheduleSeconds": 10})
    toy.schedulable = False
    toy.lose("job-worker-0").step()
    for _ in range(4):
        toy.wait(4.0).step()
    assert toy.job.status.reason == "ScheduleDeadline"
    assert all(pod.deleting for name, pod in toy.pods.items() if name in ALL)
    toy.schedulable = True
    for _ in range(30):
        toy.wait(1.0).step()
    assert toy.job.status.independent == "3/3" and counts(toy).preemptions == 0


def test_a_restarting_group_gets_its_nodes_first() -> None:
    toy = make_cluster()
    toy.launchers = False
    toy.lose("job-worker-0").lose(FIRST).step()
    for _ in range(4):
        toy.wait(3.0).step()
    assert toy.job.status.phase is Phase.RESTARTING and FIRST not in toy.pods
    toy.launchers = True
    toy.connect("job-worker-0").settle()
    assert FIRST in toy.pods


def test_pods_on_lost_nodes_need_no_fencing_at_the_end() -> None:
    for stop in ("suspend", "end"):
        toy = make_cluster(recovery={"fencing": "Strict"})
        toy.silence(toy.pods[FIRST].node or "", 6.0)
        if stop == "suspend":
            made = toy.spec(suspend=True).step()
        else:
            made = of_worker(of_worker(toy, 0, 0), 1, 0).step()
        assert deleted(made) == {**ALL, FIRST: 0}, stop


def test_a_late_pod_gets_its_grace_period_at_a_suspension() -> None:
    toy = make_cluster()
    for _ in range(2):
        end(toy).settle()
        toy.wait(61.0).settle()
    born = int(toy.pods[FIRST].annotations["convoy.dev/born-incarnation"])
    assert born > toy.job.status.incarnation + 1, "its number is greater than those of the group"
    assert deleted(toy.spec(suspend=True).step()) == ALL


def test_slots_of_independent_roles_are_apart() -> None:
    job = make_job(roles=[ROLLOUT, {**WORKER, "processesPerReplica": 2}])
    assert [(slot.pod, slot.rank_offset, slot.position) for slot in slots(job)] == [
        ("job-worker-0", 0, 0),
        ("job-worker-1", 2, 1),
    ]
    apart = independent_slots(job)
    assert [(slot.pod, slot.index, slot.rank_offset, slot.processes) for slot in apart] == [
        (f"job-rollout-{number}", 2 + number, 0, 1) for number in range(3)
    ]
    assert {name: slot.pod for name, slot in first_slots(job).items()} == {
        "worker": "job-worker-0",
        "rollout": "job-rollout-0",
    }


def test_the_largest_status_stays_small() -> None:
    fault = missing_fault(independent_slots(make_job(roles=[WORKER, ROLLOUT]))[0])
    long = "x" * 600
    found = [
        records.after_fault(
            IndependentRecord(role="r" * 24, replica=number, incarnation=9_999, pod="0" * 16),
            type(fault)(fault.reason, long),
            Budget(max_preemptions=0),
            NOW,
        )
        for number in range(MAX_RECORDS)
    ]
    assert all(one.ending is Ending.GIVEN_UP for one in found)
    size = len(json.dumps([one.to_dict() for one in records.kept(found)]))
    assert size < 700_000, "an object in etcd has at most 1.5 MB"


def test_a_job_without_independent_roles_has_none_of_their_fields() -> None:
    toy = ToyCluster(make_job(), make_engine()).settle()
    text = json.dumps(toy.job.status.to_dict())
    assert "ndependent" not in text


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_faults_of_independent_pods_change_nothing_in_the_group(data: st.DataObject) -> None:
    toy = make_cluster(rollout={"budget": {"maxRestarts": 1}})
    before = group(toy)
    for _ in range(data.draw(st.integers(1, 6))):
        names = sorted(name for name in toy.pods if name in ALL and not toy.pods[name].deleting)
        pod = data.draw(st.sampled_from(names)) if names else ""
        what = data.draw(st.sampled_from(["exit", "lose", "delete", "wait", "step"]))
        if what == "exit" and pod:
            end(toy, pod, data.draw(st.sampled_from([0, 1, 10, 75, 143])))
        elif what == "lose" and pod:
            toy.lose(pod)
        elif what == "delete" and pod:
            toy.pod(pod, deleting=True, leaving_since=toy.now.timestamp())
        elif what == "wait":
            toy.wait(data.draw(st.sampled_from([0.5, 5.0, 61.0])))
        group_alone.check(toy.observed(), toy.now)
        toy.step()
        assert group(toy) == before
