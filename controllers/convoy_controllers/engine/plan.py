"""Decides whether an Engine can be used."""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.children import Event
from convoy_controllers.plan import Plan
from convoy_crds.engine import Engine, EngineStatus
from convoy_crds.meta import Condition
from convoy_crds.params import schema_error
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType


def plan(engine: Engine, now: datetime) -> Plan:
    """Set the Ready condition. The condition is False if the parameter schema is not a valid JSON Schema."""
    error = schema_error(engine.spec.params_schema)
    reason = Reasons.ACCEPTED if error is None else Reasons.INVALID_SCHEMA
    message = reason.format(why=error)
    value = "False" if error else "True"
    old = next((c for c in engine.status.conditions if c.type == ConditionType.READY), None)
    unmoved = old is not None and old.status == value
    condition = Condition(
        type=ConditionType.READY,
        status="False" if error else "True",
        reason=reason.name,
        message=message,
        last_transition_time=(
            old.last_transition_time if old is not None and unmoved else now.replace(microsecond=0)
        ),
    )
    status = EngineStatus(observed_generation=engine.metadata.generation, conditions=[condition])
    if status.to_dict() == engine.status.to_dict():
        return Plan()
    events = () if unmoved or error is None else (Event(reason, message),)
    return Plan(status=status.to_dict(), events=events)
