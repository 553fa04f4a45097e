"""The agents of isolated nodes in a simulated cluster. They stop jobs with Strict fencing.

The agents' own code (`convoy_controllers.liveness.fence`) decides. Only the network is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy_controllers.commands import Assign, Shutdown
from convoy_controllers.liveness import fence
from convoy_controllers.liveness.attestation import may_attest, newest_plan
from convoy_controllers.liveness.fence import Contacts, StrictJob
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.machines import Machine, Machines
from convoy_controllers.simulate.workers import Worker, Workers
from convoy_controllers.workers.faults import PREEMPTED

JUDGE_SECONDS = 0.5
"""Seconds after which an isolated agent checks again whether it must stop its jobs."""


@dataclass(slots=True)
class _IsolatedAgent:
    """An agent that cannot reach the control plane. Times are Unix seconds."""

    hub: float
    """Time at which the agent lost the control plane, or started without it."""
    peers: dict[fence.Peer, float] = field(default_factory=dict)
    """Time of the last attestation by each peer."""
    requested: dict[fence.Peer, float] = field(default_factory=dict)

    @property
    def contacts(self) -> Contacts:
        """Times at which the agent last had contact with the hub and with peers, as input of the fencing
        rule.
        """
        return Contacts(self.hub, peers=self.peers)


class Fences:
    """Apply the fencing rule on every machine whose agent runs but cannot reach the control plane."""

    def __init__(self, kernel: Kernel, machines: Machines, workers: Workers) -> None:
        self._kernel = kernel
        self._machines = machines
        self._workers = workers
        self._isolated: dict[str, _IsolatedAgent] = {}
        """Isolated agents by machine name."""
        machines.changed.append(self._reach_changed)

    def _reach_changed(self, machine: Machine) -> None:
        name = machine.name
        watched = machine.up and machine.agent and not machine.reaches_control
        if watched and name not in self._isolated:
            agent = self._isolated[name] = _IsolatedAgent(self._kernel.now)
            self._kernel.after(JUDGE_SECONDS, lambda: self._judge(name, agent))
        elif not watched:
            self._isolated.pop(name, None)

    def _judge(self, name: str, agent: _IsolatedAgent) -> None:
        if self._isolated.get(name) is not agent:
            return
        now, jobs = self._kernel.now, self._strict_jobs(name)
        for job, peer in fence.peers_to_contact(jobs, agent.contacts, agent.requested, now):
            agent.requested[job, peer] = now
            if self._attests(peer, name, job):
                self._machines[peer].requests.record(name, now)
                agent.peers[job, peer] = now
        for stopped in fence.must_stop(jobs, agent.contacts, now):
            reason = fence.stop_reason(stopped, agent.contacts, now)
            for uid in stopped.pods:
                self._workers.handle_command(Shutdown(name, uid, PREEMPTED, reason, immediate=True))
        self._kernel.after(JUDGE_SECONDS, lambda: self._judge(name, agent))

    def _strict_jobs(self, name: str) -> list[StrictJob[None]]:
        by_job: dict[str, list[Worker]] = {}
        for worker in self._workers.on(name):
            if worker.plan is not None and worker.plan.strict and worker.live:
                by_job.setdefault(worker.job_uid, []).append(worker)
        return [_strict_job(uid, workers, name) for uid, workers in by_job.items()]

    def _attests(self, peer: str, name: str, job: str) -> bool:
        machine = self._machines[peer]
        if not (machine.up and machine.agent and self._machines.reaches(peer, name)):
            return False
        return may_attest(_plans(self._workers.on(peer), job), name)


def _plans(workers: list[Worker], job: str) -> list[Assign]:
    return [worker.plan for worker in workers if worker.plan and worker.plan.job_uid == job]


def _strict_job(uid: str, workers: list[Worker], name: str) -> StrictJob[None]:
    plan = newest_plan(_plans(workers, uid))
    assert plan is not None  # noqa: S101 - the caller chose workers with a plan
    peers = dict.fromkeys(sorted({member.node for member in plan.members} - {name}))
    pods = tuple(worker.uid for worker in workers)
    return StrictJob(uid, workers[0].job, plan.incarnation, peers, pods)
