"""Finds what is wrong with manifests: by the models, their CEL rules, the engines' schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cel
import yaml
from pydantic import ValidationError

from convoy.cli.words import name_error, violation
from convoy_controllers.launching.jobs import misfits
from convoy_controllers.trainingjob.templates import clashes, forbidden_root
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.generate import definition
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.kinds import KINDS
from convoy_crds.meta import API_VERSION, GROUP
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.params import params_error, schema_error
from convoy_crds.suggest import suggestion
from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.catalogue import catalogue

Health = GuardPolicy | NodeHealth | HealthSweep | HardwareClass
MODELS: Mapping[str, type[TrainingJob] | type[Engine] | type[CheckpointStore] | type[Health]] = {
    "TrainingJob": TrainingJob,
    "Engine": Engine,
    "CheckpointStore": CheckpointStore,
    "GuardPolicy": GuardPolicy,
    "NodeHealth": NodeHealth,
    "HealthSweep": HealthSweep,
    "HardwareClass": HardwareClass,
}


class NoYaml(ValueError):
    """The text is no YAML; says where."""


@dataclass(frozen=True)
class Manifest:
    """One document of a file."""

    where: str
    """Its kind and name."""
    body: dict[str, Any]
    job: TrainingJob | None = None
    engine: Engine | None = None
    store: CheckpointStore | None = None
    health: Health | None = None
    errors: tuple[str, ...] = ()

    def engine_of(self, manifests: Iterable[Manifest]) -> Engine | None:
        """The Engine that the job names: from the same files, else from the catalogue."""
        if self.job is None or self.job.spec.engine is None:
            return None
        name = self.job.spec.engine.name
        beside = (other.engine for other in manifests if other.engine and other.engine.metadata.name == name)
        return next(beside, None) or catalogue().get(name)


def documents(text: str) -> list[dict[str, Any]]:
    """The objects in a text; NoYaml when it is none."""
    try:
        return [body for body in yaml.safe_load_all(text) if isinstance(body, dict)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        hint = (
            "; is the line indented like its neighbours?"
            if isinstance(error, yaml.parser.ParserError)
            else ""
        )
        raise NoYaml(f"{place}{error.problem or error.context}{hint}") from error
    except yaml.YAMLError as error:
        raise NoYaml(str(error)) from error
    except RecursionError as error:
        raise NoYaml("objects and lists are nested too deeply to be read") from error


def ours(body: Mapping[str, Any]) -> bool:
    """Whether an object is meant for Convoy, if only by its kind. Those of other groups are not."""
    version = str(body.get("apiVersion", ""))
    return version.partition("/")[0] == GROUP or (not version and body.get("kind") in MODELS)


def parse(body: dict[str, Any], number: int = 1) -> Manifest:
    """One object, the `number`-th of its file, with the errors of its form."""
    kind, metadata = str(body.get("kind")), body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    where = f"{kind} {metadata.get('name') or metadata.get('generateName') or f'number {number}'}"
    if body.get("apiVersion") != API_VERSION:
        given = repr(body["apiVersion"]) if "apiVersion" in body else "missing"
        return Manifest(where, body, errors=(f"apiVersion: must be {API_VERSION!r}, is {given}",))
    if kind not in MODELS:
        return Manifest(where, body, errors=(f"kind: there is no kind {kind!r}{suggestion(kind, MODELS)}",))
    errors = [problem] if (problem := name_error(metadata)) else []
    try:
        # By its JSON form, where a number in quotes is text: so the API server reads it.
        text = json.dumps(_without_nulls(body, schema_of(kind)), default=str)
        parsed = MODELS[kind].model_validate_json(text, strict=True)
    except ValidationError as error:
        found = [violation(one, schema_of(kind)) for one in error.errors()]
        return Manifest(where, body, errors=(*errors, *found))
    job = parsed if isinstance(parsed, TrainingJob) else None
    engine = parsed if isinstance(parsed, Engine) else None
    store = parsed if isinstance(parsed, CheckpointStore) else None
    health = parsed if isinstance(parsed, Health) else None
    return Manifest(where, body, job, engine, store, health, tuple(errors))


def _without_nulls(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value without the fields that are null, which the API server takes for fields left out.

    Nulls inside what the schema leaves open stay: to engines they may mean something.
    """
    if isinstance(value, list):
        return [_without_nulls(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    inside = schema.get("additionalProperties", {})
    return {
        str(key): _without_nulls(item, fields.get(key, inside))
        for key, item in value.items()
        if item is not None or key not in fields
    }


@cache
def schema_of(kind: str) -> dict[str, Any]:
    """The schema in the kind's CustomResourceDefinition."""
    entry = next(entry for entry in KINDS if entry.name == kind)
    found: dict[str, Any] = definition(entry)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def problems(manifest: Manifest, manifests: Sequence[Manifest]) -> list[str]:
    """All that is wrong with one object, each with its field's path."""
    return [f"{manifest.where}: {problem}" for problem in _problems(manifest, manifests)]


def _problems(manifest: Manifest, manifests: Sequence[Manifest]) -> list[str]:
    found = list(manifest.errors)
    if manifest.engine is not None:
        why = schema_error(manifest.engine.spec.params_schema)
        return [*found, f"spec.paramsSchema: {why}"] if why else found
    if manifest.store is not None:
        return [*found, *broken_rules("CheckpointStore", manifest.store.to_dict())]
    if manifest.health is not None:
        return [*found, *broken_rules(manifest.health.kind, manifest.health.to_dict())]
    job = manifest.job
    if job is None:
        return found
    found += broken_rules("TrainingJob", job.to_dict())
    found += map(str, clashes(job))
    found += map(str, forbidden_root(job))
    found += map(str, misfits(job, manifest.engine_of(manifests)))
    if job.spec.engine is None:
        return found
    engine, name = manifest.engine_of(manifests), job.spec.engine.name
    if engine is None:
        here = [one.engine.metadata.name for one in manifests if one.engine]
        known = suggestion(name, {*catalogue(), *here})
        found.append(f"spec.engine.name: no Engine {name!r} is in the catalogue or given here{known}")
    elif error := params_error(engine.spec.params_schema, job.spec.engine.params):
        found.append(f"{error[0]}: {error[1]}")
    return found


def broken_rules(kind: str, body: dict[str, Any]) -> list[str]:
    """What the API server's CEL rules and list keys have against an object to be created."""
    return _broken(schema_of(kind), body, "")


def _broken(schema: dict[str, Any], value: Any, path: str) -> list[str]:
    found: list[str] = []
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"]:
            continue
        if not cel.evaluate(rule["rule"], {"self": value}):
            where = f"{path}{rule.get('fieldPath', '')}".lstrip(".")
            found.append(f"{where}: {rule['message']}" if where else rule["message"])
    if isinstance(value, dict):
        for name, child in schema.get("properties", {}).items():
            if name in value:
                found += _broken(child, value[name], f"{path}.{name}")
    elif isinstance(value, list) and "items" in schema:
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            found += _doubles([item.get(key) for item in value], f"{path.lstrip('.')}[*].{key}")
        for index, item in enumerate(value):
            found += _broken(schema["items"], item, f"{path}[{index}]")
    return found


def _doubles(keys: list[Any], where: str) -> list[str]:
    return [
        f"{where}: {key!r} is there more than once" for key in sorted({k for k in keys if keys.count(k) > 1})
    ]
