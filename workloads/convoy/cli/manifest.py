"""Reads manifests and finds what is wrong with them: by the models, their CEL rules, the engines' schemas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cel
import yaml
from pydantic import ValidationError

from convoy.cli.cluster import Failure
from convoy_crds.engine import Engine
from convoy_crds.generate import KINDS, definition
from convoy_crds.meta import API_VERSION
from convoy_crds.params import params_error, schema_error
from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.catalogue import catalogue


@dataclass(frozen=True)
class Manifest:
    """One document of a file."""

    where: str
    body: dict[str, Any]
    job: TrainingJob | None = None
    engine: Engine | None = None
    errors: tuple[str, ...] = ()

    def engine_of(self, manifests: list[Manifest]) -> Engine | None:
        """The Engine that the job names: from the same file, else from the catalogue."""
        if self.job is None or self.job.spec.engine is None:
            return None
        name = self.job.spec.engine.name
        beside = (other.engine for other in manifests if other.engine and other.engine.metadata.name == name)
        return next(beside, None) or catalogue().get(name)


def read(file: Path) -> list[Manifest]:
    """The Convoy objects of a file; objects of other groups are passed over. Failure for what is no YAML."""
    try:
        documents = [body for body in yaml.safe_load_all(file.read_text()) if body is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: {error}") from error
    ours = [body for body in documents if isinstance(body, dict) and body.get("apiVersion") == API_VERSION]
    if not ours:
        raise Failure(f"{file} holds no object of {API_VERSION}")
    return [_parse(body, index) for index, body in enumerate(ours)]


def _parse(body: dict[str, Any], index: int) -> Manifest:
    kind = str(body.get("kind"))
    where = f"{kind} {(body.get('metadata') or {}).get('name') or f'number {index + 1}'}"
    models: dict[str, Any] = {"TrainingJob": TrainingJob, "Engine": Engine}
    if kind not in models:
        return Manifest(where, body, errors=(f"{where}: unknown kind; there are {', '.join(models)}",))
    try:
        parsed = models[kind].model_validate(body)
    except ValidationError as error:
        return Manifest(
            where, body, errors=tuple(f"{where}: {_path(e['loc'])}: {e['msg']}" for e in error.errors())
        )
    if kind == "Engine":
        return Manifest(where, body, engine=parsed)
    return Manifest(where, body, job=parsed)


def _path(location: tuple[Any, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.lstrip(".")


def problems(manifest: Manifest, manifests: list[Manifest]) -> list[str]:
    """All that is wrong with one object, each with its field path."""
    if manifest.errors:
        return list(manifest.errors)
    if manifest.engine is not None:
        why = schema_error(manifest.engine.spec.params_schema)
        return [f"{manifest.where}: spec.paramsSchema: {why}"] if why else []
    job = manifest.job
    assert job is not None  # noqa: S101 - one of three by construction
    found = [f"{manifest.where}: {message}" for message in broken_rules("TrainingJob", job.to_dict())]
    if job.spec.engine is None:
        return found
    engine = manifest.engine_of(manifests)
    if engine is None:
        known = ", ".join(sorted(catalogue()))
        found.append(
            f"{manifest.where}: spec.engine.name: {job.spec.engine.name!r} is not in the catalogue ({known})"
        )
    elif error := params_error(engine.spec.params_schema, job.spec.engine.params):
        found.append(f"{manifest.where}: {error[0]}: {error[1]}")
    return found


def broken_rules(kind: str, body: dict[str, Any]) -> list[str]:
    """The messages of the CEL rules that an object to be created would break."""
    entry = next(entry for entry in KINDS if entry.name == kind)
    schema = definition(entry)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return _broken(schema, body, "")


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
        for index, item in enumerate(value):
            found += _broken(schema["items"], item, f"{path}[{index}]")
    return found
