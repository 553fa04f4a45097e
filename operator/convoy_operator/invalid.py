"""What is said of an object that its model refuses, such as one stored before its CRD grew stricter. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from convoy_controllers.plan import Event, Plan
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_crds.trainingjob_status import Phase


def where_and_why(error: ValidationError) -> tuple[str, str]:
    """Field path and reason of the first violation: `spec.roles[0].replicas`, `Input should be ...`."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ""
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".") or "object", str(first["msg"])


def plan(kind: str, raw: Mapping[str, Any], error: ValidationError, now: datetime) -> Plan:
    """Sets the kind's validity condition to False and leaves all else of the status as it is."""
    path, why = where_and_why(error)
    reason, message = Reasons.INVALID_SPEC, Reasons.INVALID_SPEC.format(path=path, why=why)
    before: Mapping[str, Any] = raw.get("status") or {}
    generation = raw["metadata"].get("generation", 0)
    kept = ConditionType.VALID if kind == TRAINING_JOB.name else ConditionType.READY
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
        "observedGeneration": generation,
    }
    status = {
        **before,
        "observedGeneration": generation,
        "conditions": [entry for entry in conditions if entry.get("type") != kept] + [fresh],
    }
    if kind == TRAINING_JOB.name and not before.get("phase"):
        status |= {"phase": Phase.PENDING.value, "reason": reason.name, "message": message}
    return Plan(status=status, events=(Event(reason, message),))


def failed(kind: str, raw: Mapping[str, Any], why: str) -> Plan:
    """Reports a fault of the operator's own. A job without a status gets one: no object stays silent."""
    reason, message = Reasons.RECONCILE_FAILED, Reasons.RECONCILE_FAILED.format(why=why)
    before: Mapping[str, Any] = raw.get("status") or {}
    status = None
    if kind == TRAINING_JOB.name and not before.get("phase"):
        status = {**before, "phase": Phase.PENDING.value, "reason": reason.name, "message": message}
    return Plan(status=status, events=(Event(reason, message),))
