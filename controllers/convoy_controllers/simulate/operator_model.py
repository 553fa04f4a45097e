"""The operator of a simulated cluster. It makes plans with the operator's own plan function and executes
them.

It does what convoy_operator.reconcile does: it has the same order of effects, and handles conflicts and
back-offs in the same way. It may crash between any two effects. The next leader starts only from what the
API server has stored.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from convoy_controllers.children import Create
from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.placement.requests import Amounts, pod_requests
from convoy_controllers.plan import Plan
from convoy_controllers.progress_throttle import WRITES_PER_SECOND, ProgressThrottle
from convoy_controllers.queue_timings import BACKOFF_MAX_SECONDS, BACKOFF_MIN_SECONDS
from convoy_controllers.simulate.api import Api, ApiError, Refused, Stored
from convoy_controllers.simulate.cluster_events import Notify, PlanMade
from convoy_controllers.simulate.hub import Hub
from convoy_controllers.simulate.informer_cache import InformerCache
from convoy_controllers.simulate.job_kind import JobSimulation
from convoy_controllers.simulate.kernel import Kernel, Timer
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.plan_executor import Effects, PlanExecutor
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.terms import ANNOTATION_PLANNED_NODE

MIN_REQUEUE_SECONDS = 0.05


class Crashed(Exception):
    """Raised when the operator crashes."""


@dataclass(slots=True)
class QueueEntry:
    """Entry of one job in the operator's queue."""

    timer: Timer | None = None
    busy: bool = False
    due_again: bool = False
    """True if the job became due while it was being reconciled."""
    failures: int = 0
    not_before: float = 0.0
    refusals: int = 0
    """Number of consecutive reconciles in which admission refused a pod."""
    refused: dict[str, Refusal] = field(default_factory=dict)
    refused_until: float = 0.0
    metadata_generation: int = 0


