"""Finds this node's jobs under Strict fencing in the state of its pods. Pure.
`convoy_controllers.liveness.fence` decides when these jobs stop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from convoy_agents.pods.assignment import Member
from convoy_agents.pods.state import PodState
from convoy_controllers.liveness.attestation import newest_plan
from convoy_controllers.liveness.fence import StrictJob


def strict_jobs(pods: Iterable[PodState], node: str) -> list[StrictJob[Member]]:
    """Return this node's Strict jobs with ranks that are running or might be running. Jobs that are already
    stopping are omitted.
    """
    by_job: dict[str, list[PodState]] = {}
    for pod in pods:
        if pod.assignment and pod.assignment.strict and _may_run(pod):
            by_job.setdefault(pod.assignment.job_uid, []).append(pod)
    return [_job(states, node) for states in by_job.values()]


def _may_run(pod: PodState) -> bool:
    if pod.shutdown and pod.shutdown.immediate:
        return False
    assert pod.assignment  # noqa: S101 - the caller checked
    ended = [rank.update.state == "EXITED" for rank in pod.ranks.values()]
    # A rank without a report might be running, because the agent may have started after the rank.
    return len(ended) < pod.assignment.processes or not all(ended)


def _job(pods: Collection[PodState], node: str) -> StrictJob[Member]:
    """Return the job as its newest assignment describes it. The assignments of `pods` may differ while a
    pod of an earlier incarnation terminates.
    """
    plan = newest_plan(pod.assignment for pod in pods if pod.assignment)
    assert plan  # noqa: S101 - the caller chose pods with an assignment
    peers = {member.node: member for member in plan.members if member.node != node}
    return StrictJob(plan.job_uid, plan.job, plan.incarnation, peers, tuple(sorted(pod.uid for pod in pods)))
