"""An order for a fault, and states of pods, for tests."""

from __future__ import annotations

from convoy_agents.faults.record import Order
from convoy_agents.pods import assignment
from convoy_agents.pods.state import PodState
from convoy_agents.wire import hub_pb2

ORDER = Order("f-1", "a", "job-1", ("job-1", "job-2"), "SlowRank", 2.0, 60.0)


def pod(uid: str, job: str) -> PodState:
    """Return the state of a pod of this job; without an assignment if `job` is empty."""
    if not job:
        return PodState(uid)
    plan = hub_pb2.Assignment(
        pod_uid=uid,
        job_uid=job,
        job=f"default/{job}",
        incarnation=1,
        slot=0,
        rank_offset=4,
        processes=1,
        world_size=8,
        master_addr="10.0.0.1",
        master_port=1,
        hang_seconds=60,
        members=[hub_pb2.Member(slot=0, pod_uid=uid, node="n", peer_address="n:1", processes=1)],
        command=["true"],
        role="worker",
    )
    return PodState(uid, assignment=assignment.from_wire(plan))
