"""Decides whether jobs can commit checkpoints to a store and, if they cannot, what must be done. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from convoy_controllers.checkpointstore.observed import Observed
from convoy_controllers.children import Event
from convoy_controllers.plan import Plan
from convoy_crds.checkpointstore import Capabilities, CheckpointStoreStatus
from convoy_crds.meta import Condition
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType

RECHECK_SECONDS = 60.0
"""Seconds between two reads of the Secret. Changed credentials are in use at most this many seconds later."""
FRESH_SECONDS = 10.0
"""Seconds for which a changed store, a changed Secret or a new leader counts as fresh. If a ready store has
no probe result during this time, it stays ready unless its spec has changed. It is checked again after
the same time.
"""
_MESSAGE = 4096


class Finding(NamedTuple):
    """The finding about a store: whether it is ready, the reason, and the message."""

    holds: bool
    reason: Reason
    message: str


def plan(observed: Observed, now: datetime) -> Plan:
    """Set the Ready condition and the capabilities in the store's status. A new reason also becomes an
    Event.
    """
    store = observed.store
    old = next((c for c in store.status.conditions if c.type == ConditionType.READY), None)
    found = finding(observed)
    if (
        found.reason is Reasons.NOT_PROBED
        and observed.fresh
        and old is not None
        and old.status == "True"
        and store.status.observed_generation == store.metadata.generation
    ):
        # The Secret or the leader changed a moment ago, and an agent will soon probe the store. Keep the
        # earlier condition until then.
        return Plan(requeue_after=FRESH_SECONDS)
    value = "True" if found.holds else "False"
    unmoved = old is not None and old.status == value
    condition = Condition(
        type=ConditionType.READY,
        status="True" if found.holds else "False",
        reason=found.reason.name,
        message=found.message[:_MESSAGE],
        last_transition_time=(
            old.last_transition_time if old is not None and unmoved else now.replace(microsecond=0)
        ),
    )
    status = _status(observed, condition)
    if status.to_dict() == store.status.to_dict():
        return Plan(requeue_after=RECHECK_SECONDS)
    news = old is None or old.reason != found.reason.name
    event = news and found.reason is not Reasons.NOT_PROBED
    events = (Event(found.reason, found.message),) if event else ()
    return Plan(status=status.to_dict(), events=events, requeue_after=RECHECK_SECONDS)


def finding(observed: Observed) -> Finding:
    """Return the finding about the store. If both the Secret and the probe have a problem, report the
    Secret's.
    """
    spec, secret, probe = observed.store.spec, observed.secret, observed.probe
    if spec.s3 is not None:
        facts = {"name": spec.s3.credentials_secret, "namespace": observed.namespace}
        if secret.unreadable:
            return _not(Reasons.SECRET_NOT_FOUND, why=secret.unreadable, **facts)
        if secret.missing:
            return _not(Reasons.SECRET_INCOMPLETE, missing=" and no ".join(secret.missing), **facts)
    if probe is None:
        return _not(Reasons.NOT_PROBED, why=_unprobed(observed))
    claim = spec.volume.claim_name if spec.volume is not None else ""
    if probe.unmounted:
        return _not(Reasons.CLAIM_NOT_MOUNTED, name=claim, node=probe.node, namespace=observed.namespace)
    if not probe.reached:
        return _not(Reasons.STORE_UNREACHABLE, node=probe.node, why=probe.message or "no reason given")
    if not probe.conditional:
        return _not(Reasons.NO_HARD_LINKS, name=claim) if claim else _not(Reasons.NO_CONDITIONAL_WRITES)
    what = probe.message or "an agent has probed it"
    return Finding(True, Reasons.PROBED, Reasons.PROBED.format(what=what))


def _not(reason: Reason, **facts: object) -> Finding:
    return Finding(False, reason, reason.format(**facts))


def _unprobed(observed: Observed) -> str:
    if observed.probing_node:
        return f"the agent of node {observed.probing_node} is probing it"
    return "waiting for an agent that can probe it (check the convoy-agent DaemonSet)"


def _status(observed: Observed, condition: Condition) -> CheckpointStoreStatus:
    """Return the status with this condition. If no agent has reported a new probe result, the status keeps
    the earlier result.
    """
    old, probe = observed.store.status, observed.probe
    capabilities = old.capabilities
    if probe is not None and probe.reached:
        capabilities = Capabilities(conditional_writes=probe.conditional, checksums=probe.checksums)
    return CheckpointStoreStatus(
        observed_generation=observed.store.metadata.generation,
        conditions=[condition],
        capabilities=capabilities,
        probed_by=probe.node if probe is not None else old.probed_by,
        probed_at=probe.at.replace(microsecond=0) if probe is not None else old.probed_at,
    )
