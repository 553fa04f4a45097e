"""Checks `spec.trace` for errors that the schema cannot find. They keep the trace from being recorded, and
nothing else.
"""

from __future__ import annotations

from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import slots, world_size
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_trace import MAX_RANKS


def refusal(observed: Observed) -> Violation | None:
    """Return why the trace cannot be recorded; None if it can. The job must have `spec.trace`."""
    return _ranks(observed) or _store(observed)


def _ranks(observed: Observed) -> Violation | None:
    trace, world = observed.job.spec.trace, world_size(slots(observed.job))
    if trace is None or trace.steps is None:
        return None
    if trace.ranks is None and world > MAX_RANKS:
        why = f"the job has {world} ranks; name at most {MAX_RANKS} of them"
    elif beyond := [rank for rank in trace.ranks or () if rank >= world]:
        why = f"the job has ranks 0 to {world - 1}, but no rank {beyond[0]}"
    else:
        return None
    return Violation(Reasons.TRACE_RANKS_UNKNOWN, Reasons.TRACE_RANKS_UNKNOWN.format(why=why))


def _store(observed: Observed) -> Violation | None:
    name, store = observed.job.spec.trace_store, observed.trace_store
    namespace = observed.job.metadata.namespace or ""
    if name is None:
        return None
    if store is None:
        known = ", ".join(sorted(observed.known_stores)) or "(none for this namespace yet)"
        reason = Reasons.TRACE_STORE_UNKNOWN
        return Violation(reason, reason.format(name=name, known=known))
    if not store.spec.allows(namespace):
        reason = Reasons.TRACE_STORE_NOT_ALLOWED
        return Violation(reason, reason.format(name=name, namespace=namespace))
    return None
