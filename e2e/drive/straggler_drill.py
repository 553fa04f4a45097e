"""Runs jobs with each rank on its own node and injects causes of slowness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convoy_crds.perturbations import PerturbationKind
from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node
from e2e.drive.faults import slow_disk
from e2e.drive.job_specs import memory, on_separate_nodes
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import PodTarget, inject

RANKS, SLOW = 5, 3
"""Number of ranks, and the rank that becomes slow, unless a test chooses other numbers."""
CORES = 0.15
"""Number of processors for each rank. Ranks and nodes together must need fewer processors than the machine
has. Otherwise a slow rank would leave processor time to the other ranks and make them faster.
"""
SETTLED_STEP = 250
"""Step after which the detector knows the job's usual step times. The job makes about four steps a second."""
_PROGRAMS = Path(__file__).parent / "programs"
_VOLUMES = "/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/drill"


def straggler(jobs: Jobs, name: str) -> dict[str, Any]:
    """Return the job's condition StragglerDetected; empty if there is none."""
    found = (c for c in jobs.status(name).get("conditions", []) if c["type"] == "StragglerDetected")
    return next(found, {})


def limit_cpu(cluster: Cluster, pod: Any, cores: float) -> None:
    """Limit a pod to this many processors."""
    cluster.node(pod.spec.node_name).throttle(pod.metadata.uid, cores)


def wait_and_limit_cpu(cluster: Cluster, jobs: Jobs, name: str, cores: float = CORES) -> list[Any]:
    """Wait until a job runs and limit each of its pods to `cores`. Return the pods."""
    jobs.wait_phase(name, "Running", 120)
    pods = jobs.pods(name)
    for pod in pods:
        limit_cpu(cluster, pod, cores)
    return pods


def pods_without_straggler(cluster: Cluster, jobs: Jobs, name: str) -> list[Any]:
    """Limit each pod of a job to CORES and wait until no rank is a straggler. Return the pods."""
    pods = wait_and_limit_cpu(cluster, jobs, name)
    wait_no_straggler(jobs, name)
    return pods


def wait_no_straggler(jobs: Jobs, name: str) -> None:
    """Wait until the detector has compared the ranks of a job and found no straggler. Among fewer than four
    ranks it can only find suspects.
    """
    jobs.wait(
        lambda: straggler(jobs, name).get("reason") in ("NoStraggler", "SlowTogether", "TooFewPeers"),
        120,
        "ranks are compared",
    )


@dataclass(frozen=True)
class Program:
    """A program, and the pods that run it."""

    file: str = "drill.py"
    replicas: int = RANKS
    processes: int = 1
    """Number of ranks in each pod."""
    slow: int = SLOW
    """Number of the pod whose rank or node gets the fault."""
    cores: float = CORES
    """Number of processors for each pod."""
    environment: Mapping[str, str] = field(default_factory=dict)


DRILL = Program()


