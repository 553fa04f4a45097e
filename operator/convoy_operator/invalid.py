"""Pure functions that plan for invalid objects, such as an object that was stored under an older CRD."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from convoy_controllers.children import Event
from convoy_controllers.controller import Validity
from convoy_controllers.plan import Plan
from convoy_crds.reasons.catalogue import Reasons


def where_and_why(error: ValidationError) -> tuple[str, str]:
    """Return the field path and the text of the first error, such as `spec.roles[0].replicas` and `Input
    should be ...`.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    path = ""
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".") or "object", str(first["msg"])


def plan(validity: Validity | None, raw: Mapping[str, Any], error: ValidationError, now: datetime) -> Plan:
    """Return a plan for an invalid object. It sets the kind's validity condition to False and keeps the
    rest of the status.
    """
    path, why = where_and_why(error)
    reason, message = Reasons.INVALID_SPEC, Reasons.INVALID_SPEC.format(path=path, why=why)
    if validity is None:
        return Plan(events=(Event(reason, message),))
    before: Mapping[str, Any] = raw.get("status") or {}
    kept = validity.condition
    conditions = [dict(entry) for entry in before.get("conditions") or ()]
    old = next((entry for entry in conditions if entry.get("type") == kept), {})
    fresh = {
        "type": kept,
        "status": "False",
        "reason": reason.name,
        "message": message,
        "lastTransitionTime": old.get("lastTransitionTime")
        if old.get("status") == "False"
        else now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    status = {
        **before,
        "observedGeneration": raw["metadata"].get("generation", 0),
        "conditions": [entry for entry in conditions if entry.get("type") != kept] + [fresh],
    }
    if validity.phase and not before.get("phase"):
        status |= {"phase": validity.phase, "reason": reason.name, "message": message}
    return Plan(status=status, events=(Event(reason, message),))


def failed(validity: Validity | None, raw: Mapping[str, Any], why: str) -> Plan:
    """Return a plan that reports an internal fault of the operator. If the kind has phases and the object
    has none yet, the plan also sets a phase, so that the object does not stay without a status.
    """
    reason, message = Reasons.RECONCILE_FAILED, Reasons.RECONCILE_FAILED.format(why=why)
    before: Mapping[str, Any] = raw.get("status") or {}
    status = None
    if validity is not None and validity.phase and not before.get("phase"):
        status = {**before, "phase": validity.phase, "reason": reason.name, "message": message}
    return Plan(status=status, events=(Event(reason, message),))
