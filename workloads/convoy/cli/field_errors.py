"""Error messages for invalid fields of a manifest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from convoy_crds.meta import AUTO, DnsLabel, Duration, DurationOrAuto, ObjectName
from convoy_crds.suggest import suggestion

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""Pattern of a Kubernetes object's name: an RFC 1123 subdomain."""
NAME_LENGTH = 253


def _pattern(annotated: Any) -> str:
    """Return the regular expression of a string type of `convoy_crds.meta`."""
    (field,) = annotated.__metadata__
    return next(str(one.pattern) for one in field.metadata if getattr(one, "pattern", None))


_DURATION = "a whole number followed by s, m or h, such as 90s, 10m or 2h"
_QUANTITY = "a whole number, or a quantity in quotes such as '0.5', '500m' or '1.5k', and not negative"

PATTERN_MESSAGES = {
    _pattern(DnsLabel): "must contain only a-z, 0-9 and '-', and begin and end with a letter or digit",
    _pattern(ObjectName): (
        "must contain only a-z, 0-9, '-' and '.', and each part between dots must begin and end with a "
        "letter or digit"
    ),
    _pattern(Duration): f"must be {_DURATION}",
    _pattern(DurationOrAuto): f"must be {AUTO}, or {_DURATION}",
}
"""Error messages for values that do not match a pattern, by pattern."""

_MESSAGES: Mapping[str, Callable[[dict[str, Any], Any], str]] = {
    "missing": lambda _, __: "is required",
    "string_type": lambda _, value: f"must be text, is {_display(value)}: put it in quotes",
    "int_type": lambda _, value: f"must be a whole number, is {_display(value)}",
    "bool_type": lambda _, value: f"must be true or false, is {_display(value)}",
    "list_type": lambda _, value: f"must be a list, is {_display(value)}",
    "dict_type": lambda _, value: f"must be a mapping, is {_display(value)}",
    "model_type": lambda _, value: f"must be a mapping, is {_display(value)}",
    "enum": lambda facts, value: f"must be {facts['expected']}, is {_display(value)}",
    "literal_error": lambda facts, value: f"must be {facts['expected']}, is {_display(value)}",
    "greater_than_equal": lambda facts, value: f"must be at least {facts['ge']}, is {_display(value)}",
    "less_than_equal": lambda facts, value: f"must be at most {facts['le']}, is {_display(value)}",
    "string_too_short": lambda _, __: "must not be empty",
    "string_too_long": lambda facts, _: f"must not be longer than {facts['max_length']} characters",
    "too_short": lambda facts, _: f"needs at least {_items(facts['min_length'])}",
    "too_long": lambda facts, _: f"may have at most {_items(facts['max_length'])}",
    "string_pattern_mismatch": lambda facts, value: (
        f"{PATTERN_MESSAGES.get(facts['pattern'], 'must match ' + facts['pattern'])}, is {_display(value)}"
    ),
}


def _items(count: int) -> str:
    return f"{count} item{'s' if count != 1 else ''}"


def _display(value: Any) -> str:
    """Return a value as text for an error message, as the author of the manifest would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def field_path(location: tuple[Any, ...]) -> str:
    """Return the location of a pydantic error as a field path such as `spec.roles[0].name`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.lstrip(".")


def violation(error: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return the field path and message of one pydantic error. `schema` is the schema of the kind."""
    location = tuple(error["loc"])
    if _node(schema, location[:-1]).get("x-kubernetes-int-or-string"):
        # pydantic reports an error for the number and one for the text, and adds the name of the type.
        return f"{field_path(location[:-1])}: must be {_QUANTITY}, is {_display(error['input'])}"
    if error["type"] == "extra_forbidden":
        words = f"there is no such field{suggestion(str(location[-1]), _fields(schema, location[:-1]))}"
    else:
        explain = _MESSAGES.get(error["type"])
        words = explain(error.get("ctx") or {}, error["input"]) if explain else str(error["msg"])
    return f"{field_path(location)}: {words}"


def _fields(schema: Mapping[str, Any], location: tuple[Any, ...]) -> list[str]:
    """Return the names of the fields that the schema has at a location."""
    return list(_node(schema, location).get("properties", {}))


def _node(schema: Mapping[str, Any], location: tuple[Any, ...]) -> Mapping[str, Any]:
    """Return the part of the schema at a location; an empty one if the schema does not define it."""
    for part in location:
        schema = (
            schema.get("items", {}) if isinstance(part, int) else schema.get("properties", {}).get(part, {})
        )
    return schema


def name_error(metadata: Mapping[str, Any]) -> str | None:
    """Return an error message if the API server would refuse the object's name; None for a valid name."""
    name = metadata.get("name") or metadata.get("generateName")
    if not name:
        return "metadata.name: is required"
    # For generateName the API server appends letters and digits, so "x" stands for them here.
    given = str(name) + ("" if metadata.get("name") else "x")
    if len(given) > NAME_LENGTH:
        return f"metadata.name: must not be longer than {NAME_LENGTH} characters"
    if not NAME.fullmatch(given):
        return (
            "metadata.name: must contain only a-z, 0-9, '-' and '.', and begin and end with a letter or "
            f"digit, is {_display(name)}"
        )
    return None
