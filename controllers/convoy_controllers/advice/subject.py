"""The job that rules judge: its roles and containers with the paths of their fields, and what is known of its
run and its surroundings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from convoy_controllers.advice.json_values import numbered
from convoy_crds import servingjob, trainingjob
from convoy_crds.engine import Engine
from convoy_crds.podtemplate import PodTemplate
from convoy_crds.servingjob import ServingJob
from convoy_crds.terms import LABEL_EXPERIMENT
from convoy_crds.trainingjob import EngineRef, TrainingJob


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a role's pod template."""

    path: str
    body: Mapping[str, Any]
    main: bool = False
    """True for the container of the ranks."""


@dataclass(frozen=True, slots=True)
class Role:
    """A role of a job."""

    path: str
    name: str
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Spec of the pod template; empty without a template."""
    independent: bool = False
    engine: EngineRef | None = None
    """Engine that the role runs; None if the role has its own program."""
    engine_path: str = ""

    @property
    def pod_path(self) -> str:
        """Return the path of the spec of the pod template."""
        return f"{self.path}.template.spec"

    @property
    def main(self) -> Container:
        """Return the container of the ranks; an empty one if the template has no containers."""
        return next(self.containers(), Container(f"{self.pod_path}.containers[0]", {}, main=True))

    def containers(self, init: bool = False) -> Iterator[Container]:
        """Yield the containers of the template, or its init containers."""
        name = "initContainers" if init else "containers"
        for number, body in numbered(self.pod.get(name)):
            yield Container(f"{self.pod_path}.{name}[{number}]", body, not init and number == 0)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts about other objects. They are empty where nothing is known."""

    engines: Mapping[str, Engine] = field(default_factory=dict)
    similar: tuple[str, ...] = ()
    """Names of the other jobs that differ from this one only in values, and started at the same time."""
    claim_zones: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Zones of the volume of each PersistentVolumeClaim, by name of the claim."""
    followed: Subject | None = None
    """The TrainingJob whose checkpoints this ServingJob follows."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A job, or the job of an Experiment's arm."""

    kind: str
    name: str
    roles: tuple[Role, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    training: TrainingJob | None = None
    """The job, if it is a TrainingJob with a status of its own; None for an arm."""
    deadline: int | None = None
    """`spec.activeDeadlineSeconds`."""
    repeated: bool = False
    """True for an arm or a run of an Experiment, which chooses the seeds and repeats the job."""
    follows: str = ""
    """Name of the TrainingJob whose newest checkpoint a ServingJob loads again and again."""
    around: Surroundings = field(default_factory=Surroundings)

    def schema(self, role: Role) -> Mapping[str, Any] | None:
        """Return the properties of the parameters of the role's Engine; None if they are not known."""
        engine = self.around.engines.get(role.engine.name) if role.engine else None
        found = engine.spec.params_schema.get("properties") if engine else None
        return found if isinstance(found, Mapping) else None


def of_training(job: TrainingJob, around: Surroundings) -> Subject:
    """Return the subject for a TrainingJob."""
    roles = tuple(
        Role(
            path=f"spec.roles[{number}]",
            name=role.name,
            pod=_pod(role.template),
            independent=role.independent,
            engine=None if _commanded(role.template) else job.spec.engine,
            engine_path="spec.engine",
        )
        for number, role in enumerate(job.spec.roles)
    )
    return Subject(
        trainingjob.KIND.name,
        job.metadata.name,
        roles,
        job.metadata.labels,
        job.metadata.annotations,
        training=job,
        deadline=job.spec.active_deadline_seconds,
        repeated=LABEL_EXPERIMENT in job.metadata.labels,
        around=around,
    )


def of_serving(job: ServingJob, around: Surroundings) -> Subject:
    """Return the subject for a ServingJob."""
    roles = tuple(
        Role(
            path=f"spec.roles[{number}]",
            name=role.name,
            pod=_pod(role.template),
            engine=None if _commanded(role.template) else role.engine,
            engine_path=f"spec.roles[{number}].engine",
        )
        for number, role in enumerate(job.spec.roles)
    )
    source = job.spec.model.checkpoint if job.spec.model else None
    return Subject(
        servingjob.KIND.name,
        job.metadata.name,
        roles,
        job.metadata.labels,
        job.metadata.annotations,
        follows=(source.job or "") if source is not None and source.follow else "",
        around=around,
    )


def of_arm(subject: Subject, path: str) -> Subject:
    """Return the subject for an Experiment's arm. `path` is the path of the arm's template."""
    roles = tuple(
        replace(role, path=f"{path}.{role.path}", engine_path=f"{path}.{role.engine_path}")
        for role in subject.roles
    )
    return replace(subject, roles=roles, training=None, repeated=True)


def _pod(template: PodTemplate | None) -> Mapping[str, Any]:
    return template.spec.to_dict() if template is not None else {}


def _commanded(template: PodTemplate | None) -> bool:
    """Return True if the template replaces the Engine's program."""
    containers = _pod(template).get("containers") or [{}]
    return bool(containers[0].get("command"))
