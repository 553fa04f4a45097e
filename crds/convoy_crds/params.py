"""Validates the parameters of an engine against the schema in the Engine."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError, best_match
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaResource

from convoy_crds.schema_parts import LOCAL_REGISTRY, parts
from convoy_crds.suggest import suggestion

MAX_PARAMS = 128 * 1024 - 64
"""Maximum bytes of parameters as JSON. They travel in a variable of the environment, and Linux limits a
variable with its name to 32 pages of 4 KiB.
"""
_UNNAMED = ("additionalProperties", "unevaluatedProperties")


def params_size(params: Mapping[str, Any]) -> int:
    """Return the bytes of parameters in the environment of a pod."""
    return len(json.dumps(params))


def size_error(params: Mapping[str, Any]) -> str:
    """Return the reason why parameters do not fit into the environment of a pod; empty if they do."""
    size = params_size(params)
    return f"{size} bytes as JSON, more than {MAX_PARAMS}; put data into a file" if size > MAX_PARAMS else ""


def schema_error(schema: Mapping[str, Any]) -> str | None:
    """Return the reason why `schema` is not a valid JSON Schema (2020-12); None if it is valid."""
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        _validator(schema).is_valid({})
        whole = DRAFT202012.create_resource(dict(schema))
        _follow_references(whole, LOCAL_REGISTRY.resolver_with_root(whole))
    except jsonschema.SchemaError as error:
        return f"{error.json_path}: {error.message}"
    except (Unresolvable, RecursionError) as error:
        return _reference_error(error)
    return None


def params_error(schema: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the field path and message of the most relevant error in the parameters; None if the
    parameters are valid.

    A parameter that no part of the schema defines is an error, unless the schema allows unknown parameters.
    """
    strict = {"unevaluatedProperties": False, "type": "object", **schema}
    try:
        errors = list(_validator(strict).iter_errors(dict(params)))
        if not errors:
            return None
        unknown = {id(one): words for one in errors if (words := _unknown(one, strict))}
        # If a part of the schema fails for one parameter, jsonschema reports all parameters of that part as
        # unknown. So drop such a report if it names no parameter that is really unknown.
        reported = [one for one in errors if one.validator != "unevaluatedProperties" or id(one) in unknown]
        error = best_match(reported or errors)
        return "spec.engine.params" + error.json_path[1:], unknown.get(id(error)) or error.message
    except Exception as fault:
        # Catch every exception, because an invalid schema may raise any. The schema is checked only after an
        # error, because a check before each validation would take too long.
        why = schema_error(schema) or _reference_error(fault)
        if why is None:
            raise
        return "spec.engine.params", f"the schema of the Engine is invalid: {why}"


def _multiple_of(
    validator: Any, factor: float, number: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    """Yield an error if `number` is not a multiple of `factor`. The check uses decimal arithmetic, so 0.3
    counts as a multiple of 0.1.
    """
    if not validator.is_type(number, "number"):
        return
    finite = isinstance(number, int) or math.isfinite(number)
    if not finite or _written(number) % _written(factor):
        yield ValidationError(f"{number!r} is not a multiple of {factor}")


def _written(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


_Validator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {"multipleOf": _multiple_of}
)


def _validator(schema: Mapping[str, Any]) -> jsonschema.protocols.Validator:
    found: jsonschema.protocols.Validator = _Validator(schema, registry=LOCAL_REGISTRY)
    return found


def _follow_references(part: SchemaResource, resolver: Any) -> None:
    """Raise Unresolvable for the first reference in a schema, at any depth, that cannot be resolved."""
    if isinstance(part.contents, Mapping):
        for word in ("$ref", "$dynamicRef"):
            if word in part.contents:
                resolver.lookup(part.contents[word])
    for inner in part.subresources():
        _follow_references(inner, resolver.in_subresource(inner))


def _reference_error(fault: Exception) -> str | None:
    """Return the reason why a reference in a schema cannot be resolved; None if `fault` has another cause."""
    if isinstance(fault, Unresolvable):
        return f"$ref: {fault.ref} does not exist in this schema"
    if isinstance(fault, RecursionError):
        return "the schema is nested too deeply, or a $ref refers to itself"
    return None


def _unknown(error: ValidationError, schema: Mapping[str, Any]) -> str:
    """Return a message about unknown parameters, with similar known names. Return an empty text if the
    error is of another kind.
    """
    if error.validator not in _UNNAMED or not isinstance(error.schema, Mapping):
        return ""
    # The keyword additionalProperties considers only properties of the same part, so suggest only those.
    here = [error.schema] if error.validator == _UNNAMED[0] else parts(error.schema, schema)
    known = {name for one in here for name in one.get("properties") or ()}
    patterns = {pattern for one in here for pattern in one.get("patternProperties") or ()}
    return "; ".join(
        f"unknown parameter {name!r}{suggestion(name, known)}"
        for name in (error.instance if isinstance(error.instance, Mapping) else ())
        if name not in known and not any(re.search(pattern, name) for pattern in patterns)
    )
