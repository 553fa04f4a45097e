"""A script whose ranks log the end time of each step, and the job's productive time as computed from these
logs.

Tests compare this productive time with the goodput ledger. The two are independent: here the ranks measure
the steps, and the test itself records when it injected a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import on_separate_nodes
from e2e.drive.jobs import Jobs

SCRIPT = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
log = open(f"/steps/{rank}-{time.time_ns()}", "w", buffering=1)
for step in range(1, int(os.environ["STEPS"]) + 1):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    log.write(f"{step} {time.time()}\\n")
    time.sleep(0.1)
dist.destroy_process_group()
log.write(f"0 {time.time()}\\n")
"""


@contextmanager
def timed_script(jobs: Jobs, name: str, volume: str, steps: int) -> Iterator[dict[str, Any]]:
    """Yield the spec of a job of two workers that run the script. Each process numbers its steps from 1."""
    body = {"metadata": {"name": name}, "data": {"train.py": SCRIPT}}
    jobs.core.create_namespaced_config_map(jobs.namespace, body)
    container = {
        "name": "worker",
        "image": "convoy/torch:dev",
        "command": ["python", "/script/train.py"],
        "env": [{"name": "STEPS", "value": str(steps)}],
        "volumeMounts": [
            {"name": "script", "mountPath": "/script"},
            {"name": "steps", "mountPath": "/steps"},
        ],
    }
    volumes = [
        {"name": "script", "configMap": {"name": name}},
        {"name": "steps", "persistentVolumeClaim": {"claimName": volume}},
    ]
    spec = {**on_separate_nodes(name)["spec"], "containers": [container], "volumes": volumes}
    try:
        yield {"engine": None, "roles": [{"name": "worker", "replicas": 2, "template": {"spec": spec}}]}
    finally:
        jobs.core.delete_namespaced_config_map(name, jobs.namespace)


@dataclass
class Formation:
    """One formation of the process group. Times are Unix seconds. A step ends when its last rank ends it."""

    ends: dict[int, float] = field(default_factory=dict)
    finished_at: float = 0.0
    """Time at which the last rank finished the script; 0 if no rank finished it."""

    @property
    def first_step_end(self) -> float:
        """End of the first step."""
        return self.ends[1]


def formations(cluster: Cluster, volume: str, ranks: int) -> list[Formation]:
    """Return the formations that made a step, oldest first.

    Each rank writes one file per formation, so the nth files of all ranks belong together.
    """
    files: list[list[Path]] = [[] for _ in range(ranks)]
    for path in sorted(
        (cluster.shared_dir / volume).glob("*-*"), key=lambda path: int(path.name.partition("-")[2])
    ):
        if path.stat().st_size:
            files[int(path.name.partition("-")[0])].append(path)
    if len({len(one) for one in files}) != 1:
        raise AssertionError(f"the ranks have different numbers of files: {files}")
    return [_formation(together) for together in zip(*files, strict=True)]


def _formation(files: tuple[Path, ...]) -> Formation:
    found = Formation()
    for path in files:
        for line in path.read_text().splitlines():
            number, at = line.split()
            if int(number):
                found.ends[int(number)] = max(float(at), found.ends.get(int(number), 0.0))
            else:
                found.finished_at = max(float(at), found.finished_at)
    return found


def productive_and_recompute(found: list[Formation]) -> tuple[float, float]:
    """Return the seconds spent on steps that no earlier formation had finished, and the seconds spent on
    repeated steps.

    Each formation counts from the end of its first step to the end of its last step.
    """
    productive = recompute = 0.0
    best = 0
    for formation in found:
        last = max(formation.ends)
        crossing = formation.ends.get(best, formation.first_step_end) if best else formation.first_step_end
        if last <= best:
            crossing = formation.ends[last]
        recompute += crossing - formation.first_step_end
        productive += formation.ends[last] - crossing
        best = max(best, last)
    return productive, recompute
