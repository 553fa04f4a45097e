"""Finds errors in manifests. It checks the models, the CEL rules of the schemas, and the parameters of
engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from convoy.cli.field_errors import name_error, violation
from convoy.cli.kubernetes_yaml import load_all
from convoy.cli.rules import broken_rules, schema_of, without_nulls
from convoy_controllers.experiment import arms
from convoy_controllers.experiment.spec_problems import spec_problems
from convoy_controllers.launching.jobs import misfits
from convoy_controllers.servingjob.templates import findings
from convoy_controllers.trainingjob.templates import clashes, forbidden_root
from convoy_crds.engine import Engine
from convoy_crds.experiment import Experiment, ExperimentSpec
from convoy_crds.experiment_arm import Arm
from convoy_crds.field_paths import InvalidFieldPath
from convoy_crds.kind import Kind
from convoy_crds.kinds import KINDS, by_name
from convoy_crds.meta import API_VERSION, GROUP, Model
from convoy_crds.params import params_error, schema_error
from convoy_crds.servingjob import ServingJob
from convoy_crds.suggest import suggestion
from convoy_crds.trainingjob import EngineRef, TrainingJob
from convoy_workloads.engines.catalogue import catalogue
from convoy_workloads.engines.params_check import model_error
from convoy_workloads.simulators import plan_check


class InvalidYaml(ValueError):
    """Raised if a text is not valid YAML. The message names the line and column."""


@dataclass(frozen=True)
class Manifest:
    """One object of a manifest file."""

    where: str
    """Kind and name of the object, for messages."""
    body: dict[str, Any]
    kind: Kind[Any] | None = None
    """Convoy's kind of the object; None if Convoy has no such kind."""
    model: Model | None = None
    """The parsed object; None if a field is invalid."""
    errors: tuple[str, ...] = ()

    @property
    def job(self) -> TrainingJob | None:
        """Return the parsed object if it is a TrainingJob; None for any other object."""
        return self.model if isinstance(self.model, TrainingJob) else None

    @property
    def serving(self) -> ServingJob | None:
        """Return the parsed object if it is a ServingJob; None for any other object."""
        return self.model if isinstance(self.model, ServingJob) else None

    @property
    def engine(self) -> Engine | None:
        """Return the parsed object if it is an Engine; None for any other object."""
        return self.model if isinstance(self.model, Engine) else None

    def engine_of(self, manifests: Iterable[Manifest]) -> Engine | None:
        """Return the Engine that this job names: the one in `manifests` or, if there is none, the one that
        comes with Convoy. Return None if neither exists, or if the object is not a job that names an
        Engine.
        """
        if self.job is None or self.job.spec.engine is None:
            return None
        return engines(manifests).get(self.job.spec.engine.name)


