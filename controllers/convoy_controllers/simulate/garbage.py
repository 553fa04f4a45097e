"""The garbage collector of a simulated cluster. It deletes pods whose job is deleted."""

from __future__ import annotations

from convoy_controllers.simulate.api import Api
from convoy_controllers.simulate.kernel import Kernel

COLLECT_DELAY_SECONDS = 0.5


class GarbageCollector:
    """Deletes pods without an owner, COLLECT_DELAY_SECONDS after a job is deleted or such a pod appears."""

    def __init__(self, kernel: Kernel, api: Api) -> None:
        self._kernel = kernel
        self._api = api
        self._scheduled = False
        api.listeners.append(self._on_change)

    def _on_change(self, kind: str, name: str) -> None:
        job_deleted = kind == "jobs" and name not in self._api.jobs
        if (job_deleted or self._orphan(kind, name)) and not self._scheduled:
            self._scheduled = True
            self._kernel.after(COLLECT_DELAY_SECONDS, self._collect)

    def _orphan(self, kind: str, name: str) -> bool:
        pod = self._api.pods.get(name) if kind == "pods" else None
        return pod is not None and not pod.deleting and pod.owner_uid not in self._owners()

    def _owners(self) -> set[str]:
        return {stored.job.metadata.uid for stored in self._api.jobs.values()}

    def _collect(self) -> None:
        self._scheduled = False
        if not self._api.up:
            self._scheduled = True
            self._kernel.after(COLLECT_DELAY_SECONDS, self._collect)
            return
        owners = self._owners()
        for pod in list(self._api.pods.values()):
            if pod.owner_uid not in owners and not pod.deleting:
                self._api.delete_pod(pod.name, pod.uid)
