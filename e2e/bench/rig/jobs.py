"""Makes jobs of a given number and size, as TrainingJobs, ServingJobs and JobSets."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_crds.meta import API_VERSION
from e2e.bench.rig.api import Object

SPACE = "bench"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
TRAINING_JOBS = f"/apis/{API_VERSION}/namespaces/{SPACE}/trainingjobs"
SERVING_JOBS = f"/apis/{API_VERSION}/namespaces/{SPACE}/servingjobs"
JOBS = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
JOBSETS = f"/apis/{JOBSET_API}/namespaces/{SPACE}/jobsets"
ENGINE = "gpt"
SERVING_ENGINE = "lm"


@dataclass(frozen=True)
class Shape:
    """A number of jobs, and the number of workers in each of them."""

    jobs: int
    workers: int

    def __str__(self) -> str:
        return f"{self.jobs}x{self.workers}"

    @property
    def pods(self) -> int:
        """Number of pods of all jobs."""
        return self.jobs * self.workers

    @property
    def names(self) -> list[str]:
        """Names of the jobs."""
        return [f"job-{self}-{index}" for index in range(self.jobs)]


ONE_LARGE, HUNDRED, THOUSAND_SMALL = Shape(1, 1000), Shape(100, 10), Shape(1000, 1)
THOUSAND_SERVERS = Shape(1000, 3)
"""Number of ServingJobs, and replicas in each."""


def training_job(name: str, workers: int, *, checkpoints: bool = False) -> Object:
    """Return a TrainingJob with an engine of the catalogue. With `checkpoints`, it saves in the nodes'
    memory.
    """
    kept = {"checkpoint": {"interval": "10s", "tiers": {"local": {}, "peer": {"copies": 1}}}}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "engine": {"name": ENGINE, "params": {"steps": 10_000_000}},
            "roles": [{"name": "worker", "replicas": workers}],
            **(kept if checkpoints else {}),
        },
    }


def serving_job(name: str, replicas: int) -> Object:
    """Return a ServingJob with an engine of the catalogue. Each replica is one pod."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ServingJob",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "replicas": replicas,
            "roles": [{"name": "server", "engine": {"name": SERVING_ENGINE}}],
        },
    }


def job_set(name: str, workers: int) -> Object:
    """Return a JobSet that corresponds to a TrainingJob: one Job with `workers` indexed pods."""
    container = {"name": "worker", "image": "convoy/workloads:bench", "command": ["train"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "parallelism": workers,
        "completions": workers,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}]},
    }
