"""An engine's parameters in words, from their JSON Schema: for the command line and for pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BOUNDS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
}


def parameters(schema: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return name, type with its bounds, default and meaning of each parameter, in the schema's order."""
    required = schema.get("required", ())
    return [
        (name, kind_of(entry), _default(entry, name in required), str(entry.get("description", "")))
        for name, entry in schema.get("properties", {}).items()
    ]


def kind_of(entry: Mapping[str, Any]) -> str:
    """Return a parameter's type in a few words: `integer from 1 to 64`, `adam or sgd`."""
    if "enum" in entry:
        return " or ".join(map(str, entry["enum"]))
    if "anyOf" in entry:
        return " or ".join(kind_of(one) for one in entry["anyOf"])
    kind = entry.get("type", "anything")
    words = [kind if isinstance(kind, str) else " or ".join(kind)]
    return " ".join(words + [text.format(entry[bound]) for bound, text in BOUNDS.items() if bound in entry])


def _default(entry: Mapping[str, Any], required: bool) -> str:
    return str(entry["default"]) if "default" in entry else ("required" if required else "-")
