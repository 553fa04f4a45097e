"""The re-computation of a finished Experiment from its files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from convoy_crds.experiment_hash import HASH_PREFIX, digest
from convoy_crds.experiment_status import PlanEngine
from convoy_workloads.experiments.artefact import PLAN_STATEMENT, RESULT_STATEMENT, result_files
from convoy_workloads.experiments.compare import Difference, compare_json, compare_report
from convoy_workloads.experiments.statement import CONVOY, DATA_FILE, PLAN_FILE, RESULT_FILE

LARGEST_WHOLE = 2**53 - 1
"""Largest whole number with a canonical form of its own. RFC 8785 writes larger floats like whole numbers."""
UNKNOWN = "unknown"
_PLAN_FIELDS: Mapping[str, type] = {"name": str, "spec": dict, "engines": list}
_DATA_FIELDS: Mapping[str, type] = {"blocks": list, "tuning": list, "deviations": list}
_JSON_TYPES: Mapping[type, str] = {str: "string", dict: "object", list: "list"}


def verify(files: Mapping[str, bytes], expected: str = "", plan: str = "") -> list[Difference]:
    """Compute everything but the plots again from `plan.json` and `data.json`, and return the differences.

    `expected` and `plan`: digest of the result and hash of the plan in the Experiment's status; empty to
    compare the files alone. Raises ValueError if the plan or the data cannot be read.
    """
    registered, data = _read(files, PLAN_FILE, _PLAN_FIELDS), _read(files, DATA_FILE, _DATA_FIELDS)
    for engine in registered["engines"]:
        PlanEngine.model_validate(engine)
    _, computed = result_files(registered, data["blocks"], data["tuning"], data["deviations"], drawn=False)
    found = [*_digests(files, {PLAN_FILE: plan, RESULT_FILE: expected}, "the status")]
    for statement in (PLAN_STATEMENT, RESULT_STATEMENT):
        found += _stated(files, statement)
    for name, content in computed.items():
        if name not in files:
            found.append(Difference(name, "", "no such file", "a file"))
        elif name.endswith(".json"):
            found += compare_json(name, _read(files, name), _parsed(content))
        else:
            found += compare_report(name, files[name], content)
    return found


def release(files: Mapping[str, bytes]) -> str:
    """Return the release of Convoy that wrote the files, by the statement about the result."""
    found: Any = _read(files, RESULT_STATEMENT) if RESULT_STATEMENT in files else {}
    for name in ("predicate", "libraries", CONVOY):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else UNKNOWN


def _read(files: Mapping[str, bytes], name: str, fields: Mapping[str, type] | None = None) -> Any:
    """Return the content of a JSON file. `fields`: types of fields that it must have."""
    if name not in files:
        raise ValueError(f"{name} is missing: without it nothing can be computed again")
    try:
        found = _parsed(files[name])
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from error
    for field, kind in (fields or {}).items():
        if not isinstance(found, dict) or not isinstance(found.get(field), kind):
            raise ValueError(f"{name}: {field} is missing or has another type than {_JSON_TYPES[kind]}")
    return found


def _parsed(content: bytes) -> Any:
    """Return a JSON value, in which whole numbers above LARGEST_WHOLE are floats."""
    return json.loads(content, parse_int=_whole)


def _whole(digits: str) -> int | float:
    number = int(digits)
    return number if abs(number) <= LARGEST_WHOLE else float(digits)


def _stated(files: Mapping[str, bytes], statement: str) -> Iterator[Difference]:
    """Yield the malformed subjects of a statement, and the files that differ from their digest in it."""
    content = _read(files, statement) if statement in files else {}
    subjects = content.get("subject") if isinstance(content, dict) else None
    wanted = {}
    for number, one in enumerate(subjects if isinstance(subjects, list) else ()):
        try:
            wanted[str(one["name"])] = f"{HASH_PREFIX}{one['digest']['sha256']}"
        except (KeyError, TypeError):
            yield Difference(statement, f"subject.{number}", one, "an object with name and digest.sha256")
    yield from _digests(files, wanted, statement)


def _digests(files: Mapping[str, bytes], wanted: Mapping[str, str], source: str) -> Iterator[Difference]:
    """Yield the stored files whose digest is not the one that `source` names."""
    for name, one in wanted.items():
        if one and name in files and (actual := digest(_read(files, name))) != one:
            yield Difference(name, f"digest in {source}", one, actual)