def engines(manifests: Iterable[Manifest]) -> dict[str, Engine]:
    """Return all Engines by name: those that come with Convoy, and those in `manifests`, which come first."""
    return catalogue() | {one.engine.metadata.name: one.engine for one in manifests if one.engine}


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects in a YAML text. Raises InvalidYaml if the text is not YAML."""
    try:
        return [body for body in load_all(text) if isinstance(body, dict)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        hint = (
            "; is the line indented like its neighbours?"
            if isinstance(error, yaml.parser.ParserError)
            else ""
        )
        raise InvalidYaml(f"{place}{error.problem or error.context}{hint}") from error
    except yaml.YAMLError as error:
        raise InvalidYaml(str(error)) from error
    except RecursionError as error:
        raise InvalidYaml("objects and lists are nested too deeply to parse") from error


def is_convoy_object(body: Mapping[str, Any], kinds: Sequence[Kind[Any]] = KINDS) -> bool:
    """Return True if the object has Convoy's API group, or if it has one of Convoy's kinds and no
    apiVersion.
    """
    version = str(body.get("apiVersion", ""))
    return version.partition("/")[0] == GROUP or (not version and body.get("kind") in by_name(kinds))


def parse(body: dict[str, Any], number: int = 1, kinds: Sequence[Kind[Any]] = KINDS) -> Manifest:
    """Parse the `number`-th object of a file. Return it with the errors of its fields."""
    name, metadata = str(body.get("kind")), body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    where = f"{name} {metadata.get('name') or metadata.get('generateName') or f'number {number}'}"
    if body.get("apiVersion") != API_VERSION:
        given = repr(body["apiVersion"]) if "apiVersion" in body else "missing"
        return Manifest(where, body, errors=(f"apiVersion: must be {API_VERSION!r}, is {given}",))
    known = by_name(kinds)
    kind = known.get(name)
    if kind is None:
        return Manifest(where, body, errors=(f"kind: there is no kind {name!r}{suggestion(name, known)}",))
    errors = [problem] if (problem := name_error(metadata)) else []
    schema = schema_of(kind)
    try:
        # Validate the JSON, as the API server does. In JSON a quoted number is text, so it is no valid
        # number.
        text = json.dumps(without_nulls(body, schema), default=str)
        model = kind.model.model_validate_json(text, strict=True)
    except ValidationError as error:
        found = [violation(one, schema) for one in error.errors()]
        return Manifest(where, body, kind, errors=tuple(dict.fromkeys([*errors, *found])))
    return Manifest(where, body, kind, model, tuple(errors))


def problems(manifest: Manifest, manifests: Sequence[Manifest]) -> list[str]:
    """Return the messages about all errors of one object. Each message has the field path."""
    found = list(manifest.errors)
    if manifest.kind is not None and manifest.model is not None:
        found += broken_rules(manifest.kind, manifest.model.to_dict())
    if manifest.engine is not None:
        found += _engine_problems(manifest.engine)
    if manifest.job is not None:
        found += _job_problems(manifest.job, manifest, manifests)
    if manifest.serving is not None:
        found += _serving_problems(manifest.serving, manifests)
    if isinstance(manifest.model, Experiment):
        found += _experiment_problems(manifest.model.spec, manifests)
    return [f"{manifest.where}: {problem}" for problem in found]


def _experiment_problems(spec: ExperimentSpec, manifests: Sequence[Manifest]) -> list[str]:
    found = plan_check.problems(spec)
    named = {problem.partition(":")[0] for problem in found}
    found += [f"{path}: {why}" for path, why in spec_problems(spec) if path not in named]
    for number, arm in enumerate(spec.arms):
        if arm.template is not None and arm.tuning is None:
            found += [f"spec.arms[{number}].template.{one}" for one in _arm_problems(spec, arm, manifests)]
    return found


def _arm_problems(spec: ExperimentSpec, arm: Arm, manifests: Sequence[Manifest]) -> list[str]:
    """Return the errors of an arm's job. A sweep's job has the first values of its parameters."""
    swept = [(one.path, one.values[0]) for one in (spec.sweep.parameters if spec.sweep is not None else ())]
    try:
        settings = arms.settings(arm, swept)
    except InvalidFieldPath:
        return []  # The operator names a path that does not fit.
    job = parse({"apiVersion": API_VERSION, "kind": arm.type, "metadata": {"name": "arm"}, "spec": settings})
    return [problem.removeprefix(f"{job.where}: ") for problem in problems(job, manifests)]


def _engine_problems(engine: Engine) -> list[str]:
    why = schema_error(engine.spec.params_schema)
    return [f"spec.paramsSchema: {why}"] if why else []


def _job_problems(job: TrainingJob, manifest: Manifest, manifests: Sequence[Manifest]) -> list[str]:
    found = [*map(str, clashes(job)), *map(str, forbidden_root(job))]
    found += map(str, misfits(job, manifest.engine_of(manifests)))
    if job.spec.engine is not None:
        found += _engine_ref_problems(job.spec.engine, "Training", "spec.engine", manifests)
    return found


def _serving_problems(job: ServingJob, manifests: Sequence[Manifest]) -> list[str]:
    found = [*map(str, findings(job))]
    for number, role in enumerate(job.spec.roles):
        if role.engine is not None:
            where = f"spec.roles[{number}].engine"
            found += _engine_ref_problems(role.engine, "Serving", where, manifests)
    return found


def _engine_ref_problems(
    ref: EngineRef, role_kind: str, where: str, manifests: Sequence[Manifest]
) -> list[str]:
    """Return the errors of a job's reference to an Engine at the field path `where`."""
    known = engines(manifests)
    engine = known.get(ref.name)
    if engine is None:
        hint = suggestion(ref.name, known)
        return [f"{where}.name: neither the catalogue nor these files have an Engine {ref.name!r}{hint}"]
    if engine.spec.role_kind != role_kind:
        return [
            f"{where}.name: Engine {ref.name!r} has roleKind {engine.spec.role_kind}, and this kind of job "
            f"needs {role_kind}"
        ]
    if error := params_error(engine.spec.params_schema, ref.params):
        return [f"{error[0].replace('spec.engine', where)}: {error[1]}"]
    if engine is catalogue().get(ref.name) and (why := model_error(ref.name, ref.params)):
        return [f"{where}.params: {why}"]
    return []
