"""Sets one condition in the list of a status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from convoy_crds.meta import Condition
from convoy_crds.reasons.reason import Reason

MAX_MESSAGE_CHARS = 4096


def with_condition(
    conditions: Sequence[Condition],
    kind: str,
    holds: bool | None,
    reason: Reason,
    message: str,
    now: datetime,
) -> list[Condition]:
    """Return the conditions with one of the type `kind`; `holds` None means Unknown. Its transition time
    changes only with its status. A new condition comes last.
    """
    value: Literal["True", "False", "Unknown"]
    value = "Unknown" if holds is None else "True" if holds else "False"
    old = next((one for one in conditions if one.type == kind), None)
    unmoved = old is not None and old.status == value
    fresh = Condition(
        type=kind,
        status=value,
        reason=reason.name,
        message=message[:MAX_MESSAGE_CHARS],
        last_transition_time=old.last_transition_time if old is not None and unmoved else now,
    )
    if old is None:
        return [*conditions, fresh]
    return [fresh if one is old else one for one in conditions]
