"""The agents of cut-off nodes in a simulated cluster: they stop Strict jobs, as convoy_agents.fence has it.

An agent that has reached neither the control plane nor a majority of a job's other nodes for FENCE_SECONDS
stops the job's ranks. A peer vouches only for a node that has a place in the newest plan it knows.
"""

from __future__ import annotations

from convoy_controllers.plan import Assign, Shutdown
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.machines import Machine, Machines
from convoy_controllers.simulate.workers import Worker, Workers
from convoy_controllers.trainingjob.faults import PREEMPTED
from convoy_controllers.trainingjob.nodes import FENCE_SECONDS

LOOK_SECONDS = 0.5
NEVER = float("-inf")


class Fences:
    """One agent's watch per machine; it looks only while its machine is cut off."""

    def __init__(self, kernel: Kernel, machines: Machines, workers: Workers) -> None:
        self._kernel = kernel
        self._machines = machines
        self._workers = workers
        self._reached: dict[str, float] = {}
        """By machine, when it lost the control plane, or its agent began without."""
        self._peers: dict[tuple[str, str, str], float] = {}
        """By (machine, job, other machine), when that other last vouched."""
        machines.changed.append(self._reach_changed)

    def _reach_changed(self, machine: Machine) -> None:
        name = machine.name
        watched = machine.up and machine.agent and not machine.reaches_control
        if watched and name not in self._reached:
            self._reached[name] = self._kernel.now
            self._kernel.after(LOOK_SECONDS, lambda: self._look(name))
        elif not watched:
            self._reached.pop(name, None)
            for key in [key for key in self._peers if key[0] == name]:
                del self._peers[key]

    def _look(self, name: str) -> None:
        if name not in self._reached:
            return
        strict: dict[str, list[Worker]] = {}
        for worker in self._workers.on(name):
            if worker.plan is not None and worker.plan.strict and worker.live:
                strict.setdefault(worker.job_uid, []).append(worker)
        for job, workers in strict.items():
            if self._kernel.now - self._contact(name, job, workers) >= FENCE_SECONDS:
                for worker in workers:
                    words = "fencing Strict: this node is cut off"
                    self._workers.obey(Shutdown(name, worker.uid, PREEMPTED, words, immediate=True))
        self._kernel.after(LOOK_SECONDS, lambda: self._look(name))

    def _contact(self, name: str, job: str, workers: list[Worker]) -> float:
        """When anybody whose word counts for this job was last reached."""
        plan = max((worker.plan for worker in workers if worker.plan), key=_incarnation)
        peers = sorted({member.node for member in plan.members} - {name})
        for peer in peers:
            if self._vouches(peer, name, job):
                self._machines[peer].asked[name] = self._kernel.now
                self._peers[name, job, peer] = self._kernel.now
        times = sorted(self._peers.get((name, job, peer), NEVER) for peer in peers)
        majority = times[(len(times) - 1) // 2] if times else NEVER
        return max(self._reached[name], majority)

    def _vouches(self, peer: str, name: str, job: str) -> bool:
        machine = self._machines[peer]
        if not (machine.up and machine.agent and self._machines.reaches(peer, name)):
            return False
        plans = [worker.plan for worker in self._workers.on(peer) if worker.job_uid == job and worker.plan]
        newest = max(plans, key=_incarnation, default=None)
        return newest is not None and name in {member.node for member in newest.members}


def _incarnation(plan: Assign) -> int:
    return plan.incarnation
