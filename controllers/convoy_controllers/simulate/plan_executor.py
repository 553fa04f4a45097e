"""Carries out a plan in a simulated cluster, effect by effect, in the order of convoy_operator.reconcile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.children import Delete, EndPod
from convoy_controllers.commands import JobCommand
from convoy_controllers.plan import Plan
from convoy_controllers.simulate.api import AlreadyExists, Api, Conflict, Refused, Stored
from convoy_controllers.simulate.cluster_events import CommandSent, Notify, StatusStored
from convoy_controllers.simulate.informer_cache import InformerCache
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.latencies import Latencies
from convoy_crds.trainingjob import TrainingJob

Effects = Generator[float, None, None]
"""Yields the seconds that each request takes."""


@dataclass(kw_only=True)
class PlanExecutor:
    """The operator's requests to API server and hub."""

    kernel: Kernel
    latencies: Latencies
    api: Api
    send: Callable[[JobCommand], None]
    """Sends a command by the hub."""
    cache: InformerCache
    notify: Notify
    before_effect: Callable[[], None] = lambda: None
    """Called before each effect; may raise, which leaves undone what was to follow."""
    after_request: Callable[[], None] = lambda: None
    """Called after each request's time; may raise as well."""

    def store(self, stored: Stored, status: Mapping[str, Any] | None, decided: float) -> Effects:
        """Writes the status if there is one. Conflict, Unavailable."""
        if status is None:
            return
        yield from self._request()
        before, name = stored.job, stored.job.metadata.name
        fresh = self.api.store_status(name, stored.version, status)
        self.notify(StatusStored(before, fresh.job, decided))
        self.cache.put_job(fresh)

    def delete(self, job: str, deletion: Delete) -> Effects:
        """Deletes the very pod that was seen; one that is deletion or replaced is as good as deleted."""
        yield from self._request()
        known = next((pod for pod in self.cache.pods(job) if pod.uid == deletion.uid), None)
        try:
            remaining = self.api.delete_pod(deletion.name, deletion.uid, deletion.grace_seconds)
        except Conflict:
            remaining = None
        if remaining is not None:
            self.cache.put_pod(remaining)
        elif known is not None:
            self.cache.drop_pod(known)

    def end(self, one: EndPod) -> Effects:
        """Ends what runs of a pod beside its ranks, which is nothing here: its kubelet says so."""
        yield from self._request()
        self.api.set_pod(one.name, one.uid, phase="Failed")

    def create(self, owner: str, body: Mapping[str, Any]) -> Effects:
        """Creates a pod, or takes in the one of ours that has its name. Refused, Unavailable."""
        yield from self._request()
        try:
            pod = self.api.create_pod(body)
        except AlreadyExists:
            pod = self.api.pods[body["metadata"]["name"]]
            if pod.owner_uid != owner:
                raise Refused("a pod of that name exists and is not this job's") from None
        self.cache.put_pod(pod)

    def command(self, job: TrainingJob, plan: Plan) -> None:
        """Sends the plan's commands for a job."""
        for command in plan.commands:
            if not isinstance(command, JobCommand):
                raise TypeError(f"no command of a job: {command}")
            self.before_effect()
            now = self.api.jobs.get(job.metadata.name)
            same = now is not None and now.job.metadata.uid == job.metadata.uid
            self.notify(CommandSent(now.job if now and same else None, command))
            self.send(command)

    def execute(self, stored: Stored, plan: Plan, decided: float) -> Effects:
        """All of a plan, where nothing goes wrong."""
        job = stored.job.metadata
        if plan.status_first:
            yield from self.store(stored, plan.status, decided)
        for deletion in plan.deletions:
            yield from self.delete(job.name, deletion)
        for one in plan.endings:
            yield from self.end(one)
        for body in plan.manifests:
            yield from self.create(job.uid, body)
        if not plan.status_first:
            yield from self.store(stored, plan.status, decided)
        self.command(stored.job, plan)
        if plan.delete_parent:
            yield from self.delete_job(job.name)

    def delete_job(self, job: str) -> Effects:
        """Deletes the parent itself."""
        yield from self._request()
        self.api.delete_job(job)

    def _request(self) -> Effects:
        """A request on its way; what it does happens at its end."""
        self.before_effect()
        yield self.kernel.about(self.latencies.api)
        self.after_request()
