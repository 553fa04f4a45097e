"""Checks an object against the CEL rules of its kind's schema, without an API server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import cel

from convoy_crds.generate import definition
from convoy_crds.kind import Kind


@cache
def schema_of(kind: Kind[Any]) -> dict[str, Any]:
    """Return the schema in the kind's CustomResourceDefinition."""
    found: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def without_nulls(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a copy of an object without null values in fields that the schema defines, because the API
    server drops these nulls.

    A null in a field that the schema does not define stays, because an engine may give the null a meaning.
    """
    if isinstance(value, list):
        return [without_nulls(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    inside = schema.get("additionalProperties", {})
    return {
        str(key): without_nulls(item, fields.get(key, inside))
        for key, item in value.items()
        if item is not None or key not in fields
    }


def broken_rules(kind: Kind[Any], body: dict[str, Any]) -> list[str]:
    """Return a message, with the field path, for each error in a new object: a violated CEL rule, or two
    entries of a list that have the same key.
    """
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
            found += _duplicates([item.get(key) for item in value], f"{path.lstrip('.')}[*].{key}")
        for index, item in enumerate(value):
            found += _broken(schema["items"], item, f"{path}[{index}]")
    return found


def _duplicates(keys: list[Any], where: str) -> list[str]:
    return [
        f"{where}: {key!r} occurs more than once" for key in sorted({k for k in keys if keys.count(k) > 1})
    ]
