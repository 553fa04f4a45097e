"""A hub with a training job, whose ranks report their steps as agents do."""

from __future__ import annotations

from typing import Any

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.keys import Key
from convoy_controllers.testing.builders import make_job
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.hub.straggler_detectors import StragglerDetectors
from convoy_operator.metrics import Metrics

FORMED = {"internal": {"incarnation": {"membership": "m"}}}
"""Status of a job whose incarnation has formed."""
KEY = Key(TRAINING_JOB.name, "default", "job")
RANKS = 6


class Queue:
    """The keys that the hub queues."""

    def __init__(self) -> None:
        self.added: list[Key] = []

    def add(self, key: Key, delay: float) -> None:
        self.added.append(key)


class Hub:
    """A hub and a job with one pod on each of its nodes."""

    def __init__(self, replicas: int = RANKS) -> None:
        self.cache, self.queue = ClusterCache(), Queue()
        self.replicas = replicas
        queue: Any = self.queue
        self.now, self.metrics = 0.0, Metrics()
        self.detectors = StragglerDetectors(self.cache, queue, self.metrics, clock=self.time, cpu=self.time)
        for number in range(replicas):
            self.cache.nodes.upsert(views.node({"metadata": {"name": f"n{number}", "uid": f"n{number}"}}))
            self.cache.pods.upsert(views.pod(self.pod(number)))
        self.form(1)

    def time(self) -> float:
        return self.now

    def beside(self, name: str) -> None:
        """Add another job with one pod on the first node."""
        self.cache.pods.upsert(views.pod(self.pod(0, name, f"{name}-p")))
        self.form(1, name, replicas=1)

    def pod(self, number: int, job: str = "job", uid: str = "p") -> dict[str, Any]:
        return {
            "metadata": {
                "name": f"{job}-worker-{number}",
                "namespace": "default",
                "uid": f"{uid}{number}",
                "labels": {"convoy.dev/job": job},
                "ownerReferences": [{"controller": True, "uid": f"uid-{job}"}],
            },
            "spec": {"nodeName": f"n{number}"},
            "status": {"phase": "Running"},
        }

    def form(self, incarnation: int, name: str = "job", replicas: int = 0, **status: Any) -> None:
        role = {"name": "worker", "replicas": replicas or self.replicas}
        raw = make_job(name, roles=[role]).to_dict()
        raw["status"] = {"incarnation": incarnation, "phase": "Running", **FORMED, **status}
        raw["metadata"]["resourceVersion"] = str(100 + incarnation)
        self.cache.jobs.upsert(views.cached_object(raw))

    def report(
        self,
        step: int,
        slow: dict[int, float] | None = None,
        late: dict[int, float] | None = None,
        incarnation: int = 1,
        pod: str = "p",
        measured: bool = True,
        transfer: float = 0.0,
        members: str = "",
    ) -> None:
        self.now += 1
        for number in range(self.replicas):
            compute = 1.0 + 0.003 * ((step * 7 + number * 5) % 4) + (slow or {}).get(number, 0.0)
            compute *= measured
            data = (late or {}).get(number, 0.0)
            window = wire.StepWindow(
                rank=number, first=step, last=step, wall=2.0, compute=compute, data=data,
                wait=2.0 - compute - data,
            )  # fmt: skip
            if members:
                held = transfer + 0.3 * (number > 0)
                window.collectives.add(kind="dp", members=members, bytes=100, count=1, seconds=held)
            telemetry = wire.PodTelemetry(pod_uid=f"{pod}{number}", incarnation=incarnation, windows=[window])
            self.detectors.record(f"n{number}", telemetry)
