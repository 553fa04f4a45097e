"""Adapts the defaults of schemas to client-side apply, server-side apply and status writes.

An applied manifest and the stored object must stay equal. A default that the API server fills in can make
the two different. So a spec's schema leaves out defaults in two places, and the field's description names
the default instead. The models apply all defaults.

- Inside lists. Client-side apply and Argo CD compare a list as a whole, so they would always see a
  difference.
- Inside an object that may be `{}` and has no default of its own. When server-side apply takes over from
  another manager, it removes the fields that only that manager set. If no field is left, it removes the
  object too.
"""

from __future__ import annotations

import json
from typing import Any


def without_drift(node: dict[str, Any]) -> dict[str, Any]:
    """Return a spec's structural schema without the defaults that would make an applied manifest differ
    from the stored object.
    """
    out = {**node}
    if isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = _bare(node["additionalProperties"])
    if "items" in node:
        out["items"] = _bare(node["items"])
    required = node.get("required", ())
    if "properties" in node:
        out["properties"] = {
            name: _bare(child) if name not in required and _may_vanish(child) else without_drift(child)
            for name, child in node["properties"].items()
        }
    return out


def without_defaults(node: dict[str, Any]) -> dict[str, Any]:
    """Return a status's structural schema without any default. The API server would otherwise fill in every
    empty field that the operator leaves out.
    """
    out = {key: value for key, value in node.items() if key != "default"}
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            out[key] = without_defaults(node[key])
    if "properties" in node:
        out["properties"] = {name: without_defaults(child) for name, child in node["properties"].items()}
    return out


def _may_vanish(node: dict[str, Any]) -> bool:
    """Return True if server-side apply can remove the whole object: all its fields are optional, and the
    object itself has no default.
    """
    return "properties" in node and "default" not in node and not node.get("required")


def _bare(node: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without defaults. The description of each field names its default instead."""
    out = {key: value for key, value in node.items() if key != "default"}
    if node.get("default") not in (None, "", {}, []):
        meant = f"Default: {json.dumps(node['default'])}."
        out["description"] = " ".join(filter(None, (node.get("description", ""), meant)))
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            out[key] = _bare(node[key])
    if "properties" in node:
        out["properties"] = {name: _bare(child) for name, child in node["properties"].items()}
    return out
