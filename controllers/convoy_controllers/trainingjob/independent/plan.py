"""Adds the decisions about Independent pods to the plan of a job.

The pods are created after the process group has formed, so that they never take a node that it needs. They
run on while the group restarts. They are deleted when the group gives its pods back, ends or is suspended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import nodes, provenance, spot
from convoy_controllers.trainingjob.independent import assignments, conditions, records, steps, work
from convoy_controllers.trainingjob.independent.drain import clear, drained
from convoy_controllers.trainingjob.independent.scope import Parts
from convoy_controllers.trainingjob.role_limits import RoleLimits
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.workers import waiting
from convoy_crds.trainingjob_status import TERMINAL, Phase


def extend(made: Plan, parts: Parts, draft: Draft, now: datetime) -> Plan:
    """Return the plan of the process group with the decisions about the Independent pods."""
    observed, status = parts.independents, draft.status
    if not any(role.independent for role in observed.job.spec.roles):
        if not status.independent:
            return made
        clear(draft)
        return replace(made, status=draft.stored())
    if status.phase in TERMINAL:
        clear(draft)
        provenance.record(draft, (*parts.members.pods, *observed.pods))
        return replace(
            made, status=draft.stored(), children=(*made.children, *drained(observed, observed.pods))
        )
    # A step of the group can prove that a node is alive, so the group's observation decides.
    found = work.start(observed, draft, nodes.lost(parts.members), now)
    granted = spot.grants(observed)
    if status.phase in (None, Phase.PENDING):
        _give_back(found)
    else:
        found.members = assignments.addresses(parts.members, status)
        _run(found, granted, requested=status.internal.restart_id != observed.job.status.internal.restart_id)
    conditions.report(found)
    before = status.internal.independent
    status.internal.independent = records.kept(found.records.values())
    status.internal.independent_incarnation = found.incarnation
    inspected, later = (made.inspect, None)
    if inspected is None and status.formed:
        inspected, later = waiting.inspect(observed, found.layout, found.own, now)
    waits = [wait for wait in (made.requeue_after, later, *found.waits) if wait is not None]
    return replace(
        made,
        status=draft.stored(),
        status_first=made.status_first or before != status.internal.independent,
        children=(*found.deletions, *made.children, *found.creations),
        events=tuple(draft.events),
        commands=(*made.commands, *found.commands),
        inspect=inspected,
        requeue_after=min(waits, default=None),
    )


def _run(found: work.Work, granted: Mapping[str, spot.RoleGrant], *, requested: bool) -> None:
    """Take the steps of all slots. `requested` is True if a user has requested a restart, which gives
    slots without budget a full one. `granted`: the grants of SpotPools.
    """
    if requested:
        found.records = {key: records.retried(one) for key, one in found.records.items()}
    for slot in found.layout:
        steps.advance(found, slot)
    found.deletions += spot.misplaced(granted, found.layout, found.staying)
    if found.draft.status.formed:
        steps.create_missing(found, found.layout, RoleLimits(found.observed, found.layout, found.staying))


def _give_back(found: work.Work) -> None:
    """Delete all pods, because the process group has given its own pods back."""
    found.records = {key: records.stopped(one) for key, one in found.records.items()}
    found.deletions += drained(found.observed, found.observed.pods)
