"""Executes plans in a simulated cluster, with effects in the same order as in convoy_operator.reconcile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.children import Apply, Check, Child, Create, Delete, EndPod, EvictPod
from convoy_controllers.commands import JobCommand
from convoy_controllers.plan import Plan
from convoy_controllers.simulate.api import AlreadyExists, Api, Conflict, Refused, Stored
from convoy_controllers.simulate.cluster_events import CommandSent, Notify, PodDeleted, StatusStored
from convoy_controllers.simulate.informer_cache import InformerCache
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.latencies import Latencies

Effects = Generator[float, None, None]
"""A generator that runs effects. It yields the seconds that each request takes."""


@dataclass(kw_only=True)
class PlanExecutor:
    """Executes plans through requests to the API server and the hub."""

    kernel: Kernel
    latencies: Latencies
    api: Api
    send: Callable[[JobCommand], None]
    """Function that sends a command through the hub."""
    cache: InformerCache
    notify: Notify
    before_effect: Callable[[], None] = lambda: None
    """Called before each effect. If it raises an exception, this effect and all later ones are skipped."""
    after_request: Callable[[], None] = lambda: None
    """Called at the end of a request's latency. If it raises, the request and all later effects are
    skipped.
    """

    def store(self, stored: Stored[Any], status: Mapping[str, Any] | None, decided: float) -> Effects:
        """Store a status; None stores nothing. Raises Conflict for another resource version, or Unavailable
        if the API server does not answer.
        """
        if status is None:
            return
        yield from self._request()
        before, name = stored.job, stored.job.metadata.name
        fresh = self.api.store_status(name, stored.version, status)
        self.notify(StatusStored(before, fresh.job, decided))
        self.cache.put_job(fresh)

    def delete(self, job: str, deletion: Delete) -> Effects:
        """Delete the pod with this uid. It is no error if the pod is already removed or replaced."""
        yield from self._request()
        known = next((pod for pod in self.cache.pods(job) if pod.uid == deletion.uid), None)
        self.notify(PodDeleted(job, deletion.name, deletion.uid))
        try:
            remaining = self.api.delete_pod(deletion.name, deletion.uid, deletion.grace_seconds)
        except Conflict:
            remaining = None
        if remaining is not None:
            self.cache.put_pod(remaining)
        elif known is not None:
            self.cache.drop_pod(known)

    def end(self, one: EndPod) -> Effects:
        """End the running containers of a pod whose ranks have ended. The simulation has no sidecars, so
        the pod fails at once.
        """
        yield from self._request()
        self.api.set_pod(one.name, one.uid, phase="Failed")

    def evict(self, one: EvictPod) -> Effects:
        """Evict a pod, unless a PodDisruptionBudget forbids it."""
        yield from self._request()
        self.api.check()
        pod = self.api.pods.get(one.name)
        if pod is not None and pod.uid == one.uid:
            self.api.evict(one.name)

    def apply(self, child: Apply) -> Effects:
        """Apply an object, unless it is stored already. The only status that is applied is that of a pod:
        it is not ready.
        """
        if child.subresource:
            yield from self._request()
            self.api.check()
            pod = self.api.pods.get(child.name)
            if pod is not None:
                now = float(int(self.kernel.now))
                self.api.set_pod(pod.name, pod.uid, ready=False, ready_changed=now)
        elif self.api.objects.get((child.resource, child.name)) != child.manifest:
            yield from self._request()
            self.api.apply(child.resource, child.manifest)

    def prune(self, owner: str, plan: Plan) -> Effects:
        """Delete the owner's objects of the resources in `plan.prune` that no child of the plan applies."""
        wanted = {(one.resource, one.name) for one in plan.children if isinstance(one, Apply)}
        for key in self.api.applied_for(owner):
            if key[0] in plan.prune and key not in wanted:
                yield from self._request()
                self.api.check()
                self.api.remove_object(*key)

    def child(self, job: str, child: Child) -> Effects:
        """Execute one child that creates no pod."""
        match child:
            case Delete():
                yield from self.delete(job, child)
            case EndPod():
                yield from self.end(child)
            case EvictPod():
                yield from self.evict(child)
            case Apply():
                yield from self.apply(child)
            case Check():
                yield from self._request()
                if why := self.api.refuse(child.name):
                    raise Refused(why)
            case _:
                raise TypeError(f"plans of jobs have no such child: {child}")

    def create(self, owner: str, body: Mapping[str, Any]) -> Effects:
        """Create a pod, or adopt the job's own pod with that name. Raises Refused if admission refuses the
        pod, or Unavailable if the API server does not answer.
        """
        yield from self._request()
        try:
            pod = self.api.create_pod(body)
        except AlreadyExists:
            pod = self.api.pods[body["metadata"]["name"]]
            if pod.owner_uid != owner:
                raise Refused("a pod of this name exists and belongs to another owner") from None
        self.cache.put_pod(pod)

    def command(self, job: Any, plan: Plan) -> None:
        """Send all commands of a plan."""
        for command in plan.commands:
            if not isinstance(command, JobCommand):
                raise TypeError(f"not a command for a job: {command}")
            self.before_effect()
            now = self.api.jobs.get(job.metadata.name)
            same = now is not None and now.job.metadata.uid == job.metadata.uid
            self.notify(CommandSent(now.job if now and same else None, command))
            self.send(command)

    def execute(self, stored: Stored[Any], plan: Plan, decided: float) -> Effects:
        """Execute all effects of a plan. If an effect fails, raise its error and skip the later effects."""
        job = stored.job.metadata
        if plan.status_first:
            yield from self.store(stored, plan.status, decided)
        for child in plan.children:
            if not isinstance(child, Create):
                yield from self.child(job.name, child)
        yield from self.prune(job.uid, plan)
        for body in plan.manifests:
            yield from self.create(job.uid, body)
        if not plan.status_first:
            yield from self.store(stored, plan.status, decided)
        self.command(stored.job, plan)
        if plan.delete_parent:
            yield from self.delete_job(job.name)

    def delete_job(self, job: str) -> Effects:
        """Delete the job."""
        yield from self._request()
        self.api.delete_job(job)

    def _request(self) -> Effects:
        """Wait for the latency of one request. The request's effect happens afterwards."""
        self.before_effect()
        yield self.kernel.about(self.latencies.api)
        self.after_request()
