"""Tests of the perturbations of an Experiment's jobs: orders to agents, and deleted pods."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.controllers.experiment.labs import Lab

from convoy_controllers.children import Delete
from convoy_controllers.commands import InjectFault, UndoFault
from convoy_controllers.experiment import faults
from convoy_controllers.experiment.observed import Observed
from convoy_controllers.experiment.plan import plan
from convoy_controllers.faults import FaultPhase, FaultState
from convoy_controllers.plan import Plan
from convoy_controllers.resources import PODS
from convoy_controllers.views import PodView
from convoy_crds.terms import LABEL_INDEX, LABEL_ROLE

LINK = {"name": "link", "kind": "LinkLimit", "magnitudes": [20.0], "startSeconds": 30, "durationSeconds": 60}
KILLS = {"name": "kills", "kind": "KillPod", "magnitudes": [2], "durationSeconds": 60}


class FaultLab(Lab):
    """An experiment of two TrainingJobs. The test sets what agents report."""

    def __init__(self, perturbation: dict[str, Any] = LINK, roles: Any = (), **more: Any) -> None:
        template = {"spec": {"roles": list(roles)}}
        arms = [
            {"name": name, "type": "TrainingJob", "role": role, "template": template}
            for name, role in (("fast", "Candidate"), ("hpa", "Comparator"))
        ]
        outcome = {"name": "late", "source": {"status": "result.late"}, "better": "Lower"}
        super().__init__(
            arms=arms, outcomes=[outcome], perturbations=[perturbation], unperturbed=False, **more
        )
        self.pods: dict[str, tuple[PodView, ...]] = {}
        self.stepped = False
        self.states: dict[str, FaultState] = {}

    def plan(self) -> Plan:
        """Return the plan, with the pods of each job that runs."""
        running = [job for job in self.jobs.values() if not job.ended and "-b" in job.name]
        pods = {job.uid: self.pods.setdefault(job.uid, self._pods(job.name, job.uid)) for job in running}
        observed = Observed(
            experiment=self.experiment,
            spec=self.raw,
            jobs=dict(self.jobs),
            engines=self.engines,
            store=self.store,
            known_stores=("s3",),
            pods=pods,
            first_steps=dict.fromkeys(pods, self.now) if self.stepped else {},
            faults=self.states,
        )
        return plan(observed, self.now)

    @staticmethod
    def _pods(name: str, uid: str) -> tuple[PodView, ...]:
        return tuple(
            PodView(
                f"{name}-{slot}",
                f"{uid}-pod-{slot}",
                "Running",
                node=f"n{slot}",
                owner_uid=uid,
                labels={LABEL_ROLE: "worker", LABEL_INDEX: str(slot)},
            )
            for slot in range(2)
        )

    def started(self) -> str:
        """Let the first run make its first step, and return the name of its job."""
        self.register()
        self.stepped = True
        self.step()
        return self.named("-b0-")

    def report(self, name: str, phase: FaultPhase, **more: Any) -> None:
        """Let the agent report the fault of a run."""
        order = next(one for one in self.step().commands if isinstance(one, InjectFault))
        self.states[name] = FaultState(order.id, order.pod_uid, order.kind.value, phase, **more)

    @property
    def run(self) -> Any:
        """The record of the first run."""
        return self.status.runs[0]


def test_a_fault_is_ordered_after_its_delay_until_the_agent_reports_it() -> None:
    lab = FaultLab({**LINK, "target": {"slot": 1}})
    name = lab.started()
    assert lab.step().commands == ()
    lab.wait(30)
    made = lab.step()
    (order,) = made.commands
    job = lab.jobs[name]
    assert isinstance(order, InjectFault)
    assert (order.node, order.pod_uid, order.owner_uid) == ("n1", f"{job.uid}-pod-1", job.uid)
    assert (order.kind.value, order.magnitude, order.seconds, order.volume) == ("LinkLimit", 20.0, 60.0, "")
    assert order.job_uids[0] == job.uid, "jobs that run come first"
    assert set(order.job_uids) == {one.uid for one in lab.jobs.values()}
    assert lab.run.fault.pods == [order.pod_uid], "the status names the pod before the order is sent"
    assert lab.step().commands == (order,)
    lab.report(name, FaultPhase.INJECTED, achieved=19.5, injected=1.0)
    assert lab.step().commands == ()
    assert (lab.run.achieved, lab.run.fault.injected) == (19.5, True)


def test_the_fault_of_an_ended_run_is_undone_and_its_magnitude_is_in_the_row() -> None:
    lab = FaultLab(blocks=2)
    name = lab.started()
    lab.wait(30)
    lab.report(name, FaultPhase.INJECTED, achieved=19.5, injected=1.0)
    lab.step()
    lab.end(name, {"late": 1.0})
    (undo,) = [one for one in lab.step().commands if isinstance(one, UndoFault)]
    assert undo.id == lab.states[name].id
    assert (lab.run.state, lab.run.achieved) == ("Succeeded", 19.5)


@pytest.mark.parametrize("state", ["never reported", "over before it began"])
def test_a_run_that_ends_without_its_fault_has_failed(state: str) -> None:
    lab = FaultLab()
    name = lab.started()
    lab.wait(30)
    if state == "over before it began":
        lab.report(name, FaultPhase.UNDONE, injected=0.0)
        lab.step()
    lab.end(name, {"late": 1.0})
    lab.step()
    assert lab.run.failure.reason == "FaultNotInjected"
    assert lab.run.figures == []


def test_a_fault_that_stays_refused_makes_the_run_fail_with_the_agents_reason() -> None:
    lab = FaultLab()
    name = lab.started()
    lab.wait(30)
    lab.report(name, FaultPhase.REFUSED, message="node n0 has no label")
    lab.wait(faults.REFUSED_SECONDS)
    assert lab.step().commands, "the agent may accept it later"
    lab.wait(1)
    lab.step()
    assert lab.run.failure.reason == "FaultNotInjected"
    assert "node n0 has no label" in lab.run.failure.message


def test_a_fault_whose_pod_was_replaced_is_not_ordered_again() -> None:
    lab = FaultLab()
    name = lab.started()
    lab.wait(30)
    lab.report(name, FaultPhase.INJECTED, achieved=19.5, injected=1.0)
    lab.step()
    lab.states.clear()
    lab.wait(2 * faults.REFUSED_SECONDS)
    assert lab.step().commands == ()
    assert (lab.run.failure, lab.run.achieved) == (None, 19.5)


def test_kills_that_are_left_hit_the_pod_that_replaced_the_killed_one() -> None:
    kills = {
        "name": "kills",
        "kind": "KillRank",
        "magnitudes": [3],
        "durationSeconds": 60,
        "target": {"slot": 1},
    }
    lab = FaultLab(kills)
    name = lab.started()
    (first,) = lab.step().commands
    assert isinstance(first, InjectFault) and (first.magnitude, first.seconds) == (3, 60)
    lab.report(name, FaultPhase.UNDONE, achieved=1.0, injected=1.0)
    lab.step()
    uid = lab.jobs[name].uid
    lab.states.clear()
    lab.pods[uid] = tuple(replace(pod, uid=f"{pod.uid}-again", node="n7") for pod in lab.pods[uid])
    assert lab.step().commands == (), "the next kill is due after 20 s"
    lab.wait(20)
    (second,) = lab.step().commands
    assert isinstance(second, InjectFault)
    assert (second.node, second.pod_uid) == ("n7", f"{uid}-pod-1-again")
    assert second.id != first.id and (second.magnitude, second.seconds) == (2, 40)
    lab.states[second.id] = FaultState(
        second.id, second.pod_uid, "KillRank", FaultPhase.INJECTED, achieved=2.0, injected=1.0
    )
    assert lab.step().commands == () and lab.run.achieved == 3.0
    lab.end(name, {"late": 1.0})
    (undo,) = [one for one in lab.step().commands if isinstance(one, UndoFault)]
    assert (undo.node, undo.id, lab.run.failure) == ("n7", second.id, None)


def test_pods_are_deleted_one_after_the_other_and_each_is_recorded_first() -> None:
    lab = FaultLab(KILLS)
    name = lab.started()
    uid = lab.jobs[name].uid

    def deleted(made: Plan) -> list[str]:
        return [one.uid for one in made.children if isinstance(one, Delete) and one.resource is PODS]

    made = lab.plan()
    lab.step()
    (first,) = deleted(made) or deleted(lab.plan())
    assert lab.run.fault.pods == [first]
    assert deleted(lab.plan()) == [first], "the deletion is repeated until the pod is being deleted"
    lab.pods[uid] = tuple(replace(pod, deleting=pod.uid == first) for pod in lab.pods[uid])
    assert deleted(lab.step()) == []
    lab.now += timedelta(seconds=30)
    (second,) = deleted(lab.step())
    assert second != first
    assert (lab.run.fault.pods, lab.run.achieved) == ([first, second], 1.0)
    lab.pods[uid] = tuple(pod for pod in lab.pods[uid] if pod.uid != second)
    lab.step()
    assert (lab.run.achieved, lab.run.fault.injected) == (2.0, True)


def test_a_pod_that_ended_by_itself_counts_as_no_deletion() -> None:
    lab = FaultLab({**KILLS, "magnitudes": [1]})
    uid = lab.jobs[lab.started()].uid
    (first,) = lab.run.fault.pods
    assert (lab.run.achieved, lab.run.fault.injected) == (0.0, False)
    lab.pods[uid] = tuple(replace(pod, phase="Failed") if pod.uid == first else pod for pod in lab.pods[uid])
    lab.step()
    (second,) = lab.run.fault.pods
    assert second != first and lab.run.achieved == 0.0
    lab.pods[uid] = tuple(replace(pod, deleting=pod.uid == second) for pod in lab.pods[uid])
    lab.step()
    assert (lab.run.achieved, lab.run.fault.injected) == (1.0, True)


def test_an_order_names_the_jobs_with_pods_on_the_node_first() -> None:
    lab = FaultLab({**LINK, "target": {"slot": 1}})
    name = lab.started()
    lab.lingering = True
    for number in range(faults.MAX_JOBS):
        lab.create(f"elsewhere-{number}")
    lab.create("beside-b")
    lab.wait(30)
    lab.step()
    (order,) = (one for one in lab.plan().commands if isinstance(one, InjectFault))
    assert (order.node, len(order.job_uids)) == ("n1", faults.MAX_JOBS)
    assert order.job_uids[:2] == (lab.jobs[name].uid, lab.jobs["beside-b"].uid)


def test_without_a_role_the_first_role_of_the_job_is_hit() -> None:
    lab = FaultLab({**KILLS, "magnitudes": [1]}, roles=[{"name": "trainer"}, {"name": "worker"}])
    uid = lab.jobs[lab.started()].uid
    assert lab.run.fault.pods == []
    first, second = lab.pods[uid]
    lab.pods[uid] = (first, replace(second, labels={**second.labels, LABEL_ROLE: "trainer"}))
    lab.step()
    assert lab.run.fault.pods == [second.uid]
