"""A soak: random faults hit running jobs for half an hour. At the end, the jobs must leave no object in the
API and no trace on a node.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import yaml
from kubernetes import client
from urllib3.exceptions import HTTPError

from convoy_crds.meta import GROUP, VERSION
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.kit.usage import Usage, UsageSampler
from e2e.bench.survival.surroundings import everything_on
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.drive.cluster_state import leader, restore
from e2e.drive.faults import kill_processes
from e2e.drive.job_specs import SMALL, memory
from e2e.drive.jobs import PLURAL, Jobs, restricted_namespace
from e2e.drive.perturbations import PodTarget, inject
from e2e.drive.pod_traces import traces
from e2e.drive.s3_server import STORE, checkpoint_store, s3_server
from e2e.drive.torchrun_job import EXAMPLES
from e2e.install import bring_up

NAME = "soak"
COMMAND = "make soak"
NODES = 3
JOBS_AT_ONCE = 3
"""Maximum number of unfinished jobs. Two cores cannot run more."""
END_SECONDS = 300.0
"""Maximum seconds from the last fault until every job has ended."""
_REST_SECONDS, _SAMPLES_AT_REST = 120.0, 6
"""Seconds for which processes are measured without jobs, and minimum number of samples of each process."""
RECOVERY = {"maxRestarts": 1000, "maxIdenticalErrors": 0, "windowSeconds": 60, "hangSeconds": 60}


@dataclass(frozen=True)
class JobKind:
    """A kind of job: its spec and its expected end."""

    spec: dict[str, Any]
    expected_end: tuple[str, str]
    """Expected phase and reason of the job. Two empty strings if the soak deletes the running job."""


def _gpt(steps: int, **role: Any) -> dict[str, Any]:
    return {
        "engine": {"name": "gpt", "params": {**SMALL, "steps": steps}},
        "roles": [{"name": "worker", "replicas": 2, **role}],
        "checkpoint": memory("3s", remote={"store": STORE, "every": "10s"}),
        "recovery": RECOVERY,
    }


def _script() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / "torchrun.yaml").read_text())["spec"]
    pod = spec["roles"][0]["template"]["spec"]
    pod["containers"][0]["env"].append({"name": "STEPS", "value": "1500"})
    pod["volumes"][0]["configMap"]["name"] = NAME
    return {"engine": None, "recovery": RECOVERY, **spec}


def _crash() -> dict[str, Any]:
    container = {"image": "convoy/torch:dev", "command": ["python", "-c", "raise SystemExit('broken')"]}
    role = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {"engine": None, "roles": [role], "recovery": {"maxRestarts": 2}}


KINDS = {
    "trains": JobKind(_gpt(200), ("Succeeded", "Completed")),
    "elastic": JobKind(_gpt(150, replicas=3, minReplicas=2), ("Succeeded", "Completed")),
    "script": JobKind(_script(), ("Succeeded", "Completed")),
    "crashes": JobKind(_crash(), ("Failed", "MaxRestartsExceeded")),
    "suspended": JobKind(_gpt(150), ("Succeeded", "Completed")),
    "deleted": JobKind(_gpt(1_000_000), ("", "")),
}


@dataclass
class SoakJob:
    """One job of the soak."""

    name: str
    kind: str
    uid: str
    created_at: float
    deleted: bool = False
    finished: bool = False
    """True if the job has ended and neither the job nor its pods exist any longer."""
    ended_as_expected: bool = False
    """True if the job ended with the phase and the reason of its kind."""
    suspended: bool = False


@dataclass
class Soak:
    """The jobs and faults of a soak."""

    cluster: Cluster
    jobs: Jobs
    rng: random.Random
    progress: Progress
    soak_jobs: list[SoakJob] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    pods: set[str] = field(default_factory=set)
    """Uids of all pods that the jobs ever had."""

    def check_jobs(self, create: bool) -> None:
        """Check every unfinished job. With `create`, also create jobs until there are JOBS_AT_ONCE
        unfinished ones.
        """
        try:
            for job in self.soak_jobs:
                if not job.finished:
                    self._check(job)
            self._create_jobs(create)
        except (client.ApiException, HTTPError) as error:
            self.progress.report(f"the API server does not answer: {type(error).__name__}")

    def _create_jobs(self, create: bool) -> None:
        while create and sum(not job.finished for job in self.soak_jobs) < JOBS_AT_ONCE:
            number = len(self.soak_jobs)
            kind = list(KINDS)[number % len(KINDS)]
            name = f"{kind}-{number}"
            made = self.jobs.create(name, **KINDS[kind].spec)
            self.soak_jobs.append(SoakJob(name, kind, made["metadata"]["uid"], time.monotonic()))

    def _check(self, job: SoakJob) -> None:
        status = self.jobs.status(job.name)
        self.pods |= {pod.metadata.uid for pod in self.jobs.pods(job.name)}
        age = time.monotonic() - job.created_at
        if job.deleted:
            job.finished = self.jobs.get(job.name) is None and not self.jobs.pods(job.name)
        elif job.kind == "deleted" and age > 40:
            job.ended_as_expected = True
            self._delete(job)
        elif job.kind == "suspended" and not job.suspended and status.get("progress"):
            self.jobs.patch(job.name, suspend=True)
            job.suspended = True
        elif job.suspended and status.get("phase") == "Suspended":
            self.jobs.patch(job.name, suspend=False)
        elif status.get("phase") in ("Succeeded", "Failed"):
            job.ended_as_expected = (status["phase"], status["reason"]) == KINDS[job.kind].expected_end
            if not job.ended_as_expected:
                self.progress.report(
                    f"{job.name} did not end as expected: {status['reason']}: {status['message']}"
                )
            self._delete(job)

    def _delete(self, job: SoakJob) -> None:
        self.jobs.custom.delete_namespaced_custom_object(
            GROUP, VERSION, self.jobs.namespace, PLURAL, job.name
        )
        job.deleted = True

    def inject_fault(self, spare_processes: bool) -> None:
        """Inject a random fault.

        With `spare_processes`, exclude the faults that restart processes, because the processes' memory is
        sampled.
        """
        # An API outage restarts processes too, because a leader that cannot renew its Lease exits.
        faults = ["rank", "pod", "node", "cut", "drain"] + (
            [] if spare_processes else ["agent", "operator", "api"]
        )
        fault = self.rng.choice(faults)
        self.progress.report(f"fault: {fault}; {sum(not job.finished for job in self.soak_jobs)} jobs run")
        try:
            getattr(self, f"_{fault}")()
        except (AssertionError, ClusterError, client.ApiException, HTTPError) as error:
            # The pod, node or process that the fault needs has disappeared in the meantime.
            self.progress.report(f"fault {fault} was not injected: {str(error)[:200]}")
            return
        finally:
            restore(self.cluster)
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def _random_pod(self) -> Any:
        running = [pod for job in self.soak_jobs if not job.finished for pod in self.jobs.pods(job.name)]
        scheduled = [pod for pod in running if pod.spec.node_name and pod.status.phase == "Running"]
        if not scheduled:
            raise AssertionError("no pod of these jobs is Running")
        return self.rng.choice(scheduled)

    def _rank(self) -> None:
        pod = self._random_pod()
        index = int(pod.metadata.labels["convoy.dev/index"])
        self._perturb(PerturbationKind.KILL_RANK, PodTarget.of(self.cluster, pod, index))

    def _pod(self) -> None:
        pod, delete = self._random_pod(), self.jobs.core.delete_namespaced_pod
        own = partial(delete, pod.metadata.name, self.jobs.namespace)
        self._perturb(PerturbationKind.KILL_POD, replace(PodTarget.of(self.cluster, pod), delete=own))

    @staticmethod
    def _perturb(kind: PerturbationKind, target: PodTarget) -> None:
        """Kill something once."""
        with inject(kind, 1, target):
            pass

    def _agent(self) -> None:
        kill_processes(self.rng.choice(self.cluster.nodes), "convoy-agent")

    def _operator(self) -> None:
        kill_processes(self.cluster.node(leader(self.cluster)[1]), "convoy-operator")

    def _node(self) -> None:
        node = self.rng.choice(self._nodes_without_leader())
        self._perturb(PerturbationKind.NODE_LOSS, PodTarget(self.cluster, node.name, ""))
        self._wait(25)

    def _cut(self) -> None:
        self.rng.choice(self._nodes_without_leader()).cut()
        self._wait(35)

    def _nodes_without_leader(self) -> list[Any]:
        """Return all nodes except the leader's. Another fault, `operator`, already hits the leader."""
        leads = leader(self.cluster)[1]
        return [node for node in self.cluster.nodes if node.name != leads]

    def _api(self) -> None:
        self.cluster.components.stop("kube-apiserver")
        time.sleep(10)  # Length of the outage. `inject_fault` restores the cluster afterwards.

    def _drain(self) -> None:
        node = self._random_pod().spec.node_name
        arguments = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s"]
        try:
            self.cluster.kubectl("drain", node, *arguments, "--pod-selector=convoy.dev/job", deadline=70)
        finally:
            self.cluster.kubectl("uncordon", node)

    def _wait(self, seconds: float) -> None:
        """Keep checking the jobs for `seconds`, while the fault lasts."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check_jobs(create=True)
            time.sleep(1)


def bench(minutes: float, seed: int, found: Figures) -> None:
    """Create a cluster, inject faults for `minutes`, record the figures, and remove the cluster."""
    progress = Progress()
    cluster = bring_up(NAME, NODES, progress)
    try:
        jobs = Jobs.of(cluster, restricted_namespace(cluster, NAME))
        with (
            s3_server(cluster) as server,
            checkpoint_store(cluster, server),
            everything_on(cluster, jobs.namespace),
            _script_file(jobs),
        ):
            soak = Soak(cluster, jobs, random.Random(seed), progress)
            with UsageSampler(cluster) as at_rest:
                time.sleep(_REST_SECONDS)
            with UsageSampler(cluster) as loaded:
                _inject_faults(soak, minutes * 60)
                unfinished = _wait_for_ends(soak)
            _record(soak, at_rest.usage, loaded.usage, unfinished, found)
    finally:
        cluster.down()


@contextmanager
def _script_file(jobs: Jobs) -> Iterator[None]:
    body = {"metadata": {"name": NAME}, "data": {"ddp.py": (EXAMPLES / "ddp.py").read_text()}}
    jobs.core.create_namespaced_config_map(jobs.namespace, body)
    yield


def _inject_faults(soak: Soak, seconds: float) -> None:
    """Create jobs and inject faults for `seconds`.

    Processes are killed only in the first third of the time, because their memory is sampled in the rest.
    """
    began = time.monotonic()
    due = began + 20
    while (now := time.monotonic()) < began + seconds:
        soak.check_jobs(create=True)
        if now >= due:
            soak.inject_fault(spare_processes=now > began + seconds / 3)
            due = time.monotonic() + soak.rng.uniform(5, 25)
        time.sleep(1)


def _wait_for_ends(soak: Soak) -> list[str]:
    """Wait until the jobs end, without further faults. Return the names of jobs that still run after
    `END_SECONDS`.
    """
    restore(soak.cluster)
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until and not all(job.finished for job in soak.soak_jobs):
        soak.check_jobs(create=False)
        time.sleep(1)
    return [job.name for job in soak.soak_jobs if not job.finished]


def _leftovers(soak: Soak) -> list[str]:
    """Delete all jobs. Return a line for each of their API objects, and each trace on a node, that still
    exists.
    """
    soak.jobs.delete_all()
    objects = soak.cluster.get("-n", soak.jobs.namespace, "pods,trainingjobs")["items"]
    uids = soak.pods | {job.uid for job in soak.soak_jobs}
    until = time.monotonic() + 90
    while any((found := traces(soak.cluster, uids)).values()) and time.monotonic() < until:
        time.sleep(2)
    names = [f"{one['kind']} {one['metadata']['name']}" for one in objects]
    return names + [line for lines in found.values() for line in lines]


def _record(soak: Soak, at_rest: Usage, loaded: Usage, unfinished: list[str], found: Figures) -> None:
    unexpected = [job.name for job in soak.soak_jobs if job.finished and not job.ended_as_expected]
    leftovers = _leftovers(soak)
    for name in (*unfinished, *unexpected, *leftovers):
        soak.progress.report(f"unexpected job or leftover: {name}")
    found.add(Metric("jobs that came and went", "jobs"), len(soak.soak_jobs))
    found.add(Metric("pods that were made for them", "pods"), len(soak.pods))
    for fault, count in sorted(soak.faults.items()):
        found.add(Metric(f"faults: {fault}", "faults"), count)
    found.add(
        Metric("jobs that did not end as their spec says", "jobs", 0), len(unfinished) + len(unexpected)
    )
    found.add(Metric("objects, mounts, cgroups, processes left", "traces", 0), len(leftovers))
    for name, summary in at_rest.summaries(_SAMPLES_AT_REST).items():
        found.add(Metric(f"{name} at rest: memory", "MiB"), summary.mib)
        found.add(Metric(f"{name} at rest: processors", "cores"), summary.cores)
    for name, summary in loaded.summaries().items():
        found.add(Metric(f"{name}: resident memory, last third, the largest", "MiB", 300), summary.mib)
        words = f"{name}: growth of memory, last third of its samples over the first, the most"
        found.add(Metric(words, "ratio", 1.1), summary.growth)
        found.add(Metric(f"{name}: processors, the most", "cores"), summary.cores)
