"""Finds the parts of a JSON Schema that apply to the same value, because of `$ref`, `allOf` and similar
keywords.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaRegistry

Part = Mapping[str, Any]

LOCAL_REGISTRY: SchemaRegistry = Registry()
"""Registry that resolves a `$ref` only inside its own schema. The default registry would read any file and
URL.
"""
_SOME = ("allOf", "anyOf", "oneOf")
_ONE = ("if", "then", "else")


def parts(entry: Any, schema: Part) -> list[Part]:
    """Return the part `entry` of `schema`, and the parts that it refers to for the same value. Each part
    occurs once.
    """
    found: dict[int, Part] = {}
    _gather(entry, schema, found)
    return list(found.values())


def target(entry: Part, schema: Part) -> Part:
    """Return the part merged with the target of its `$ref`, if it has one. Keywords of the part itself take
    precedence.
    """
    found, words = entry, dict(entry)
    seen: set[str] = set()
    while isinstance(ref := found.get("$ref"), str) and ref not in seen:
        seen.add(ref)
        found = _lookup(ref, schema)
        words = {**found, **words}
    return words


def _gather(entry: Any, schema: Part, found: dict[int, Part]) -> None:
    if not isinstance(entry, Mapping) or id(entry) in found:
        return
    found[id(entry)] = entry
    for inner in _applied(entry, schema):
        _gather(inner, schema, found)


def _applied(entry: Part, schema: Part) -> Iterator[Any]:
    if isinstance(ref := entry.get("$ref"), str):
        yield _lookup(ref, schema)
    for word in _SOME:
        yield from entry.get(word) or ()
    for word in _ONE:
        yield entry.get(word)
    yield from (entry.get("dependentSchemas") or {}).values()


def _lookup(ref: str, schema: Part) -> Part:
    resolver = LOCAL_REGISTRY.resolver_with_root(DRAFT202012.create_resource(schema))
    try:
        found = resolver.lookup(ref).contents
    except Unresolvable:
        return {}
    return found if isinstance(found, Mapping) else {}
