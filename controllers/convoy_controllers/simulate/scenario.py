"""The scenario file of `convoy simulate`: a cluster, its jobs, and events.

All names are checked at the start. The target of an event must exist and fit the event's action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.latencies import Latencies, Seconds
from convoy_controllers.simulate.program import Program
from convoy_crds.layout import slots, world_size
from convoy_crds.meta import DnsLabel, Model
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_checkpoint import CheckpointDefault

MAX_SECONDS = 30 * 86_400.0
"""Maximum virtual seconds of a scenario."""


class MachineSpec(Model):
    """A node of the scenario."""

    name: DnsLabel
    capacity: Annotated[int, Field(ge=1, le=1024)] = 1
    """Maximum number of pods of jobs that the node has at the same time."""


class ScenarioJob(Model):
    """A job of the scenario."""

    job: TrainingJob
    """Manifest of the TrainingJob, as for `kubectl apply`. Its Engine need not exist."""
    program: Program = Field(default_factory=Program)
    """Program that the job's ranks run."""
    at: Seconds = 0.0
    """Seconds from the start of the scenario until the job is created."""


Action = Literal[
    "killRank",
    "endRank",
    "hangRank",
    "deletePod",
    "outOfMemory",
    "killNode",
    "returnNode",
    "cutNode",
    "cutFromControlPlane",
    "healNode",
    "cordonNode",
    "uncordonNode",
    "drainNode",
    "deleteNode",
    "crashAgent",
    "upgradeAgent",
    "startAgent",
    "crashOperator",
    "stopApiServer",
    "startApiServer",
    "suspend",
    "resume",
]


@dataclass(frozen=True, slots=True)
class _ActionSpec:
    """Function of an action, and the fields of an event that the action needs."""

    do: Callable[[Faults, ScenarioEvent], None]
    needs: frozenset[str]


class ScenarioEvent(Model):
    """A fault or a user action at a given time."""

    at: Seconds
    """Seconds from the start of the scenario."""
    do: Action
    node: DnsLabel | None = None
    """Target of actions on a node or its agent."""
    job: DnsLabel | None = None
    """Target of actions on a job or its ranks."""
    rank: Annotated[int, Field(ge=0)] | None = None
    pod: DnsLabel | None = None
    """Target of actions on a pod."""
    code: Annotated[int, Field(ge=0, le=255)] = 1
    """Exit code of the rank, for `endRank`."""

    @model_validator(mode="after")
    def _has_the_fields_of_its_action(self) -> Self:
        needs = ACTIONS[self.do].needs
        given = {name for name in ("node", "job", "rank", "pod") if getattr(self, name) is not None}
        if given != needs:
            if not needs:
                raise ValueError(f"{self.do} takes no node, job, rank or pod")
            raise ValueError(f"{self.do} needs {' and '.join(sorted(needs))} and no other target")
        return self

    def inject(self, faults: Faults) -> None:
        """Inject this event into a cluster."""
        ACTIONS[self.do].do(faults, self)


def _action(do: Callable[[Faults, Any], None], *needs: str) -> _ActionSpec:
    return _ActionSpec(do, frozenset(needs))


ACTIONS: Mapping[str, _ActionSpec] = {
    "killRank": _action(lambda f, e: f.kill_rank(e.job, e.rank), "job", "rank"),
    "endRank": _action(lambda f, e: f.end_rank(e.job, e.rank, e.code), "job", "rank"),
    "hangRank": _action(lambda f, e: f.hang_rank(e.job, e.rank), "job", "rank"),
    "deletePod": _action(lambda f, e: f.delete_pod(e.pod), "pod"),
    "outOfMemory": _action(lambda f, e: f.kill_container(e.pod), "pod"),
    "killNode": _action(lambda f, e: f.kill_node(e.node), "node"),
    "returnNode": _action(lambda f, e: f.return_node(e.node), "node"),
    "cutNode": _action(lambda f, e: f.cut_node(e.node), "node"),
    "cutFromControlPlane": _action(lambda f, e: f.cut_node(e.node, control_only=True), "node"),
    "healNode": _action(lambda f, e: f.heal_node(e.node), "node"),
    "cordonNode": _action(lambda f, e: f.cordon_node(e.node), "node"),
    "uncordonNode": _action(lambda f, e: f.uncordon_node(e.node), "node"),
    "drainNode": _action(lambda f, e: f.drain_node(e.node), "node"),
    "deleteNode": _action(lambda f, e: f.delete_node(e.node), "node"),
    "crashAgent": _action(lambda f, e: f.stop_agent(e.node), "node"),
    "upgradeAgent": _action(lambda f, e: f.stop_agent(e.node, farewell=True), "node"),
    "startAgent": _action(lambda f, e: f.start_agent(e.node), "node"),
    "crashOperator": _action(lambda f, e: f.crash_operator()),
    "stopApiServer": _action(lambda f, e: f.stop_api()),
    "startApiServer": _action(lambda f, e: f.start_api()),
    "suspend": _action(lambda f, e: f.edit(e.job, suspend=True), "job"),
    "resume": _action(lambda f, e: f.edit(e.job, suspend=False), "job"),
}


class Scenario(Model):
    """The content of a scenario file."""

    seed: int = 0
    """Seed of all random values."""
    nodes: Annotated[list[MachineSpec], Field(min_length=1, max_length=2048)]
    jobs: Annotated[list[ScenarioJob], Field(min_length=1, max_length=2048)]
    events: list[ScenarioEvent] = Field(default_factory=list)
    checkpoints: CheckpointDefault = CheckpointDefault.MEMORY
    """Tiers of jobs without `spec.checkpoint.tiers`: the chart's value `checkpoints.default`."""
    latencies: Latencies = Field(default_factory=Latencies)
    until: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = 3600.0
    """Virtual seconds after which the scenario ends. It ends earlier if all jobs have ended."""

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        nodes = _unique("nodes", [node.name for node in self.nodes])
        jobs = _unique("jobs", [run.job.metadata.name for run in self.jobs])
        pods = {slot.pod for run in self.jobs for slot in slots(run.job)}
        world_sizes = {run.job.metadata.name: world_size(slots(run.job)) for run in self.jobs}
        for number, event in enumerate(self.events):
            where = f"events[{number}]"
            if event.node is not None and event.node not in nodes:
                raise ValueError(f"{where}.node: node {event.node!r} is not in nodes")
            if event.job is not None and event.job not in jobs:
                raise ValueError(f"{where}.job: job {event.job!r} is not in jobs")
            if event.pod is not None and event.pod not in pods:
                raise ValueError(f"{where}.pod: no job has a pod {event.pod!r}")
            if event.rank is not None and event.rank >= world_sizes[event.job or ""]:
                raise ValueError(
                    f"{where}.rank: {event.job} has only ranks 0 to {world_sizes[event.job or ''] - 1}"
                )
        return self


def _unique(where: str, names: list[str]) -> set[str]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{where}: {twice!r} is listed twice")
    return set(names)
