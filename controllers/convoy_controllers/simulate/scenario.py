"""A scenario: a cluster, its jobs, and what happens to them when. What `convoy simulate` reads.

Everything is checked at the door: what an event names must be there, and be what the event is about.
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

LONGEST_SECONDS = 30 * 86_400.0
"""Of a scenario's virtual time."""


class MachineSpec(Model):
    """One node."""

    name: DnsLabel
    capacity: Annotated[int, Field(ge=1, le=1024)] = 1
    """Pods of jobs that fit."""


class ScenarioJob(Model):
    """A job of the scenario."""

    job: TrainingJob
    """A manifest as `kubectl apply` takes it. The Engine that it names need not be there."""
    program: Program = Field(default_factory=Program)
    """What its ranks do."""
    at: Seconds = 0.0
    """When it is created."""


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
    """How an action is done, and which of an event's fields it is about."""

    do: Callable[[Faults, ScenarioEvent], None]
    needs: frozenset[str]


class ScenarioEvent(Model):
    """Something that is done to the cluster."""

    at: Seconds
    """When, in seconds from the beginning."""
    do: Action
    node: DnsLabel | None = None
    """Of an action on a node or its agent."""
    job: DnsLabel | None = None
    """Of an action on a job or its ranks."""
    rank: Annotated[int, Field(ge=0)] | None = None
    pod: DnsLabel | None = None
    """Of an action on a pod."""
    code: Annotated[int, Field(ge=0, le=255)] = 1
    """With which `endRank` ends it."""

    @model_validator(mode="after")
    def _has_the_fields_of_its_action(self) -> Self:
        needs = ACTIONS[self.do].needs
        given = {name for name in ("node", "job", "rank", "pod") if getattr(self, name) is not None}
        if given != needs:
            wanted = " and ".join(sorted(needs)) or "neither node, job, rank nor pod"
            raise ValueError(f"{self.do} takes {wanted}")
        return self

    def inject(self, faults: Faults) -> None:
        """Does it."""
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
    """The whole file."""

    seed: int = 0
    """Of everything that chance decides."""
    nodes: Annotated[list[MachineSpec], Field(min_length=1, max_length=2048)]
    jobs: Annotated[list[ScenarioJob], Field(min_length=1, max_length=2048)]
    events: list[ScenarioEvent] = Field(default_factory=list)
    latencies: Latencies = Field(default_factory=Latencies)
    until: Annotated[float, Field(gt=0, le=LONGEST_SECONDS)] = 3600.0
    """Virtual seconds after which it ends, unless all jobs have ended before."""

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        nodes = _unique("nodes", [node.name for node in self.nodes])
        jobs = _unique("jobs", [run.job.metadata.name for run in self.jobs])
        pods = {slot.pod for run in self.jobs for slot in slots(run.job)}
        worlds = {run.job.metadata.name: world_size(slots(run.job)) for run in self.jobs}
        for number, event in enumerate(self.events):
            where = f"events[{number}]"
            if event.node is not None and event.node not in nodes:
                raise ValueError(f"{where}.node: there is no node {event.node!r}")
            if event.job is not None and event.job not in jobs:
                raise ValueError(f"{where}.job: there is no job {event.job!r}")
            if event.pod is not None and event.pod not in pods:
                raise ValueError(f"{where}.pod: no job has a pod {event.pod!r}")
            if event.rank is not None and event.rank >= worlds[event.job or ""]:
                raise ValueError(f"{where}.rank: {event.job} has ranks 0 to {worlds[event.job or ''] - 1}")
        return self


def _unique(where: str, names: list[str]) -> set[str]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{where}: {twice!r} is there twice")
    return set(names)
