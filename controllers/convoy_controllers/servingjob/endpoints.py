"""The pods that a ServingJob's Service lists in its EndpointSlices. Proxies send requests to these only.

The endpoint slice controller of Kubernetes writes the slices, with the labels of the Service. While it is
away, as during an outage of the API server, a ready replica gets no requests, and an old one still does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.reader import Reader
from convoy_controllers.servingjob.groups import Group
from convoy_controllers.servingjob.observed import Observed
from convoy_crds.servingjob import KIND
from convoy_crds.servingjob_rollout import ENDPOINT_LAG_SECONDS
from convoy_crds.terms import LABEL_ENDPOINT, LABEL_JOB, LABEL_KIND


def listed(slices: Sequence[CachedObject]) -> frozenset[str] | None:
    """Return the uids of the ready pods in a Service's EndpointSlices; None if it has no slice."""
    if not slices:
        return None
    return frozenset(
        str((one.get("targetRef") or {}).get("uid", ""))
        for found in slices
        for one in found.raw.get("endpoints") or ()
        # Without a value, consumers must take an endpoint for ready.
        if (one.get("conditions") or {}).get("ready") is not False
    )


def noted(observed: Observed, group: Group, now: datetime) -> Group:
    """Return the group with the time since which the Service lists it. A group to which the Service does not
    lead needs none.
    """
    head = group.pods.get(0)
    if observed.endpoints is None or head is None or head.labels.get(LABEL_ENDPOINT) != observed.front:
        return replace(group, record=group.record.model_copy(update={"listed_at": None}))
    since = (group.record.listed_at or now) if head.uid in observed.endpoints else None
    return replace(
        group,
        record=group.record.model_copy(update={"listed_at": since}),
        listed=since.timestamp() if since else None,
    )


def jobs_of(
    reader: Reader, before: CachedObject | None, after: CachedObject | None
) -> Iterable[tuple[str, str]]:
    """Return namespace and name of the ServingJob to whose Service a slice belongs, by the slice's labels."""
    item: Any = after if after is not None else before
    labels = item.raw["metadata"].get("labels") or {}
    return [(item.namespace, labels[LABEL_JOB])] if labels.get(LABEL_KIND) == KIND.name else []


def relevant(item: CachedObject) -> Hashable:
    """Return the part of a slice that matters to its job: the ready pods."""
    return listed([item])


def awaited(groups: Iterable[Group], now: datetime) -> str:
    """Return that a replica has been ready for the endpoint lag, but is not listed by the Service; empty if
    there is none.
    """
    for one in groups:
        lasts = now.timestamp() >= one.ready_since + ENDPOINT_LAG_SECONDS
        if one.ready and one.listed is None and lasts:
            return (
                f"replica {one.name} is ready, but the Service does not list it yet; "
                "Kubernetes' endpoint slice controller does this"
            )
    return ""
