"""The kubelets of a simulated cluster, and the controllers that act when a kubelet is silent.

A kubelet compares the pods at the API server with the containers on its machine and corrects the
containers. It does so after every change, and when it reaches the API server again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy_controllers.simulate.api import GRACE_SECONDS, Api
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.machines import Machine, Machines, node_of
from convoy_controllers.simulate.workers import SIGKILL, Worker, Workers
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_crds.terms import LABEL_JOB

RETRY_SECONDS = 1.0
"""Seconds between two attempts of an operation that needs the machine's agent or the API server."""


class Kubelets:
    """The kubelets of all machines."""

    def __init__(
        self,
        kernel: Kernel,
        latencies: Latencies,
        api: Api,
        machines: Machines,
        workers: Workers,
        term_code: Callable[[str], int],
    ) -> None:
        """Create the kubelets. `term_code` returns the exit code of the ranks of a job uid on SIGTERM."""
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._machines = machines
        self._workers = workers
        self._term_code = term_code
        self._starting: set[str] = set()
        self._scheduled: set[str] = set()
        self._retrying: set[str] = set()
        self._address = 0
        self._renewed: dict[str, float] = {}
        self.launchers = True
        """True if launchers connect to their agents. Tests set it to False."""
        api.listeners.append(self._on_change)
        machines.changed.append(self._reach_changed)
        workers.ended = self._container_ended
        for machine in machines.by_name.values():
            self._renewed[machine.name] = kernel.now

    # Triggers

    def _on_change(self, kind: str, name: str) -> None:
        if kind != "pods":
            return
        pod = self._api.pods.get(name)
        if pod is not None and pod.node:
            self._sync_soon(pod.node)
        elif pod is None:
            for node in [worker.node for worker in self._workers.by_uid.values() if worker.pod == name]:
                self._sync_soon(node)

    def _sync_soon(self, node: str) -> None:
        if node not in self._scheduled:
            self._scheduled.add(node)
            self._kernel.after(self._latencies.watch, lambda: self._sync_node(node))

    def _container_ended(self, worker: Worker) -> None:
        self._sync_after(self._kernel.about(self._latencies.relist), worker.node)

    def _sync_after(self, seconds: float, node: str) -> None:
        self._kernel.after(seconds, lambda: self._sync_node(node))

    def _retry_later(self, node: str) -> None:
        if node not in self._retrying:
            self._retrying.add(node)
            self._sync_after(RETRY_SECONDS, node)

    def _sync_node(self, node: str) -> None:
        self._scheduled.discard(node)
        self._retrying.discard(node)
        machine = self._machines.by_name.get(node)
        if machine is not None and machine.reaches_control and self._api.up:
            self._sync(machine)

    # Synchronization

    def _sync(self, machine: Machine) -> None:
        for worker in self._workers.on(machine.name):
            pod = self._api.pods.get(worker.pod)
            if pod is None or pod.uid != worker.uid:
                # The pod was force-deleted while this kubelet could not reach the API server, so its
                # container still runs.
                self._workers.kill(worker.uid)
                self._workers.remove(worker.uid)
            elif worker.exit_code is not None:
                self._report_end(worker, pod, machine)
            elif pod.deleting:
                worker.grace = self._grace(pod)
                self._workers.terminate(worker.uid)
        for pod in self._api.pods_on(machine.name):
            if pod.uid in self._workers.by_uid or pod.uid in self._starting:
                continue
            if pod.deleting:
                self._api.remove_pod(pod.name, pod.uid)
            elif pod.phase == "Pending":
                self._start(pod, machine)
            elif pod.phase not in ENDED_PHASES:
                lost = {"exit_code": 128 + SIGKILL, "termination_reason": "ContainerStatusUnknown"}
                self._api.set_pod(pod.name, pod.uid, phase="Failed", **lost)

    def _report_end(self, worker: Worker, pod: PodView, machine: Machine) -> None:
        if pod.phase not in ENDED_PHASES:
            phase = "Failed" if worker.exit_code else "Succeeded"
            facts = {"exit_code": worker.exit_code, "termination_reason": worker.reason}
            self._api.set_pod(pod.name, pod.uid, phase=phase, **facts, **self._unready(pod))
        if pod.deleting:
            if machine.agent:
                self._workers.remove(pod.uid)
                self._api.remove_pod(pod.name, pod.uid)
            else:
                # Without the agent the volume cannot be unmounted, so retry.
                self._retry_later(machine.name)

    def _start(self, pod: PodView, machine: Machine) -> None:
        if not machine.agent:
            self._retry_later(machine.name)
            return
        self._starting.add(pod.uid)
        pause = self._kernel.about(self._latencies.pod_start)
        self._kernel.after(pause, lambda: self._started(pod, machine))

    def _started(self, pod: PodView, machine: Machine) -> None:
        self._starting.discard(pod.uid)
        now = self._api.pods.get(pod.name)
        if not machine.up or now is None or now.uid != pod.uid or now.deleting:
            self._sync_after(0.0, machine.name)
            return
        worker = Worker(
            pod.uid,
            pod.name,
            pod.labels.get(LABEL_JOB, ""),
            pod.owner_uid or "",
            machine.name,
            self._grace(pod),
            term_code=self._term_code(pod.owner_uid or ""),
        )
        self._workers.start(worker)
        self._address += 1
        address = f"10.{self._address // 62500}.{self._address // 250 % 250}.{self._address % 250 + 1}"
        if machine.reaches_control and self._api.up:
            self._api.set_pod(pod.name, pod.uid, phase="Running", ip=address)
        else:
            self._kernel.after(RETRY_SECONDS, lambda: self._report_running(worker, address))
        if self.launchers:
            pause = self._kernel.about(self._latencies.launcher)
            self._kernel.after(pause, lambda: self._workers.connect(pod.uid))

    def _report_running(self, worker: Worker, address: str) -> None:
        machine = self._machines[worker.node]
        if worker.uid not in self._workers.by_uid:
            return
        if machine.reaches_control and self._api.up:
            if worker.live:
                self._api.set_pod(worker.pod, worker.uid, phase="Running", ip=address)
            return
        self._kernel.after(RETRY_SECONDS, lambda: self._report_running(worker, address))

    def _unready(self, pod: PodView) -> dict[str, Any]:
        """Return the fields of a pod that stops being ready; none if it is not ready."""
        return {"ready": False, "ready_changed": float(int(self._kernel.now))} if pod.ready else {}

    def _grace(self, pod: PodView) -> float:
        grace = self._api.specs.get(pod.uid, {}).get("terminationGracePeriodSeconds", GRACE_SECONDS)
        return float(grace)

    # Node failures

    def lease_seconds(self, node: str) -> float:
        """Return the age in seconds of the kubelet's Lease."""
        machine = self._machines.by_name[node]
        if machine.reaches_control and self._api.up:
            return (self._kernel.now - self._renewed[node]) % max(self._latencies.lease, 1.0)
        return self._kernel.now - self._renewed[node]

    def _reach_changed(self, machine: Machine) -> None:
        name = machine.name
        if machine.reaches_control:
            self._kernel.after(RETRY_SECONDS, lambda: self._reconnected(name))
        elif name in self._renewed:
            # Lease renewals are not simulated as events. So assume that the last renewal was at a random time
            # within the past renewal interval.
            age = self._kernel.rng.uniform(0.0, self._latencies.lease)
            self._renewed[name] = max(self._renewed[name], self._kernel.now - age)
            mark = self._renewed[name]
            self._kernel.after(self._latencies.node_grace, lambda: self._not_ready(name, mark))

    def _reconnected(self, name: str) -> None:
        machine = self._machines[name]
        if not machine.reaches_control:
            return
        if not self._api.up:
            self._kernel.after(RETRY_SECONDS, lambda: self._reconnected(name))
            return
        self._renewed[name] = self._kernel.now
        if name in self._api.nodes:
            self._api.set_node(name, ready=True)
        else:
            self._api.put_node(node_of(machine))
        self._sync_node(name)

    def _not_ready(self, name: str, mark: float) -> None:
        if self._machines[name].reaches_control or self._renewed[name] != mark:
            return
        if not self._api.up:
            self._kernel.after(self._latencies.node_grace, lambda: self._not_ready(name, mark))
            return
        self._api.set_node(name, ready=False)
        for pod in self._api.pods_on(name):
            self._api.set_pod(pod.name, pod.uid, **self._unready(pod))
        self._kernel.after(self._latencies.eviction, lambda: self._evict_pods(name))

    def _evict_pods(self, name: str) -> None:
        node = self._api.nodes.get(name)
        if self._api.up and node is not None and not node.ready:
            for pod in self._api.pods_on(name):
                self._api.disrupt(pod.name, "DeletionByTaintManager")

    def delete_node(self, name: str) -> None:
        """Delete a Node object. The node's pods are deleted `pod_gc` seconds later."""
        self._api.delete_node(name)
        self._kernel.after(self._latencies.pod_gc, lambda: self._delete_orphans(name))

    def _delete_orphans(self, name: str) -> None:
        if not self._api.up:
            self._kernel.after(self._latencies.pod_gc, lambda: self._delete_orphans(name))
        elif name not in self._api.nodes:
            for pod in self._api.pods_on(name):
                self._api.set_pod(pod.name, pod.uid, disruption="DeletionByPodGC")
                self._api.remove_pod(pod.name, pod.uid)

    def resync(self) -> None:
        """Synchronize all machines after an outage of the API server."""
        for name, machine in self._machines.by_name.items():
            if machine.reaches_control:
                self._renewed[name] = self._kernel.now
            self._sync_soon(name)
