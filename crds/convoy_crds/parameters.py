"""Describes an engine's parameters by their JSON Schema, for the command line and for the engine's page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from convoy_crds.schema_parts import Part, parts, target

BOUNDS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
}


def parameters(schema: Mapping[str, Any], *, nested: bool = True) -> list[tuple[str, str, str, str]]:
    """Return the name, type with bounds, default and description of each parameter, in the order of the
    schema. If `nested`, the fields of an object follow it, as `object.field`.

    A parameter may be defined in any part of the schema, such as a part that `$ref` or `allOf` adds. It is
    required if the whole schema requires it, or if each alternative that has it does.
    """
    found = _fields(schema, schema, "", frozenset())
    return [one for one in found if nested or "." not in one[0]]


def _fields(
    entry: Part, schema: Part, prefix: str, outer: frozenset[int]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the parameters that the part `entry` of the schema defines. `outer`: ids of the parts around it,
    because a schema may contain itself.
    """
    applied = parts(entry, schema)
    inside = frozenset(id(part) for part in applied if "properties" in part)
    if inside & outer:
        return
    required = {name for part in _always(entry, schema, set()) for name in part.get("required") or ()}
    named: dict[str, list[Any]] = {}
    optional: set[str] = set()
    for part in applied:
        for name, definition in (part.get("properties") or {}).items():
            named.setdefault(name, []).append(definition)
            if name not in (part.get("required") or ()):
                optional.add(name)
    for name, entries in named.items():
        yield _parameter(prefix + name, entries, schema, name in required or name not in optional)
        yield from _fields({"anyOf": entries}, schema, f"{prefix}{name}.", outer | inside)


def _parameter(name: str, entries: list[Any], schema: Part, required: bool) -> tuple[str, str, str, str]:
    """Return one parameter from all its definitions `entries`. The schema may define a parameter several
    times, in alternatives. The description is that of the first definition.
    """
    first = target(entries[0], schema) if isinstance(entries[0], Mapping) else {}
    kinds = " or ".join(dict.fromkeys(kind_of(entry, schema) for entry in entries))
    return name, kinds, _default(first, required), str(first.get("description", ""))


def kind_of(entry: Any, schema: Mapping[str, Any]) -> str:
    """Return a parameter's type as a short text, such as `integer from 1 to 64` or `adam or sgd`.

    `schema` is the whole schema. The function needs it to resolve the entry's references.
    """
    entry = target(entry, schema) if isinstance(entry, Mapping) else {}
    if "const" in entry:
        return _written(entry["const"])
    if "enum" in entry:
        return " or ".join(map(_written, entry["enum"]))
    for word in ("anyOf", "oneOf"):
        if word in entry:
            # Alternatives that are models all have the type object, so remove duplicates.
            return " or ".join(dict.fromkeys(kind_of(one, schema) for one in entry[word]))
    kind = entry.get("type", "anything")
    words = [kind if isinstance(kind, str) else " or ".join(kind)]
    return " ".join(words + [text.format(entry[bound]) for bound, text in BOUNDS.items() if bound in entry])


def _always(part: Part, schema: Part, seen: set[int]) -> Iterator[Part]:
    """Yield a part of the schema and the parts that `$ref` and `allOf` add to it. These parts always apply,
    unlike alternatives.
    """
    if id(part) in seen:
        return
    seen.add(id(part))
    whole = target(part, schema)
    yield whole
    for one in whole.get("allOf") or ():
        if isinstance(one, Mapping):
            yield from _always(one, schema, seen)


def _default(entry: Part, required: bool) -> str:
    if "default" in entry:
        return _written(entry["default"])
    if required:
        return "required"
    nullable = any(isinstance(one, Mapping) and one.get("type") == "null" for one in entry.get("anyOf") or ())
    return "null" if nullable else "-"


def _written(value: Any) -> str:
    """Return a value as a user would write it in a manifest."""
    return value if isinstance(value, str) else json.dumps(value)