class OperatorModel:
    """The operator's replicas. At most one of them leads, and another one leads after a crash."""

    def __init__(
        self,
        kernel: Kernel,
        latencies: Latencies,
        api: Api,
        hub: Hub,
        simulations: Mapping[str, JobSimulation],
        notify: Notify,
    ) -> None:
        """Create the replicas. `simulations` has the simulation of each kind of jobs, by name of the kind."""
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._hub = hub
        self._simulations = simulations
        self._notify = notify
        self.cache = InformerCache(kernel, latencies, api)
        self.cache.wake = self._job_changed
        self._entries: dict[str, QueueEntry] = {}
        self._memories: dict[str, object] = {}
        """The memory of the newest executed plan of each job, by uid. A crash loses it."""
        self._throttle = self._new_throttle()
        self.creating: dict[str, tuple[str, Amounts]] = {}
        """Chosen node and requests of each pod that is being created, by name of the pod."""
        self._countdown = 0
        self._term = 0
        self.leading = False
        self.plans = 0
        hub.monitor.wake = self._node_changed

    def _new_throttle(self) -> ProgressThrottle[str]:
        return ProgressThrottle(self._latencies.progress_write, WRITES_PER_SECOND)

    # Leadership

    def lead(self) -> None:
        """Make a replica the leader. During an outage of the API server, retry each second."""
        if self.leading or not self._api.up:
            if not self.leading:
                self._kernel.after(1.0, self.lead)
            return
        self.leading = True
        self._countdown = 0
        self._entries.clear()
        self._throttle = self._new_throttle()
        self.cache.start()
        self._hub.start_leading()
        for name in self.cache.jobs:
            self.add(name, 0.0)

    def crash(self, effects: int = 0) -> None:
        """Crash the leader: at once if `effects` is 0, otherwise just before its effect number `effects`
        from now on.
        """
        if effects > 0:
            self._countdown = effects
        elif self.leading:
            self._die()

    def _die(self) -> None:
        self.leading = False
        self._term += 1
        self.cache.stop()
        self._hub.stop_leading()
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
        self._entries.clear()
        self._memories.clear()
        self.creating.clear()
        self._kernel.after(self._kernel.about(self._latencies.failover), self.lead)

    def api_changed(self) -> None:
        """List and watch all objects again, because the API server was unavailable."""
        if self.leading and self._api.up:
            self.cache.start()
            for name in self.cache.jobs:
                self.add(name, 0.0)

    # The queue

    def add(self, name: str, seconds: float) -> None:
        """Queue a job for a reconcile within `seconds`."""
        if not self.leading or name not in self.cache.jobs:
            return
        entry = self._entries.setdefault(name, QueueEntry())
        due = self._kernel.now + seconds
        if seconds:
            due = max(due, entry.not_before)
        if entry.busy:
            entry.due_again = True
            return
        if entry.timer is not None:
            if entry.timer.at <= due:
                return
            entry.timer.cancel()
        entry.timer = self._kernel.at(due, lambda: self._start_reconcile(name))

    def _job_changed(self, job: str, urgent: bool) -> None:
        self.add(job, 0.0 if urgent else self._latencies.debounce)

    def _node_changed(self, node: str, seconds: float) -> None:
        for job in self.cache.jobs_on(node):
            self.add(job, seconds)

    def _start_reconcile(self, name: str) -> None:
        entry = self._entries.get(name)
        if entry is None or not self.leading:
            return
        entry.timer = None
        entry.busy = True
        self._kernel.play(self._handle(name, entry))

    def _handle(self, name: str, entry: QueueEntry) -> Effects:
        """Reconcile a job. After a failed request, retry with back-off."""
        term = self._term
        try:
            wait = yield from self._reconcile(name, entry, term)
        except Crashed:
            return
        except ApiError:
            entry.failures += 1
            wait = self._backoff(entry.failures)
            entry.not_before = self._kernel.now + wait
        else:
            entry.failures, entry.not_before = 0, 0.0
        if term != self._term:
            return
        entry.busy = False
        if entry.due_again:
            entry.due_again = False
            self.add(name, self._latencies.debounce)
        if wait is not None:
            self.add(name, max(wait, MIN_REQUEUE_SECONDS))

    def _executor(self, term: int) -> PlanExecutor:
        def check_term() -> None:
            if term != self._term:
                raise Crashed

        def before_effect() -> None:
            check_term()
            if self._countdown:
                self._countdown -= 1
                if not self._countdown:
                    self._die()
                    raise Crashed

        return PlanExecutor(
            kernel=self._kernel,
            latencies=self._latencies,
            api=self._api,
            send=self._hub.send,
            cache=self.cache,
            notify=self._notify,
            before_effect=before_effect,
            after_request=check_term,
        )

    # Reconcile

    def observed(self, job: Any, refused: Mapping[str, Refusal]) -> Any:
        """Return the state of a job from which plans are made."""
        pods, memory = self.cache.pods(job.metadata.name), self._memories.get(job.metadata.uid)
        return self._simulations[job.kind].observed(job, pods, refused, memory)

    def _reconcile(self, name: str, entry: QueueEntry, term: int) -> Generator[float, None, float | None]:
        """Reconcile a job. Return the seconds until the next reconcile, or None if only a change makes it
        due.
        """
        stored = self.cache.jobs.get(name)
        if stored is None:
            self._throttle.drop(name)
            return None
        nodes = {pod.node for pod in self.cache.pods(name) if pod.node}
        if unsettled := self._hub.monitor.unsettled(nodes):
            return unsettled
        executor, decided = self._executor(term), self._kernel.now
        plan = self._plan(stored, entry)
        waits = [plan.requeue_after]
        if plan.status_first:
            yield from self._store(executor, stored, plan, decided)
        for child in plan.children:
            if not isinstance(child, Create):
                yield from executor.child(name, child)
        yield from executor.prune(stored.job.metadata.uid, plan)
        if plan.creations and (yield from self._create(executor, stored, plan, entry)):
            stored, decided = self.cache.jobs.get(name, stored), self._kernel.now
            plan = replace(self._plan(stored, entry), status_first=False)
            waits.append(plan.requeue_after)
        if entry.refused_until > self._kernel.now:
            waits.append(entry.refused_until - self._kernel.now)
        if not plan.status_first:
            waits.append(self._progress_delay(stored, plan))
            if waits[-1] is None:
                yield from self._store(executor, stored, plan, decided)
        executor.command(stored.job, plan)
        if plan.memory is not None:
            self._memories[stored.job.metadata.uid] = plan.memory
        if plan.delete_parent:
            yield from executor.delete_job(name)
            return None
        if self._simulations[stored.job.kind].progressing(stored.job):
            # Agents report steps all the time, but the rate limit lets each job write them only at its own
            # turn. So reconcile this job again at its next turn.
            turn = self._throttle.turn(name, len(self.cache.jobs), self._kernel.now)
            waits.append(turn or self._latencies.progress_write)
        return min((wait for wait in waits if wait is not None), default=None)

    def _plan(self, stored: Stored[Any], entry: QueueEntry) -> Plan:
        still_refused = (
            entry.metadata_generation == stored.job.metadata.generation
            and self._kernel.now < entry.refused_until
        )
        observed = self.observed(stored.job, entry.refused if still_refused else {})
        plan = self._simulations[stored.job.kind].controller.plan(observed, self._kernel.time)
        self.plans += 1
        self._notify(PlanMade(observed, plan))
        return plan

    def _create(
        self, executor: PlanExecutor, stored: Stored[Any], plan: Plan, entry: QueueEntry
    ) -> Generator[float, None, bool]:
        """Create the plan's pods until admission refuses one. Return True if a pod was refused."""
        refused: dict[str, Refusal] = {}
        planned = {body["metadata"]["name"]: _place(body) for body in plan.manifests}
        self.creating |= planned
        try:
            for body in plan.manifests:
                try:
                    yield from executor.create(stored.job.metadata.uid, body)
                except Refused as error:
                    refused[body["metadata"]["name"]] = Refusal(str(error))
                    break
        finally:
            for name in planned:
                self.creating.pop(name, None)
        entry.refusals = entry.refusals + 1 if refused else 0
        entry.metadata_generation, entry.refused = stored.job.metadata.generation, refused
        entry.refused_until = self._kernel.now + self._backoff(entry.refusals) if refused else 0.0
        return bool(refused)

    def _backoff(self, tries: int) -> float:
        """Return the back-off in seconds after `tries` consecutive failures."""
        longest = min(BACKOFF_MIN_SECONDS * 2.0 ** (tries - 1), BACKOFF_MAX_SECONDS)
        return longest * self._kernel.rng.uniform(0.5, 1.0)

    def _store(self, executor: PlanExecutor, stored: Stored[Any], plan: Plan, decided: float) -> Effects:
        if plan.status is not None and merge_patch(stored.job.status.to_dict(), plan.status):
            yield from executor.store(stored, plan.status, decided)
            self._throttle.record_write(stored.job.metadata.name, self._kernel.now)

    def _progress_delay(self, stored: Stored[Any], plan: Plan) -> float | None:
        """Return the seconds until a status that only records progress may be written.

        None if the status may be written at once, or if there is nothing to write.
        """
        if plan.status is None:
            return None
        before, name = stored.job.status.to_dict(), stored.job.metadata.name
        patch, jobs = merge_patch(before, plan.status), len(self.cache.jobs)
        if not patch:
            return None
        fields = self._simulations[stored.job.kind].controller.progress
        return self._throttle.wait(name, before, patch, jobs, self._kernel.now, fields) or None


def _place(body: Mapping[str, Any]) -> tuple[str, Amounts]:
    """Return the node that was chosen for a pod, and the pod's requests."""
    return body["metadata"]["annotations"].get(ANNOTATION_PLANNED_NODE, ""), pod_requests(body["spec"])
