"""Converts pydantic's JSON Schema to the structural schema that a CustomResourceDefinition accepts.

The rules are those of the Kubernetes documentation on structural schemas (apiextensions.k8s.io/v1): no
references, no unions except int-or-string, no `additionalProperties: false`, and numeric bounds as in
OpenAPI 3.0.
"""

from __future__ import annotations

from typing import Any

NULLABLE = "x-convoy-nullable"
"""Schema extension for a model. It makes all optional fields of the model accept null."""
_DROPPED = {"title", "examples", "discriminator", "$defs", NULLABLE}


def structural(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the structural form of a model's JSON Schema. Raises ValueError if the schema has no
    structural form.
    """
    return _convert(schema, schema.get("$defs", {}))


def _convert(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:  # noqa: PLR0912 - one branch a keyword
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[-1]]
        return _convert(
            {**target, **{key: value for key, value in node.items() if key != "$ref"}}, definitions
        )
    if "anyOf" in node:
        return _convert_union(node, definitions)
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in _DROPPED:
            continue
        if key == "properties":
            required = node.get("required", ())
            out[key] = {
                name: _convert_property(child, name in required, definitions)
                | ({"nullable": True} if node.get(NULLABLE) and name not in required else {})
                for name, child in value.items()
            }
        elif key == "items":
            out[key] = _convert(value, definitions)
        elif key == "additionalProperties":
            if isinstance(value, dict):
                out[key] = _convert(value, definitions)
        elif key == "const":
            out["enum"] = [value]
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            out[key.replace("exclusiveM", "m")] = value
            out[key] = True
        elif key == "prefixItems":
            raise ValueError("a tuple has no structural schema; use a list or an object")
        else:
            # Copy the list. If two fields shared a list, YAML would write it as an anchor and an alias.
            out[key] = list(value) if isinstance(value, list) else value
    if "maxProperties" not in out and "maxLength" in out and out.get("type") == "object":
        out["maxProperties"] = out.pop("maxLength")
    if out.get("type") == "integer" and out.get("maximum", 0) > 2**31 - 1:
        out["format"] = "int64"
    return out


def _convert_property(node: dict[str, Any], required: bool, definitions: dict[str, Any]) -> dict[str, Any]:
    out = _convert(node, definitions)
    # Give the object itself a default, because the API server applies defaults inside an object only if the
    # object exists.
    if "$ref" in node and not required and out.get("type") == "object":
        out.setdefault("default", {})
    return out


def _convert_union(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    variants = [variant for variant in node["anyOf"] if variant.get("type") != "null"]
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    if rest.get("default", ...) is None:
        del rest["default"]
    if len(variants) == 1:
        return _convert({**variants[0], **rest}, definitions)
    if {variant.get("type") for variant in variants} == {"integer", "string"}:
        return {**_convert(rest, definitions), "x-kubernetes-int-or-string": True}
    raise ValueError(f"no structural schema for the union {node['anyOf']}")
