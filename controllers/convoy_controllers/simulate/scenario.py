"""The scenario file of `convoy simulate`: a cluster, its jobs, and events.

All names are checked at the start. The target of an event must exist and fit the event's action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, ValidationError, ValidationInfo, model_validator

from convoy_controllers.merge_patch import merged
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.job_kinds import DEFAULT_KIND, JOB_KINDS, kind_of
from convoy_controllers.simulate.latencies import Latencies, Seconds
from convoy_controllers.simulate.serving.program import Traffic
from convoy_controllers.simulate.workers import SIGKILL
from convoy_crds.meta import API_VERSION, DnsLabel, Model
from convoy_crds.trainingjob_checkpoint import CheckpointDefault

MAX_SECONDS = 30 * 86_400.0
"""Maximum virtual seconds of a scenario."""
MAX_REQUESTS = 2_000_000
"""Maximum number of requests of a scenario, on average."""


class MachineSpec(Model):
    """A node of the scenario."""

    name: DnsLabel
    capacity: Annotated[int, Field(ge=1, le=1024)] = 1
    """Maximum number of pods of jobs that the node has at the same time."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the node, such as its rack. If no node has labels, selectors of pods are ignored."""


def _parse_job(value: Any) -> Any:
    """Return the job in a manifest. Without a kind, it is a TrainingJob. Raises ValueError for other kinds
    than those that can be simulated.
    """
    if not isinstance(value, Mapping):
        raise ValueError("must be the manifest of a job")
    name = value.get("kind", DEFAULT_KIND.name)
    kind = next((one for one in JOB_KINDS if one.name == name), None)
    if kind is None:
        raise ValueError(f"kind: must be one of {', '.join(one.name for one in JOB_KINDS)}, is {name!r}")
    return kind.model.model_validate({"apiVersion": API_VERSION, "kind": name, **value})


def _parse_program(value: Any, info: ValidationInfo) -> Any:
    """Return the program in the form of the job's kind."""
    job = info.data.get("job")
    return kind_of(job).program.model_validate(value or {}) if job is not None else value


class ScenarioJob(Model):
    """A job of the scenario."""

    job: Annotated[Any, PlainValidator(_parse_job)]
    """Manifest of a TrainingJob or ServingJob, as for `kubectl apply`. Its Engine need not exist."""
    program: Annotated[Any, PlainValidator(_parse_program), Field(validate_default=True)] = None
    """Program that the job's ranks run. Its fields depend on the kind of the job."""
    at: Seconds = 0.0
    """Seconds from the start of the scenario until the job is created."""


Action = Literal[
    "killRank",
    "endRank",
    "hangRank",
    "slowRank",
    "deletePod",
    "outOfMemory",
    "killNode",
    "returnNode",
    "slowNode",
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
    "stopEndpoints",
    "startEndpoints",
    "suspend",
    "resume",
    "edit",
]


@dataclass(frozen=True, slots=True)
class _ActionSpec:
    """Function of an action, and the sets of fields that say what the action is for. An event must have the
    fields of one set.
    """

    do: Callable[[Faults, ScenarioEvent], None]
    targets: tuple[frozenset[str], ...]


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
    """Rank of a TrainingJob. The ranks of a ServingJob are named by their pods."""
    pod: DnsLabel | None = None
    """Target of actions on a pod, or on its rank."""
    spec: dict[str, Any] | None = None
    """JSON merge patch of the job's spec, for `edit`. A list in the patch replaces the whole list."""
    code: Annotated[int, Field(ge=0, le=255)] = 1
    """Exit code of the rank, for `endRank`."""
    factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    """Factor of the time of a step, for `slowRank` and `slowNode`."""
    seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)] | None = None
    """Length of `slowRank` and `slowNode`. If absent, they last until the scenario ends."""

    @model_validator(mode="after")
    def _has_the_fields_of_its_action(self) -> Self:
        targets = ACTIONS[self.do].targets
        given = {name for name in _TARGETS if getattr(self, name) is not None}
        if given not in targets:
            if targets == (frozenset(),):
                raise ValueError(f"{self.do} takes no {', '.join(_TARGETS[:-1])} or {_TARGETS[-1]}")
            needed = ", or ".join(" and ".join(sorted(one)) for one in targets)
            raise ValueError(f"{self.do} needs {needed} and no other target")
        return self

    def inject(self, faults: Faults) -> None:
        """Inject this event into a cluster."""
        ACTIONS[self.do].do(faults, self)


_TARGETS = ("node", "job", "rank", "pod", "spec")
"""Fields of an event that say what its action is for."""


def _action(do: Callable[[Faults, Any], None], *needs: str) -> _ActionSpec:
    return _ActionSpec(do, (frozenset(needs),))


def _rank_action(of_job: Callable[[Faults, Any], None], of_pod: Callable[[Faults, Any], None]) -> _ActionSpec:
    """Return an action on a rank, which a job and a number or a pod may name."""

    def do(faults: Faults, event: ScenarioEvent) -> None:
        (of_pod if event.pod is not None else of_job)(faults, event)

    return _ActionSpec(do, (frozenset({"job", "rank"}), frozenset({"pod"})))


