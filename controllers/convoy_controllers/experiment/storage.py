"""Checks whether an Experiment's store can keep its files."""

from __future__ import annotations

from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.observed import Observed
from convoy_crds.experiment_status import ExperimentPhase
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType


def problem(observed: Observed) -> str:
    """Return the reason why the store is not ready; empty if it is."""
    store = observed.store
    if store is None:
        return "it does not exist"
    ready = next((one for one in store.status.conditions if one.type == ConditionType.READY), None)
    if ready is None:
        return "no agent has probed it yet"
    return "" if ready.status == "True" else ready.message or ready.reason


def ready(draft: Draft, phase: ExperimentPhase) -> bool:
    """Return True if the store is ready. If not, show that the experiment waits for it."""
    why = problem(draft.observed)
    if why:
        message = Reasons.AWAITS_STORE.format(name=draft.spec.store, why=why)
        draft.wait(phase, Reasons.AWAITS_STORE, message)
    return not why