@dataclass(frozen=True)
class Drill:
    """A running job of a program."""

    cluster: Cluster
    jobs: Jobs
    name: str
    pods: list[Any]
    program: Program = DRILL

    @property
    def node(self) -> Node:
        """Node of the pod that gets the fault."""
        return self.cluster.node(self.pods[self.program.slow].spec.node_name)

    def inject(self, kind: str, size: float) -> AbstractContextManager[object]:
        """Inject a fault into pod `program.slow` while the block runs.

        `kind` is a PerturbationKind, or one of these, with the unit of `size`: `loader` (seconds per batch),
        `garbage` (objects), `disk` (bytes per second), `slow` (`size` is ignored).
        """
        pod = self.pods[self.program.slow]
        if isinstance(kind, PerturbationKind):
            target = PodTarget.of(self.cluster, pod, self.program.slow * self.program.processes)
            return inject(kind, size, target)
        if kind == "disk":
            return slow_disk(self.cluster, self.node, pod.metadata.uid, int(size))
        return self._file(kind, size)

    def start(self) -> None:
        """Let all ranks begin to train."""
        for rank in range(len(self.pods)):
            self._write(rank, "start", 1)

    def _uid(self, rank: int) -> str:
        uid: str = self.pods[rank].metadata.uid
        return uid

    def _write(self, rank: int, name: str, size: float) -> None:
        folder = _VOLUMES.format(uid=self._uid(rank))
        write = 'echo "$2" > "$0/.$1" && mv "$0/.$1" "$0/$1"'
        self.cluster.node(self.pods[rank].spec.node_name).run(["sh", "-c", write, folder, name, f"{size:g}"])

    @contextmanager
    def _file(self, name: str, size: float) -> Iterator[None]:
        self._write(self.program.slow, name, size)
        try:
            yield
        finally:
            self.node.run(["rm", "-f", f"{_VOLUMES.format(uid=self._uid(self.program.slow))}/{name}"])

    def reported(self, cause: str, culprits: list[int]) -> list[dict[str, Any]]:
        """Return the entries of the job's status with this cause and these ranks.

        Asserts that no persistent entry names other ranks. An entry without ranks is allowed: the test
        limits the processors of all ranks, which may slow all of them.
        """
        found = self.jobs.status(self.name).get("stragglers", [])
        assert [
            one for one in found if one["persistent"] and one.get("ranks", []) not in ([], culprits)
        ] == []
        return [one for one in found if (one["cause"], one.get("ranks")) == (cause, culprits)]

    def is_persistent(self, cause: str, culprits: list[int]) -> bool:
        """Return True if the job's status has a persistent entry with this cause and these ranks."""
        return any(one["persistent"] for one in self.reported(cause, culprits))


def _template(name: str, program: Program) -> dict[str, Any]:
    mounts = [
        {"name": "scripts", "mountPath": "/scripts", "readOnly": True},
        {"name": "drill", "mountPath": "/drill"},
    ]
    container = {
        "name": "worker",
        "image": "convoy/torch:dev",
        "command": ["torchrun", f"--nproc-per-node={program.processes}", program.file],
        "workingDir": "/scripts",
        "env": [{"name": key, "value": value} for key, value in program.environment.items()],
        "volumeMounts": mounts,
    }
    volumes = [{"name": "scripts", "configMap": {"name": name}}, {"name": "drill", "emptyDir": {}}]
    return {"spec": {**on_separate_nodes(name)["spec"], "containers": [container], "volumes": volumes}}


@contextmanager
def drill_job(cluster: Cluster, jobs: Jobs, name: str, program: Program = DRILL) -> Iterator[Drill]:
    """Run a job of the program. Yield it when the detector has found no straggler among its ranks.

    With an environment, yield it as soon as it runs: the environment may make a rank slow.
    """
    body = {"metadata": {"name": name}, "data": {program.file: (_PROGRAMS / program.file).read_text()}}
    with ExitStack() as stack:
        jobs.core.create_namespaced_config_map(jobs.namespace, body)
        stack.callback(jobs.core.delete_namespaced_config_map, name, jobs.namespace)
        role = {"name": "worker", "replicas": program.replicas, "processesPerReplica": program.processes}
        roles = [{**role, "template": _template(name, program)}]
        jobs.create(name, engine=None, roles=roles, checkpoint=memory("10s"))
        stack.callback(lambda: jobs.delete(name) if jobs.get(name) else None)
        # Limit the processors before the training starts, because the detector compares ranks with their own
        # past.
        pods = wait_and_limit_cpu(cluster, jobs, name, program.cores)
        drill = Drill(cluster, jobs, name, pods, program)
        drill.start()
        if not program.environment:
            wait_no_straggler(jobs, name)
            # A fault that slows all ranks shows only against the job's usual step times, so wait until they
            # are known.
            jobs.wait(lambda: jobs.status(name)["progress"]["step"] > SETTLED_STEP, 300, "its past is known")
        yield drill
