"""TrainingJobs that come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from convoy_crds.meta import GROUP, VERSION
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.soak.part import Part
from e2e.drive.job_specs import SMALL, memory
from e2e.drive.jobs import PLURAL, Jobs
from e2e.drive.s3_server import STORE
from e2e.drive.torchrun_job import EXAMPLES

JOBS_AT_ONCE = 2
"""Maximum number of unfinished jobs. Two cores cannot run more beside the other parts."""
DELETED_AFTER_SECONDS = 60.0
"""Age at which a job of the kind `deleted` is deleted."""
SCRIPT = "soak-script"
"""Name of the ConfigMap with the program of the kind `script`."""
RECOVERY = {"maxRestarts": 1000, "maxIdenticalErrors": 0, "windowSeconds": 60, "hangSeconds": 120}


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
    pod["volumes"][0]["configMap"]["name"] = SCRIPT
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
    suspended: bool = False


class Training(Part):
    """The TrainingJobs of the soak."""

    def __init__(self, jobs: Jobs, report: Callable[[str], None]) -> None:
        super().__init__(report)
        self.jobs = jobs
        self.soak_jobs: list[SoakJob] = []

    def check(self, create: bool) -> None:
        """Check every unfinished job; with `create`, make up their number."""
        for job in self.soak_jobs:
            if not job.finished:
                self._check(job)
        while create and sum(not job.finished for job in self.soak_jobs) < JOBS_AT_ONCE:
            number = len(self.soak_jobs)
            kind = list(KINDS)[number % len(KINDS)]
            name = f"{kind}-{number}"
            made = self.jobs.create(name, **KINDS[kind].spec)
            self.soak_jobs.append(SoakJob(name, kind, made["metadata"]["uid"], time.monotonic()))

    def _check(self, job: SoakJob) -> None:
        status = self.jobs.status(job.name)
        age = time.monotonic() - job.created_at
        if job.deleted:
            job.finished = self.jobs.get(job.name) is None and not self.jobs.pods(job.name)
        elif job.kind == "deleted" and age > DELETED_AFTER_SECONDS:
            self._delete(job)
        elif job.kind == "suspended" and not job.suspended and status.get("progress"):
            self.jobs.patch(job.name, suspend=True)
            job.suspended = True
        elif job.suspended and status.get("phase") == "Suspended":
            self.jobs.patch(job.name, suspend=False)
        elif status.get("phase") in ("Succeeded", "Failed"):
            if (status["phase"], status["reason"]) != KINDS[job.kind].expected_end:
                self.wrong(f"{job.name} ended with {status['reason']}: {status['message']}")
            self._delete(job)

    def _delete(self, job: SoakJob) -> None:
        self.jobs.custom.delete_namespaced_custom_object(
            GROUP, VERSION, self.jobs.namespace, PLURAL, job.name
        )
        job.deleted = True

    def pods(self) -> list[Any]:
        """Return the running pods of unfinished jobs."""
        running = [pod for job in self.soak_jobs if not job.finished for pod in self.jobs.pods(job.name)]
        return [pod for pod in running if pod.spec.node_name and pod.status.phase == "Running"]

    def at_rest(self) -> bool:
        """Return True if all jobs are finished."""
        return all(job.finished for job in self.soak_jobs)

    def delete(self) -> None:
        """Delete all jobs. Those that have not ended are unexpected."""
        for job in self.soak_jobs:
            if not job.finished:
                self.wrong(f"{job.name} has not ended: {self.jobs.status(job.name).get('message')}")
            if not job.finished and self.jobs.get(job.name) is not None:
                self.jobs.delete(job.name)

    def record(self, found: Figures) -> None:
        """Add the counts of jobs."""
        found.add(Metric("jobs that came and went", "jobs"), len(self.soak_jobs))
        found.add(Metric("jobs that did not end as their spec says", "jobs", 0), len(self.unexpected))


@contextmanager
def script(jobs: Jobs) -> Iterator[None]:
    """Create the ConfigMap with the program of the kind `script`."""
    body = {"metadata": {"name": SCRIPT}, "data": {"ddp.py": (EXAMPLES / "ddp.py").read_text()}}
    jobs.core.create_namespaced_config_map(jobs.namespace, body)
    yield
    jobs.core.delete_namespaced_config_map(SCRIPT, jobs.namespace)
