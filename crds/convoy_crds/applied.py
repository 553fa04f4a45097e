"""Schemas under which an applied file stays equal to what is stored, whichever way it is applied.

The server fills in defaults, but not everywhere. The models have all of them, and the descriptions name those
that the server leaves out:

- Inside lists. Client-side apply and Argo CD compare a list as a whole, so it would differ for ever.
- Inside an object that may be `{}` and has no default of its own. When server-side apply takes over
  from another manager it removes the fields that only that one set, and with the last of them the object.
"""

from __future__ import annotations

import json
from typing import Any


def without_drift(node: dict[str, Any]) -> dict[str, Any]:
    """The structural schema of a spec with defaults only where they are no drift."""
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


def _may_vanish(node: dict[str, Any]) -> bool:
    """Return whether all that an object holds may be defaults, and nothing brings the object itself back."""
    return "properties" in node and "default" not in node and not node.get("required")


def _bare(node: dict[str, Any]) -> dict[str, Any]:
    """The schema without defaults."""
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