ACTIONS: Mapping[str, _ActionSpec] = {
    "killRank": _rank_action(
        lambda f, e: f.kill_rank(e.job, e.rank), lambda f, e: f.end_pod_rank(e.pod, signal=SIGKILL)
    ),
    "endRank": _rank_action(
        lambda f, e: f.end_rank(e.job, e.rank, e.code), lambda f, e: f.end_pod_rank(e.pod, e.code)
    ),
    "hangRank": _rank_action(lambda f, e: f.hang_rank(e.job, e.rank), lambda f, e: f.hang_pod_rank(e.pod)),
    "slowRank": _action(lambda f, e: f.slow_rank(e.job, e.rank, e.factor, e.seconds), "job", "rank"),
    "deletePod": _action(lambda f, e: f.delete_pod(e.pod), "pod"),
    "outOfMemory": _action(lambda f, e: f.kill_container(e.pod), "pod"),
    "killNode": _action(lambda f, e: f.kill_node(e.node), "node"),
    "returnNode": _action(lambda f, e: f.return_node(e.node), "node"),
    "slowNode": _action(lambda f, e: f.slow_node(e.node, e.factor, e.seconds), "node"),
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
    "stopEndpoints": _action(lambda f, e: f.stop_endpoints()),
    "startEndpoints": _action(lambda f, e: f.start_endpoints()),
    "suspend": _action(lambda f, e: f.edit(e.job, suspend=True), "job"),
    "resume": _action(lambda f, e: f.edit(e.job, suspend=False), "job"),
    "edit": _action(lambda f, e: f.patch(e.job, e.spec), "job", "spec"),
}


class Scenario(Model):
    """The content of a scenario file."""

    seed: int = 0
    """Seed of all random values."""
    nodes: Annotated[list[MachineSpec], Field(min_length=1, max_length=2048)]
    jobs: Annotated[list[ScenarioJob], Field(min_length=1, max_length=2048)]
    events: list[ScenarioEvent] = Field(default_factory=list)
    traffic: Annotated[list[Traffic], Field(max_length=2048)] = Field(default_factory=list)
    """Requests that clients send to ServingJobs."""
    checkpoints: CheckpointDefault = CheckpointDefault.MEMORY
    """Tiers of jobs without `spec.checkpoint.tiers`: the chart's value `checkpoints.default`."""
    latencies: Latencies = Field(default_factory=Latencies)
    until: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = 3600.0
    """Virtual seconds after which the scenario ends. It ends earlier if all jobs have ended. ServingJobs do
    not end.
    """

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        nodes = _unique("nodes", [node.name for node in self.nodes])
        _unique("jobs", [run.job.metadata.name for run in self.jobs])
        jobs = {run.job.metadata.name: run.job for run in self.jobs}
        for number, event in enumerate(self.events):
            where = f"events[{number}]"
            if event.node is not None and event.node not in nodes:
                raise ValueError(f"{where}.node: node {event.node!r} is not in nodes")
            if event.job is not None and event.job not in jobs:
                raise ValueError(f"{where}.job: job {event.job!r} is not in jobs")
            if event.pod is not None and not any(
                kind_of(job).has_pod(job, event.pod) for job in jobs.values()
            ):
                raise ValueError(f"{where}.pod: no job has a pod {event.pod!r}")
            if event.rank is not None and event.job is not None:
                _check_rank(f"{where}.rank", jobs[event.job], event.rank)
        for _ in self.edited_jobs():
            pass
        _check_traffic(jobs, self.traffic, self.until)
        return self

    def edited_jobs(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of each edit in `events`, in the order of their times, and the job after it.

        Raises ValueError if an edit makes a job invalid.
        """
        jobs = {run.job.metadata.name: run.job for run in self.jobs}
        for number, event in sorted(enumerate(self.events), key=lambda one: one[1].at):
            if event.spec is None or event.job is None:
                continue
            job = jobs[event.job]
            body = job.to_dict()
            try:
                jobs[event.job] = type(job).model_validate({**body, "spec": merged(body["spec"], event.spec)})
            except ValidationError as error:
                first = error.errors()[0]
                path = ".".join(map(str, first["loc"]))
                raise ValueError(f"events[{number}].{path}: {first['msg']}") from error
            yield number, jobs[event.job]


def _unique(where: str, names: list[str]) -> set[str]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{where}: {twice!r} is listed twice")
    return set(names)


def _check_rank(where: str, job: Any, rank: int) -> None:
    ranks, name = kind_of(job).ranks(job), job.metadata.name
    if not ranks:
        raise ValueError(f"{where}: each replica of {name} has ranks of its own; name a pod instead")
    if rank >= ranks:
        raise ValueError(f"{where}: {name} has only ranks 0 to {ranks - 1}")


def _check_traffic(jobs: Mapping[str, Any], traffic: list[Traffic], until: float) -> None:
    total = 0.0
    for number, one in enumerate(traffic):
        where, job = f"traffic[{number}]", jobs.get(one.job)
        if job is None:
            raise ValueError(f"{where}.job: job {one.job!r} is not in jobs")
        if not kind_of(job).serves:
            raise ValueError(f"{where}.job: {one.job} is a {job.kind}, which receives no requests")
        last = min(until if one.to is None else one.to, until)
        if last <= one.since:
            raise ValueError(f"{where}.to: must be after from ({one.since:g} s) and until is {until:g} s")
        total += one.rate * (last - one.since)
    if total > MAX_REQUESTS:
        raise ValueError(
            f"traffic: has about {total:.0f} requests, more than {MAX_REQUESTS}; lower rate, to or until"
        )
