"""The kubelets' readiness probes of simulated replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convoy_controllers.simulate.api import Api
from convoy_controllers.simulate.kernel import Kernel, Timer
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.machines import Machine, Machines
from convoy_controllers.simulate.workers import Workers

RETRY_SECONDS = 1.0
"""Seconds after which a kubelet that does not reach the API server tries again."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A change of readiness that a kubelet has yet to notice."""

    ready: bool
    timer: Timer


class Probes:
    """Sets the Ready conditions of pods. `ready` returns what a pod's launcher replies to a probe, by pod
    uid.
    """

    def __init__(
        self,
        kernel: Kernel,
        latencies: Latencies,
        api: Api,
        machines: Machines,
        workers: Workers,
        ready: Callable[[str], bool],
    ) -> None:
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._machines = machines
        self._workers = workers
        self._ready = ready
        self._turns: dict[str, _Turn] = {}
        self._watched: dict[str, str] = {}
        """Uid of each probed pod, by name of the pod."""
        api.listeners.append(self._pod_changed)
        machines.changed.append(self._machine_changed)

    def changed(self, uid: str) -> None:
        """Notice, with the delay of the probes, that the readiness of a pod may have changed."""
        worker = self._workers.by_uid.get(uid)
        pod = self._api.pods.get(worker.pod) if worker else None
        if worker is None or pod is None or pod.uid != uid:
            return
        self._watched[worker.pod] = uid
        ready, turn = self._ready(uid), self._turns.get(uid)
        if turn is not None and turn.ready == ready:
            return
        if turn is not None:
            turn.timer.cancel()
            del self._turns[uid]
        if pod.ready != ready and worker.live:
            self._notice_after(self._delay(ready), uid, ready)

    def _delay(self, ready: bool) -> float:
        """Return the seconds until a probe notices the change. Two probes in a row must fail."""
        period = self._latencies.probe
        return self._kernel.rng.uniform(0.0, period) + (0.0 if ready else period)

    def _notice_after(self, seconds: float, uid: str, ready: bool) -> None:
        timer = self._kernel.after(seconds, lambda: self._notice(uid, ready))
        self._turns[uid] = _Turn(ready, timer)

    def _notice(self, uid: str, ready: bool) -> None:
        self._turns.pop(uid, None)
        worker = self._workers.by_uid.get(uid)
        if worker is None or not worker.live or self._ready(uid) != ready:
            return
        if not (self._machines[worker.node].reaches_control and self._api.up):
            self._notice_after(RETRY_SECONDS, uid, ready)
            return
        # The API server stores times in whole seconds.
        self._api.set_pod(worker.pod, uid, ready=ready, ready_changed=float(int(self._kernel.now)))

    def _pod_changed(self, kind: str, name: str) -> None:
        """Correct a condition that another client has changed."""
        if kind == "pods" and name in self._watched:
            pod = self._api.pods.get(name)
            if pod is None or pod.uid != self._watched[name]:
                del self._watched[name]
            else:
                self.changed(pod.uid)

    def _machine_changed(self, machine: Machine) -> None:
        if machine.reaches_control:
            for worker in self._workers.on(machine.name):
                if worker.pod in self._watched:
                    self.changed(worker.uid)
