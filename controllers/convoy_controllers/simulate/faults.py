"""Faults and user actions that tests and scenarios inject into a simulated cluster.

A fault does nothing if its target does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import FaultInjected
from convoy_controllers.simulate.machines import node_of
from convoy_controllers.simulate.workers import LIVE, SIGKILL, Worker

MAX_EDIT = 120
"""Maximum number of characters of an edit in the timeline."""
EVICT_SECONDS = 5.0
"""Seconds after which `kubectl drain` retries an eviction that a PodDisruptionBudget forbids."""


class Faults:
    """Injects faults into one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._api = cluster.api
        self._machines = cluster.machines
        self._workers = cluster.workers

    # Ranks and pods

    def end_rank(self, job: str, rank: int, code: int = 0, signal: int = 0) -> None:
        """End a rank of the job's newest incarnation, with an exit code or by a signal."""
        worker = self._with_rank(job, rank)
        if worker is not None:
            self._record(f"rank {rank} of {job} ends with {f'signal {signal}' if signal else code}")
            self._workers.end_rank(worker.uid, rank, code or (128 + signal if signal else 0), signal=signal)

    def end_pod_rank(self, pod: str, code: int = 0, signal: int = 0) -> None:
        """End the first live rank of a pod, with an exit code or by a signal."""
        worker = self._of_pod(pod)
        if worker is not None:
            self._record(f"the rank of {pod} ends with {f'signal {signal}' if signal else code}")
            rank = next(one.rank for one in self._workers.slots[worker.uid].ranks if one.state in LIVE)
            self._workers.end_rank(worker.uid, rank, code or (128 + signal if signal else 0), signal=signal)

    def hang_pod_rank(self, pod: str) -> None:
        """Hang the ranks of a pod."""
        worker = self._of_pod(pod)
        if worker is not None:
            self._record(f"the rank of {pod} hangs")
            self._workers.program(worker.job_uid).hang(worker.uid)

    def kill_rank(self, job: str, rank: int) -> None:
        """Kill a rank with SIGKILL."""
        self.end_rank(job, rank, signal=SIGKILL)

    def hang_rank(self, job: str, rank: int) -> None:
        """Hang a rank. It never makes a step again."""
        worker = self._with_rank(job, rank)
        if worker is not None:
            self._record(f"rank {rank} of {job} hangs")
            self._workers.program(worker.job_uid).hang(worker.uid)

    def slow_rank(self, job: str, rank: int, factor: float, seconds: float | None) -> None:
        """Let a rank compute more slowly for some time, also after a restart; None for the rest of the
        scenario.
        """
        stored = self._api.jobs.get(job)
        if stored is not None:
            uid = stored.job.metadata.uid
            self._record(f"rank {rank} of {job} takes {factor:g} times as long")
            self._workers.program(uid).slow(uid, rank, factor)
            self._undo(seconds, lambda: self._workers.program(uid).slow(uid, rank, 1.0))

    def delete_pod(self, name: str) -> None:
        """Delete a pod, as `kubectl delete pod` does."""
        pod = self._api.pods.get(name)
        if pod is not None and self._api.up:
            self._record(f"pod {name} is deleted")
            self._api.delete_pod(name, pod.uid)

    def kill_container(self, name: str) -> None:
        """End a whole container as the kernel does when memory runs out."""
        pod = self._api.pods.get(name)
        if pod is not None and pod.uid in self._workers.by_uid:
            self._record(f"the container of {name} runs out of memory")
            self._workers.kill(pod.uid, reason="OOMKilled")

    # Nodes

    def kill_node(self, name: str) -> None:
        """Cut a node's power."""
        if self._machines[name].powered:
            self._record(f"node {name} loses power")
            self._workers.lose_node(name)
            self._machines.set(name, powered=False, booted=False, agent=False)

    def return_node(self, name: str) -> None:
        """Restore a node's power. Kubelet and agent start after the boot."""
        machine = self._machines[name]
        if not machine.powered:
            self._record(f"node {name} has power again")
            self._machines.set(name, powered=True)
            pause = self._cluster.kernel.about(self._cluster.latencies.boot)
            self._cluster.kernel.after(pause, lambda: self._booted(name))
        elif machine.reaches_control and name not in self._api.nodes and self._api.up:
            self._record(f"the kubelet of {name} registers its node again")
            self._api.put_node(node_of(machine))
            self._cluster.hub.refresh(machine)

    def _booted(self, name: str) -> None:
        if self._machines[name].powered:
            self._machines.set(name, booted=True, agent=True)

    def slow_node(self, name: str, factor: float, seconds: float | None) -> None:
        """Let the ranks of TrainingJobs on a node compute more slowly for some time; None for the rest of
        the scenario.
        """
        self._record(f"node {name} takes {factor:g} times as long")
        self._machines.set(name, slow=factor)
        self._undo(seconds, lambda: self._machines.set(name, slow=1.0))

    def _undo(self, seconds: float | None, undo: Callable[[], None]) -> None:
        if seconds is not None:
            self._cluster.kernel.after(seconds, undo)

    def cut_node(self, name: str, *, control_only: bool = False) -> None:
        """Cut a node off the whole network, or with `control_only` off the control plane only."""
        self._record(f"node {name} is cut off" + (" from the control plane" if control_only else ""))
        self._machines.set(name, **{"control_cut" if control_only else "cut": True})

    def heal_node(self, name: str) -> None:
        """Restore a node's network."""
        machine = self._machines[name]
        if machine.cut or machine.control_cut:
            self._record(f"the network of node {name} works again")
            self._machines.set(name, cut=False, control_cut=False)

    def cordon_node(self, name: str) -> None:
        """Cordon a node, as `kubectl cordon` does."""
        self._record(f"node {name} is cordoned")
        self._api.set_node(name, cordoned=True)

    def uncordon_node(self, name: str) -> None:
        """Uncordon a node, as `kubectl uncordon` does."""
        self._record(f"node {name} is uncordoned")
        self._api.set_node(name, cordoned=False)

    def drain_node(self, name: str) -> None:
        """Cordon a node and evict its pods, as `kubectl drain` does."""
        if not self._api.up:
            return
        self._record(f"node {name} is drained")
        self._api.set_node(name, cordoned=True)
        self._evict_all(name)

    def _evict_all(self, name: str) -> None:
        """Evict the pods of a node. Retry those that a PodDisruptionBudget protects, while the node is
        cordoned.
        """
        node = self._api.nodes.get(name)
        if node is None or not node.cordoned:
            return
        pods = self._api.pods_on(name) if self._api.up else []
        evicted = [self._api.evict(pod.name) for pod in pods]
        if not self._api.up or not all(evicted):
            self._cluster.kernel.after(EVICT_SECONDS, lambda: self._evict_all(name))

    def delete_node(self, name: str) -> None:
        """Delete a Node object, as `kubectl delete node` does."""
        if name in self._api.nodes and self._api.up:
            self._record(f"Node object {name} is deleted")
            self._cluster.kubelets.delete_node(name)

    # Agents

    def stop_agent(self, node: str, *, farewell: bool = False) -> None:
        """End an agent's process. With `farewell` the agent first announces that it restarts for an
        upgrade.
        """
        if self._machines[node].agent:
            self._record(
                f"the agent of {node} " + ("announces its restart and ends" if farewell else "crashes")
            )
            self._machines.set(node, farewell=farewell, agent=False)

    def start_agent(self, node: str) -> None:
        """Start an agent. It reads the state that the previous process stored."""
        if self._machines[node].up and not self._machines[node].agent:
            self._record(f"the agent of {node} starts again")
            self._machines.set(node, agent=True)

    # The control plane

    def crash_operator(self, effects: int = 0) -> None:
        """Crash the leading operator. Another replica becomes leader later.

        With `effects` 0 it crashes at once, with N just before its Nth effect from now on. An effect is one
        write or command of a plan.
        """
        self._record("the operator crashes" + (f" before its effect number {effects}" if effects else ""))
        self._cluster.operator.crash(effects)

    def stop_api(self) -> None:
        """Stop the API server, so that it refuses connections."""
        self._record("the API server stops")
        self._api.up = False

    def start_api(self) -> None:
        """Start the API server again."""
        if not self._api.up:
            self._record("the API server starts again")
            self._api.up = True
            self._cluster.kubelets.resync()
            self._cluster.scheduler.request_run()
            self._cluster.operator.api_changed()
            self._cluster.hub.monitor.poll()

    def stop_endpoints(self) -> None:
        """Stop the endpoint slice controller, so that Services keep the endpoints that they have."""
        self._record("the endpoint slice controller stops")
        self._api.lists_endpoints = False

    def start_endpoints(self) -> None:
        """Start the endpoint slice controller again."""
        if not self._api.lists_endpoints:
            self._record("the endpoint slice controller starts again")
            self._api.list_endpoints()

    # Users

    def edit(self, job: str, **spec: object) -> None:
        """Change fields of a job's spec as a user does. The values have the form of JSON."""
        if job in self._api.jobs and self._api.up:
            changes = ", ".join(f"{key} = {value!r}" for key, value in spec.items())
            self._record(f"{job}: {changes}", harmless=True)
            self._api.edit_job(job, spec)

    def patch(self, job: str, spec: Mapping[str, Any]) -> None:
        """Apply a JSON merge patch to a job's spec as a user does."""
        if job in self._api.jobs and self._api.up:
            what = ", ".join(f"{key} = {value!r}" for key, value in spec.items())
            short = what if len(what) <= MAX_EDIT else what[: MAX_EDIT - 3] + "..."
            self._record(f"{job}: {short}", harmless=True)
            self._api.patch_job(job, spec)

    def heal_all(self, but: str = "") -> None:
        """Undo all faults and cordons, except on the node `but`."""
        self.start_api()
        self.start_endpoints()
        for name in self._machines.by_name:
            if name == but:
                continue
            self.heal_node(name)
            self.return_node(name)
            self.start_agent(name)
            self.uncordon_node(name)

    # Helpers

    def ranks(self, job: str) -> Sequence[int]:
        """Return the live ranks of the job's newest incarnation."""
        return sorted(
            rank.rank
            for worker in self._newest(job)
            for rank in self._workers.slots[worker.uid].ranks
            if rank.state in LIVE
        )

    def _newest(self, job: str) -> list[Worker]:
        slots = self._workers.slots
        ours = (w for w in self._workers.by_uid.values() if w.job == job and not w.alone)
        known = [worker for worker in ours if worker.live and worker.uid in slots]
        newest = max((slots[worker.uid].incarnation for worker in known), default=0)
        return [worker for worker in known if slots[worker.uid].incarnation == newest]

    def _with_rank(self, job: str, rank: int) -> Worker | None:
        for worker in self._newest(job):
            if any(one.rank == rank and one.state in LIVE for one in self._workers.slots[worker.uid].ranks):
                return worker
        return None

    def _of_pod(self, name: str) -> Worker | None:
        """Return the container of a pod that has a live rank."""
        pod = self._api.pods.get(name)
        worker = self._workers.by_uid.get(pod.uid) if pod else None
        slot = self._workers.slots.get(worker.uid) if worker and worker.live else None
        return worker if slot is not None and any(one.state in LIVE for one in slot.ranks) else None

    def _record(self, what: str, *, harmless: bool = False) -> None:
        self._cluster.notify(FaultInjected(what, harmless))
