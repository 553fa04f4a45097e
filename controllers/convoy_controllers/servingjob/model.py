"""Chooses the generation that the replicas load: a pinned one, or the newest of a TrainingJob.

A roll to a newer generation is an ordinary rollout. It starts at most once in `minInterval`, and never while
another rollout makes progress. A rollout that is halted, or whose generation is no longer in the store, does
not block it, because the newer generation may be the repair.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.workers.violation import Violation
from convoy_crds.meta import seconds
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob_model import CheckpointSource
from convoy_crds.servingjob_status import ModelStatus
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import TrainingJob

MAX_INTERVAL_SECONDS = 366 * 86_400
"""Maximum of `minInterval` that is counted, in seconds. Python knows no date after the year 9999."""
_JOB, _STORE = "spec.model.checkpoint.job", "spec.model.checkpoint.store"


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen generation, and the obstacle if there is one."""

    model: ModelStatus | None = None
    """None if the job loads no generation, or if none can be chosen yet."""
    problem: Violation | None = None
    wait_seconds: float | None = None
    """Seconds until a newer generation may be chosen; None if none waits."""

    @property
    def missing(self) -> bool:
        """Return True if the replicas cannot start for lack of a model."""
        return self.model is None and self.problem is not None


def choose(observed: Observed, now: datetime, *, rolling: bool) -> Choice:
    """Return the generation to load. `rolling` is True while a rollout makes progress."""
    source = observed.job.spec.model
    if source is None or source.checkpoint is None:
        return Choice()
    wanted, chosen = source.checkpoint, observed.job.status.model
    if problem := _store_problem(observed, wanted):
        return Choice(chosen if chosen and _same_source(wanted, chosen) else None, problem)
    if wanted.uid is not None:
        fixed = ModelStatus(uid=wanted.uid, store=wanted.store, step=wanted.step, since=now)
        return Choice(_unless_same(chosen, fixed))
    # The generation stays in the store after its job is deleted, so replicas that load it go on. They also do
    # if another job gets the name.
    kept = chosen if chosen and _same_source(wanted, chosen) else None
    if observed.source is None:
        return Choice(kept, None if kept else _missing(_JOB, f"there is no TrainingJob {wanted.job!r}"))
    newest = _newest(observed.source, wanted, now)
    if isinstance(newest, Violation):
        return Choice(kept, None if kept else newest)
    if kept is None:
        return Choice(newest)
    if not wanted.follow:
        return Choice(newest if wanted.step and wanted.step != kept.step else kept)
    if newest.uid == kept.uid and not _newer(newest, kept):
        return Choice(kept)
    return _paced(kept, newest, wanted, now, rolling=rolling)


def _paced(
    chosen: ModelStatus, newest: ModelStatus, wanted: CheckpointSource, now: datetime, *, rolling: bool
) -> Choice:
    """Return the newer generation, if a roll may start now."""
    interval = min(seconds(wanted.min_interval), MAX_INTERVAL_SECONDS)
    due = (chosen.since or now) + timedelta(seconds=interval)
    if due > now:
        return Choice(chosen, wait_seconds=(due - now).total_seconds())
    return Choice(chosen if rolling else newest)


def _newer(newest: ModelStatus, chosen: ModelStatus) -> bool:
    """Return True if a generation is newer. A later incarnation may have gone back to an earlier step."""
    return (newest.incarnation, newest.step) > (chosen.incarnation, chosen.step)


def _newest(source: TrainingJob, wanted: CheckpointSource, now: datetime) -> ModelStatus | Violation:
    """Return the generation of the job to load, if no other has been chosen yet."""
    name = source.metadata.name
    saves_to = source.spec.checkpoint.tiers.store
    if saves_to != wanted.store:
        why = f"TrainingJob {name!r} does not save to CheckpointStore {wanted.store!r}"
        return _missing(_STORE, f"{why} but to {saves_to!r}" if saves_to else f"{why} nor to another one")
    point = source.status.checkpoint
    mark = point.watermarks.remote if point else None
    if mark is None:
        return _missing(_JOB, f"TrainingJob {name!r} has no checkpoint in the store yet; the job starts then")
    if wanted.step > mark.step:
        why = f"TrainingJob {name!r} has only saved step {mark.step} yet"
        return _missing("spec.model.checkpoint.step", why)
    fixed = wanted.step and wanted.step != mark.step
    loss = source.status.progress.loss if source.status.progress and not fixed else None
    return ModelStatus(
        job=name,
        uid=source.metadata.uid,
        store=wanted.store,
        # The agents find the incarnation of a step that the spec names.
        incarnation=0 if fixed else mark.incarnation,
        step=wanted.step or mark.step,
        loss=loss,
        since=now,
    )


def _store_problem(observed: Observed, wanted: CheckpointSource) -> Violation | None:
    store, name = observed.store, wanted.store
    if store is None:
        known = ", ".join(observed.known_stores) or "(there are none for this namespace yet)"
        return _missing(_STORE, f"there is no CheckpointStore {name!r}; create it or name one of: {known}")
    namespace = observed.job.metadata.namespace
    if not store.spec.allows(namespace):
        why = f"CheckpointStore {name!r} does not allow jobs of namespace {namespace!r}"
        return _missing(_STORE, f"{why}; add the namespace to the store's spec.allowedNamespaces")
    for condition in store.status.conditions:
        if condition.type == ConditionType.READY and condition.status == "False":
            return _missing(_STORE, f"CheckpointStore {name!r} cannot be used: {condition.message}")
    return None


def _same_source(wanted: CheckpointSource, chosen: ModelStatus) -> bool:
    """Return True if the chosen generation comes from the job and store that the spec names."""
    if chosen.store != wanted.store:
        return False
    if wanted.uid is not None:
        return chosen.uid == wanted.uid and chosen.step == wanted.step
    return chosen.job == wanted.job


def _unless_same(chosen: ModelStatus | None, wanted: ModelStatus) -> ModelStatus:
    """Return the chosen generation if it is the wanted one, so that its time stays."""
    if chosen and (chosen.uid, chosen.store, chosen.step) == (wanted.uid, wanted.store, wanted.step):
        return chosen
    return wanted


def _missing(path: str, why: str) -> Violation:
    reason = Reasons.MODEL_MISSING
    return Violation(reason, reason.format(path=path, why=why))
