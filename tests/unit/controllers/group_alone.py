"""Checks that a plan decides about the process group as if the job had no Independent pods."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from convoy_controllers.children import Create, Delete
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import suspended
from convoy_controllers.trainingjob.independent.scope import is_independent, split
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.views import PodView
from convoy_crds.terms import LABEL_MEMBERSHIP
from convoy_crds.trainingjob_status import TERMINAL


def check(observed: Observed, now: datetime) -> bool:
    """Compare the plan with the plan without Independent pods. Return False if the job is not active, so
    that there is nothing to compare.
    """
    job = observed.job
    over = job.status.phase in TERMINAL or job.metadata.deletion_timestamp is not None
    if over or suspended.due(observed):
        return False
    whole, alone = plan(observed, now), plan(split(observed).members, now)
    outside = {pod.uid for pod in observed.pods if is_independent(job, pod)}
    assert _group(observed, whole, outside) == _group(observed, alone, outside)
    return True


def _group(observed: Observed, made: Plan, outside: Iterable[str]) -> tuple[Any, ...]:
    """Return the part of a plan that is about the process group."""
    status = dict(made.status if made.status is not None else observed.job.status.to_dict())
    roles = {role.name for role in observed.job.spec.roles if role.independent}
    status.pop("independent", None)
    status["roles"] = [one for one in status.get("roles", ()) if one["name"] not in roles]
    internal = status.get("internal", {})
    status["internal"] = {name: internal[name] for name in internal if not name.startswith("independent")}
    status["conditions"] = [one for one in status.get("conditions", ()) if one["type"] != "IndependentReady"]
    deleted = [one for one in made.children if isinstance(one, Delete) and one.uid not in outside]
    created = [
        one.manifest
        for one in made.children
        if isinstance(one, Create) and LABEL_MEMBERSHIP not in one.manifest["metadata"]["labels"]
    ]
    commands = [one for one in made.commands if getattr(one, "pod_uid", "") not in outside]
    events = [one for one in made.events if not one.message.startswith("Independent pod")]
    events = [one for one in events if one.reason.name != "IndependentGivenUp"]
    return status, deleted, created, commands, events


def names(pods: Iterable[PodView]) -> list[str]:
    """Return the names of the Independent pods."""
    return sorted(pod.name for pod in pods if LABEL_MEMBERSHIP in pod.labels)
