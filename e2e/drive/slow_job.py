"""A job that trains until a test lets it end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import memory, on_separate_nodes
from e2e.drive.jobs import Jobs

_PROGRAM = Path(__file__).parent / "programs" / "slow.py"


@dataclass(frozen=True)
class SlowJob:
    """A running job of the program slow.py."""

    cluster: Cluster
    jobs: Jobs
    name: str

    @property
    def uids(self) -> list[str]:
        """The uids of the job's pods."""
        return [pod.metadata.uid for pod in self.jobs.pods(self.name)]

    def remove_pauses(self) -> None:
        """Remove the pauses between steps, so that all ranks train to the end quickly."""
        for pod in self.jobs.pods(self.name):
            own = ("-n", self.jobs.namespace, pod.metadata.name)
            self.cluster.kubectl("exec", *own, "--", "touch", "/control/no-pauses")


@contextmanager
def slow_job(cluster: Cluster, jobs: Jobs, name: str) -> Iterator[SlowJob]:
    """Create a job of two ranks on two nodes. Yield it when it has a checkpoint with copies in memory."""
    body = {"metadata": {"name": name}, "data": {"slow.py": _PROGRAM.read_text()}}
    jobs.core.create_namespaced_config_map(jobs.namespace, body)
    try:
        role = {"name": "worker", "replicas": 2, "template": _template(name)}
        jobs.create(name, engine=None, roles=[role], checkpoint=memory())
        jobs.wait(
            lambda: jobs.status(name).get("checkpoint", {}).get("tier") == "peer",
            180,
            "a checkpoint with copies",
        )
        yield SlowJob(cluster, jobs, name)
    finally:
        if jobs.get(name):
            jobs.delete(name)
        jobs.core.delete_namespaced_config_map(name, jobs.namespace)


def _template(name: str) -> dict[str, Any]:
    container = {
        "name": "worker",
        "image": "convoy/torch:dev",
        "command": ["torchrun", "--nproc-per-node=1", "slow.py"],
        "workingDir": "/scripts",
        "volumeMounts": [
            {"name": "scripts", "mountPath": "/scripts", "readOnly": True},
            {"name": "control", "mountPath": "/control"},
        ],
    }
    volumes = [{"name": "scripts", "configMap": {"name": name}}, {"name": "control", "emptyDir": {}}]
    return {"spec": {**on_separate_nodes(name)["spec"], "containers": [container], "volumes": volumes}}
