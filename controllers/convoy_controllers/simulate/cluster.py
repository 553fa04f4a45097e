"""A simulated cluster: API server, scheduler, machines, kubelets, agents, ranks, and the operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from convoy_controllers.resources import Resource
from convoy_controllers.simulate.api import Api
from convoy_controllers.simulate.cluster_events import ClusterEvent, Notify
from convoy_controllers.simulate.fences import Fences
from convoy_controllers.simulate.garbage import GarbageCollector
from convoy_controllers.simulate.hub import Hub
from convoy_controllers.simulate.job_kind import JobSimulation
from convoy_controllers.simulate.job_kinds import JOB_KINDS
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.kubelets import Kubelets
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.machines import Machine, Machines, node_of
from convoy_controllers.simulate.operator_model import OperatorModel
from convoy_controllers.simulate.scheduler import Scheduler
from convoy_controllers.simulate.training import GangTraining, Job
from convoy_controllers.simulate.workers import RankProgram, Workers
from convoy_controllers.workers.faults import PREEMPTED
from convoy_crds.engine import Engine
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_checkpoint import CheckpointDefaults


class Cluster:
    """A simulated cluster. It is deterministic: the same seed and the same calls give the same history."""

    def __init__(
        self,
        machines: Iterable[Machine],
        *,
        latencies: Latencies | None = None,
        engines: Iterable[Engine] = (),
        defaults: CheckpointDefaults | None = None,
        seed: int = 0,
        served: Iterable[Resource] = (),
    ) -> None:
        """`defaults`: the chart's settings for jobs without tiers. Without them such jobs save nothing.
        `served`: the optional resources that the API server serves. With a PodGroup of Kubernetes among them,
        the scheduler starts gangs only as a whole.
        """
        self.served = frozenset(served)
        self.defaults = defaults or CheckpointDefaults()
        self.latencies = latencies or Latencies()
        self.kernel = Kernel(seed)
        self.listeners: list[Notify] = []
        self.engines = {engine.metadata.name: engine for engine in engines}
        self.training_jobs: dict[str, Job] = {}
        self.api = Api(self.kernel)
        self.machines = Machines(self.kernel, machines)
        self.workers = Workers(self.kernel, self.latencies, self.notify)
        self.training = GangTraining(
            self.kernel, self.workers, self.training_jobs, self.machines.reaches, self.notify
        )
        self._simulation_of: dict[str, JobSimulation] = {}
        """Simulation to which each job belongs, by job uid."""
        self.workers.program = self._program
        for machine in self.machines.by_name.values():
            self.api.put_node(node_of(machine))
        self.garbage = GarbageCollector(self.kernel, self.api)
        self.scheduler = Scheduler(self.kernel, self.latencies, self.api)
        self.simulations = {kind.name: kind.simulate(self) for kind in JOB_KINDS}
        self.kubelets = Kubelets(
            self.kernel, self.latencies, self.api, self.machines, self.workers, self._term_code
        )
        self.hub = Hub(self.kernel, self.latencies, self.api, self.machines, self.workers, self.kubelets)
        self.fences = Fences(self.kernel, self.machines, self.workers)
        self.operator = OperatorModel(
            self.kernel, self.latencies, self.api, self.hub, self.simulations, self.notify
        )
        self.machines.changed.append(self.training.machine_changed)

    def notify(self, event: ClusterEvent) -> None:
        """Notify all listeners of an event."""
        for listener in self.listeners:
            listener(event)

    def submit(self, job: Any, program: Any = None) -> None:
        """Create a job as a user does. `program` is what the job's ranks run; None for none."""
        simulation = self.simulations[job.kind]
        stored = self.api.create_job(job)
        self._simulation_of[stored.metadata.uid] = simulation
        simulation.add(stored, program)

    def run(self, seconds: float) -> None:
        """Advance the virtual time by `seconds`."""
        self.kernel.run(self.kernel.now + seconds)

    def job(self, name: str) -> TrainingJob:
        """Return a TrainingJob as it is stored. Raises KeyError if the job is deleted."""
        job = self.api.jobs[name].job
        if not isinstance(job, TrainingJob):
            raise KeyError(f"{name} is not a TrainingJob")
        return job

    def _program(self, job_uid: str) -> RankProgram:
        """Return the program of a job. Tests may send commands for a job that was never created."""
        known = self._simulation_of.get(job_uid)
        return known.program if known else self.training

    def _term_code(self, job_uid: str) -> int:
        known = self._simulation_of.get(job_uid)
        return known.term_code(job_uid) if known else PREEMPTED
