"""ServingJobs in a simulated cluster and in scenario files."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from convoy_controllers.cached import CachedObject
from convoy_controllers.resources import CONTROLLER_REVISIONS
from convoy_controllers.servingjob import activation, revision, traffic
from convoy_controllers.servingjob.controller import CONTROLLER
from convoy_controllers.servingjob.loads import Load, load
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.scaling.memory import Memories
from convoy_controllers.simulate.cluster_events import ClusterEvent, StatusStored
from convoy_controllers.simulate.serving.figures import REPORT_SECONDS
from convoy_controllers.simulate.serving.probes import Probes
from convoy_controllers.simulate.serving.program import ServingProgram, Traffic
from convoy_controllers.simulate.serving.proxies import Proxies
from convoy_controllers.simulate.serving.ranks import RevisionFacts, ServingRanks
from convoy_controllers.simulate.serving.replica import Replica
from convoy_controllers.simulate.serving.requests import Cause, Outcome, Request, RequestLog
from convoy_controllers.simulate.stores import store_named
from convoy_controllers.simulate.workers import Worker
from convoy_controllers.views import PodView
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_model import CheckpointSource
from convoy_crds.terms import ENGINE_ACTIVATOR, LABEL_REVISION, LABEL_ROLE, ROLE_ACTIVATOR
from convoy_crds.trainingjob import TrainingJob

if TYPE_CHECKING:
    from convoy_controllers.simulate.cluster import Cluster


@dataclass(slots=True)
class _Job:
    """The program of one job, and what happened to its revisions and requests."""

    name: str
    program: ServingProgram
    numbers: dict[str, int] = field(default_factory=dict)
    """Number that each revision had when it was stored first, by name."""
    log: RequestLog = field(default_factory=RequestLog)


class ServingJobs:
    """All ServingJobs of a cluster, with their requests."""

    controller = CONTROLLER

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kernel = cluster.kernel
        self._jobs: dict[str, _Job] = {}
        """The jobs by uid."""
        self._series: dict[str, traffic.Series] = {}
        """Reported totals of each pod, by uid."""
        self.program = ServingRanks(cluster.kernel, cluster.workers, cluster.machines, self._revision_of)
        self.proxies = Proxies(cluster.kernel, cluster.latencies, cluster.api)
        self._probes = Probes(
            cluster.kernel,
            cluster.latencies,
            cluster.api,
            cluster.machines,
            cluster.workers,
            self.program.ready,
        )
        self.availability_changed: list[Callable[[str], None]] = []
        """Called with the name of a job whose number of serving replicas may have changed."""
        self.request_ended: list[Callable[[str, Outcome, Cause], None]] = []
        """Called with the name of the job and the outcome of each request."""
        cluster.listeners.append(self._on_event)
        self.program.changed = self._pod_changed
        self.program.held = self._held
        self.program.pod_at = self._pod_at
        self.proxies.changed = self._availability_changed
        self.proxies.listed_changed = self._listed_changed

    # Jobs

    def add(self, job: ServingJob, program: ServingProgram | None) -> None:
        """Add a job. Without `program`, its replicas have the default program."""
        self._jobs[job.metadata.uid] = _Job(job.metadata.name, program or ServingProgram())
        self._kernel.after(REPORT_SECONDS, lambda: self._report_totals(job.metadata.uid))

    def observed(
        self,
        job: ServingJob,
        pods: tuple[PodView, ...],
        refused: Mapping[str, Refusal],
        memory: Memories | None = None,
    ) -> Observed:
        """Return the state of a job from which plans are made. `memory` is that of its newest executed
        plan.
        """
        cluster, engines = self._cluster, self._cluster.engines
        own = tuple(pod for pod in pods if pod.owner_uid == job.metadata.uid)
        named = set(engine_names(job))
        revisions, wanted = self._revisions(job), _checkpoint(job)
        used = {one.spec.generation.store for one in revisions if one.spec.generation is not None}
        source = cluster.api.jobs.get(wanted.job) if wanted is not None and wanted.job else None
        return Observed(
            job=job,
            engines={name: engines[name] for name in sorted(named & engines.keys())},
            known_engines=tuple(sorted(engines)),
            revisions=revisions,
            store=store_named(wanted.store) if wanted is not None else None,
            known_stores=tuple(sorted(used | ({wanted.store} if wanted is not None else set()))),
            source=source.job if source is not None and isinstance(source.job, TrainingJob) else None,
            pods=pods,
            slots=cluster.hub.slots(own),
            nodes=cluster.hub.nodes(pods),
            silent_seconds=cluster.latencies.silent,
            front=self.proxies.front(job.metadata.name),
            endpoints=self.proxies.listed(job.metadata.name),
            agent_nodes=sum(node.agent_ready for node in cluster.api.nodes.values()),
            create_errors=refused,
            traffic=self.figures(pod.uid for pod in own),
            loads=self.loads(pod.uid for pod in own),
            memory=memory or {},
        )

    def progressing(self, job: ServingJob) -> bool:
        """Return True if a replica of the job has, or had lately, requests."""
        pods = self._cluster.api.pods_of(job.metadata.name)
        return any(traffic.busy(self._series[pod.uid]) for pod in pods if pod.uid in self._series)

    def _on_event(self, event: ClusterEvent) -> None:
        """Reconcile the jobs that serve the checkpoints of a TrainingJob when it has saved another one."""
        match event:
            case StatusStored(before, TrainingJob() as after):
                if _stored_step(before) != _stored_step(after):
                    self._wake_followers(after.metadata.name)
            case _:
                pass

    def _wake_followers(self, source: str) -> None:
        latencies = self._cluster.latencies
        for name, stored in self._cluster.api.jobs.items():
            found = _checkpoint(stored.job) if isinstance(stored.job, ServingJob) else None
            if found is not None and found.job == source:
                self._cluster.operator.add(name, latencies.watch + latencies.debounce)

    def term_code(self, job_uid: str) -> int:
        """Return the exit code of a rank that has drained after SIGTERM."""
        return 0

    # Revisions

    def _revisions(self, job: ServingJob) -> tuple[revision.Revision, ...]:
        """Return the stored revisions of a job."""
        api = self._cluster.api
        found = (
            revision.parse(CachedObject("", name, "", 0, api.objects[resource, name]))
            for resource, name in api.applied_for(job.metadata.uid)
            if resource == CONTROLLER_REVISIONS
        )
        return tuple(one for one in found if one is not None)

    def _revision_of(self, worker: Worker) -> RevisionFacts | None:
        """Return the program of a container, according to the revision of its pod."""
        job, stored = self._jobs.get(worker.job_uid), self._cluster.api.jobs.get(worker.job)
        pod = self._cluster.api.pods.get(worker.pod)
        if job is None or stored is None or pod is None or not isinstance(stored.job, ServingJob):
            return None
        if pod.labels.get(LABEL_ROLE) == ROLE_ACTIVATOR:
            return RevisionFacts(
                ServingProgram(load_seconds=0.5),
                False,
                float(activation.drain_seconds(stored.job)),
                float(activation.hold_seconds(stored.job)),
            )
        for one in self._revisions(stored.job):
            job.numbers.setdefault(one.name, one.number)
            if one.name == pod.labels.get(LABEL_REVISION):
                number = job.numbers[one.name]
                broken = number in job.program.broken_revisions
                return RevisionFacts(job.program, broken, float(one.spec.drain_seconds))
        return None

    # Requests

    def start_traffic(self, wanted: Traffic, until: float, rng: random.Random) -> None:
        """Start to send requests. `until`: Unix time in seconds at which the last one arrives."""
        self._kernel.after(wanted.gap(rng), lambda: self._arrive(wanted, until, rng))

    def _arrive(self, wanted: Traffic, until: float, rng: random.Random) -> None:
        now = self._kernel.now
        if now > until:
            return
        self._kernel.at(now + wanted.gap(rng), lambda: self._arrive(wanted, until, rng))
        job = self._by_name(wanted.job)
        if job is not None:
            seconds = job.program.draw_seconds(rng)
            self._send(job, Request(now, seconds, lambda *end: self._end(job, *end)), rng)

    def _send(self, job: _Job, request: Request, rng: random.Random) -> None:
        uid = self.proxies.choose(job.name, rng)
        replica = self.program.by_pod.get(uid or "")
        if uid is None:
            self._end(job, request, Outcome.FAILED, Cause.NO_ENDPOINT)
        elif replica is None:
            self._end(job, request, Outcome.FAILED, self._cause_without_rank(job, uid))
        elif not self.program.reachable(uid):
            self._end(job, request, Outcome.FAILED, Cause.UNREACHABLE)
        else:
            replica.submit(request)

    def _cause_without_rank(self, job: _Job, uid: str) -> Cause:
        """Return the cause of the failure of a request to a pod without a running rank."""
        pods = self._cluster.api.pods_of(job.name)
        node = next((pod.node for pod in pods if pod.uid == uid), None)
        lost = node is not None and not self.program.node_reachable(node)
        return Cause.UNREACHABLE if lost else Cause.REFUSED

    def _end(self, job: _Job, request: Request, outcome: Outcome, cause: Cause) -> None:
        job.log.record(outcome, cause, request.at, self._kernel.now - request.at)
        for listener in self.request_ended:
            listener(job.name, outcome, cause)

    def _by_name(self, name: str) -> _Job | None:
        """Return the job that has this name now, or had it last."""
        return next((one for one in reversed(self._jobs.values()) if one.name == name), None)

    def log(self, job: str) -> RequestLog:
        """Return the outcomes of a job's requests, by name of the job."""
        found = self._by_name(job)
        return found.log if found else RequestLog()

    def requests_left(self, job: str) -> int:
        """Return the number of requests that the replicas of a job have now."""
        replicas = {id(one): one for one in self.program.by_pod.values() if one.job == job}
        return sum(one.requests for one in replicas.values())

    # Availability

    def serving(self, job: str) -> int:
        """Return the number of replicas that get requests and serve them, by name of the job."""
        found = 0
        for uid in self.proxies.known(job):
            replica = self.program.by_pod.get(uid)
            found += replica is not None and replica.serves and self.program.reachable(uid)
        return found

    def _pod_changed(self, uid: str) -> None:
        self._probes.changed(uid)
        worker = self._cluster.workers.by_uid.get(uid)
        if worker is not None:
            self._availability_changed(worker.job)

    def _availability_changed(self, job: str) -> None:
        for listener in self.availability_changed:
            listener(job)

    def _listed_changed(self, job: str) -> None:
        latencies = self._cluster.latencies
        self._cluster.operator.add(job, latencies.watch + latencies.debounce)

    def _held(self, uid: str) -> None:
        """Report at once that an activator begins to hold requests."""
        worker, held = self._cluster.workers.by_uid.get(uid), self.program.by_pod.get(uid)
        if worker is not None and held is not None:
            latencies = self._cluster.latencies
            self._record(uid, held)
            self._cluster.operator.add(worker.job, latencies.watch + latencies.debounce)

    def _pod_at(self, job: str, ip: str) -> str:
        return next((pod.uid for pod in self._cluster.api.pods_of(job) if pod.ip == ip), "")

    # Figures

    def figures(self, uids: Iterable[str]) -> traffic.Figures | None:
        """Return the figures of several pods, such as the length of their queues, as their agents reported
        them last.
        """
        series = [self._series[uid] for uid in uids if uid in self._series]
        return traffic.figures(series, self._kernel.now)

    def loads(self, uids: Iterable[str]) -> dict[str, Load]:
        """Return the load of each of these pods that its agent has reported lately, by uid."""
        found = {uid: load(self._series.get(uid, ()), self._kernel.now) for uid in uids}
        return {uid: one for uid, one in found.items() if one is not None}

    def _report_totals(self, job_uid: str) -> None:
        """Report the totals of a job's replicas, and again after REPORT_SECONDS."""
        name = self._jobs[job_uid].name
        for uid, one in self.program.by_pod.items():
            if one.job == name and one.head == uid and one.loaded and self.program.reachable(uid):
                self._record(uid, one)
        live = self._cluster.workers.by_uid
        self._series = {uid: series for uid, series in self._series.items() if uid in live}
        stored = self._cluster.api.jobs.get(name)
        if stored is not None and stored.job.metadata.uid == job_uid:
            if self.progressing(stored.job):
                self._cluster.operator.add(name, self._cluster.latencies.progress_write)
            self._kernel.after(REPORT_SECONDS, lambda: self._report_totals(job_uid))

    def _record(self, uid: str, one: Replica) -> None:
        totals = one.totals.report(one.incarnation, len(one.waiting), len(one.running))
        self._series[uid] = traffic.record(self._series.get(uid, ()), totals, self._kernel.now)


def engine_names(job: ServingJob) -> list[str]:
    """Return the names of the Engines that a job needs."""
    named = {role.engine.name for role in job.spec.roles if role.engine is not None}
    return sorted(named | {ENGINE_ACTIVATOR} if job.spec.scales_to_zero else named)


def _checkpoint(job: ServingJob) -> CheckpointSource | None:
    """Return the checkpoint that a job serves; None if it serves none."""
    return job.spec.model.checkpoint if job.spec.model else None


def _stored_step(job: TrainingJob) -> int:
    """Return the step of the newest generation in the store of a job; 0 if there is none."""
    point = job.status.checkpoint
    mark = point.watermarks.remote if point else None
    return mark.step if mark else 0
