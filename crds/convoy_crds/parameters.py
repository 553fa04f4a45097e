"""Descriptions of an engine's parameters, from their JSON Schema: for the command line and for pages."""

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


def parameters(schema: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return name, type with bounds, default and description of each parameter, in the schema's order.

    Any part of the schema may define a parameter, such as a part that `$ref` or `allOf` adds.
    """
    required = {name for part in _always(schema, schema, set()) for name in part.get("required") or ()}
    named: dict[str, list[Any]] = {}
    for part in parts(schema, schema):
        for name, entry in (part.get("properties") or {}).items():
            named.setdefault(name, []).append(entry)
    return [_parameter(name, entries, schema, name in required) for name, entries in named.items()]


def _parameter(name: str, entries: list[Any], schema: Part, required: bool) -> tuple[str, str, str, str]:
    """Return one parameter. If the schema's alternatives define it several times, use the first
    description.
    """
    first = target(entries[0], schema) if isinstance(entries[0], Mapping) else {}
    kinds = " or ".join(dict.fromkeys(kind_of(entry, schema) for entry in entries))
    return name, kinds, _default(first, required), str(first.get("description", ""))


def kind_of(entry: Any, schema: Mapping[str, Any]) -> str:
    """Return a parameter's type in a few words: `integer from 1 to 64`, `adam or sgd`.

    `schema` is the whole schema, which resolves the entry's references.
    """
    entry = target(entry, schema) if isinstance(entry, Mapping) else {}
    if "const" in entry:
        return _written(entry["const"])
    if "enum" in entry:
        return " or ".join(map(_written, entry["enum"]))
    for word in ("anyOf", "oneOf"):
        if word in entry:
            # Models that differ only in their fields are all of type object.
            return " or ".join(dict.fromkeys(kind_of(one, schema) for one in entry[word]))
    kind = entry.get("type", "anything")
    words = [kind if isinstance(kind, str) else " or ".join(kind)]
    return " ".join(words + [text.format(entry[bound]) for bound, text in BOUNDS.items() if bound in entry])


def _always(part: Part, schema: Part, seen: set[int]) -> Iterator[Part]:
    """Yield a part and the parts that always apply with it: `$ref` and `allOf`, but no alternatives."""
    if id(part) in seen:
        return
    seen.add(id(part))
    whole = target(part, schema)
    yield whole
    for one in whole.get("allOf") or ():
        if isinstance(one, Mapping):
            yield from _always(one, schema, seen)


def _default(entry: Part, required: bool) -> str:
    return _written(entry["default"]) if "default" in entry else ("required" if required else "-")


def _written(value: Any) -> str:
    """Return a value as it appears in a manifest."""
    return value if isinstance(value, str) else json.dumps(value)
