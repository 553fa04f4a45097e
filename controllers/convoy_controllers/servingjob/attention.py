"""Decides which ServingJobs need a person's attention, and for which reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.reasons.scaling import ScalingReasons
from convoy_crds.reasons.serving import ServingReasons

_SHARED = (
    # The spec must be corrected, or an object that the spec names must be created.
    Reasons.UNKNOWN_ENGINE,
    Reasons.ENGINE_NOT_READY,
    Reasons.WRONG_ROLE_KIND,
    Reasons.UNKNOWN_STORE,
    Reasons.STORE_NOT_ALLOWED,
    Reasons.INVALID_PARAMS,
    Reasons.INVALID_SPEC,
    Reasons.ADVICE_DENIED,
    Reasons.POD_REJECTED,
    Reasons.POD_CONFLICT,
    # Pods do not start.
    Reasons.IMAGE_PULL,
    Reasons.CONTAINER_CONFIG,
    Reasons.CONTAINER_FAILING,
    Reasons.POD_NOT_STARTING,
    Reasons.UNSCHEDULABLE,
    Reasons.WAITING_FOR_AGENT,
)
_OWN = (
    one
    for part in (ServingReasons, ScalingReasons)
    for one in vars(part).values()
    if isinstance(one, Reason) and one.warning
)

REASONS = frozenset(reason.name for reason in (*_SHARED, *_OWN))


def needed(status: Mapping[str, Any]) -> set[str]:
    """Return the reasons for which the job with this stored status needs a person; empty if it needs
    nobody.

    A job that has not served yet lacks replicas while they load their model, however long that takes. If its
    first rollout makes no progress, Progressing has a reason of its own.
    """
    found = {one.get("reason") for one in status.get("conditions") or ()} & REASONS
    served = bool(status.get("currentRevision"))
    return found if served else found - {Reasons.MINIMUM_REPLICAS_UNAVAILABLE.name}
