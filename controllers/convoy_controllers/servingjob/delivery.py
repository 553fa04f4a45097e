"""Delivers the model of a revision to pods. The agents read the store; no rank starts before its model is in
its pod.

An agent keeps trying after a failure, so a failure lasts as long as its cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from convoy_controllers.commands import DeliverModel
from convoy_controllers.servingjob.groups import Group, Key
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.revision import Generation, Revision
from convoy_controllers.views import ModelSource, ModelView, PodView
from convoy_controllers.workers.violation import Violation
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason

_REASONS: Mapping[str, Reason] = {
    "NOT_FOUND": Reasons.MODEL_NOT_FOUND,
    "DIGEST_MISMATCH": Reasons.MODEL_DIGEST_MISMATCH,
    "STORE_UNREACHABLE": Reasons.MODEL_STORE_UNREACHABLE,
    "NOT_STORED": Reasons.MODEL_NOT_STORED,
    "IN_JOURNAL": Reasons.MODEL_IN_JOURNAL,
}
"""Reasons of failed deliveries, by the agent's name of the failure."""


def delivered(observed: Observed, group: Group, revision: Revision) -> bool:
    """Return True if all pods of a group have the model of its revision, or if the revision needs none."""
    wanted = revision.spec.generation
    if wanted is None:
        return True
    return all(
        (found := _report(observed, pod, wanted)) is not None and found.ready for pod in group.pods.values()
    )


def commands(observed: Observed, group: Group, revision: Revision) -> tuple[DeliverModel, ...]:
    """Return the orders that agents of a group still need. An agent gets its order as soon as the kubelet
    has mounted a volume of the pod, so the download runs while the image is pulled.
    """
    wanted = revision.spec.generation
    if wanted is None or wanted.store not in observed.known_stores:
        return ()
    return tuple(
        DeliverModel(pod.node or "", pod.uid, source(observed, wanted))
        for _, pod in sorted(group.pods.items())
        if pod.uid in observed.slots and not pod.deleting and _report(observed, pod, wanted) is None
    )


def source(observed: Observed, wanted: Generation) -> ModelSource:
    """Return the generation as agents name it."""
    namespace = observed.job.metadata.namespace or ""
    return ModelSource(namespace, wanted.uid, wanted.store, wanted.incarnation, wanted.step)


def _report(observed: Observed, pod: PodView, wanted: Generation) -> ModelView | None:
    """Return the agent's report on a delivery; None if the agent does not know the order."""
    view = observed.slots.get(pod.uid)
    if view is None or view.model is None or view.model.source != source(observed, wanted):
        return None
    return view.model


def faults(
    observed: Observed, groups: Iterable[Group], revisions: Mapping[str, Revision]
) -> dict[Key, Violation]:
    """Return the failed delivery of each group that waits for its model."""
    found = {}
    for group in groups:
        revision = revisions.get(group.record.revision)
        if group.record.membership or revision is None or revision.spec.generation is None:
            continue
        if fault := _fault(observed, group, revision.spec.generation):
            found[group.key] = fault
    return found


def _fault(observed: Observed, group: Group, wanted: Generation) -> Violation | None:
    if group.pods and wanted.store not in observed.known_stores:
        namespace = observed.job.metadata.namespace
        reason = Reasons.MODEL_MISSING
        why = (
            f"replica {group.name} needs CheckpointStore {wanted.store!r}, which does not exist or does not "
            f"allow jobs of namespace {namespace!r}; add the namespace to the store's spec.allowedNamespaces"
        )
        return Violation(reason, reason.format(path="spec.model.checkpoint.store", why=why))
    job = _command_arguments(observed, wanted)
    for _, pod in sorted(group.pods.items()):
        report = _report(observed, pod, wanted)
        if report is not None and report.failure:
            reason = _REASONS.get(report.failure, Reasons.MODEL_STORE_UNREACHABLE)
            facts = {"pod": pod.name, "node": pod.node, "why": report.message.rstrip(".")}
            return Violation(reason, reason.format(store=wanted.store, job=job, **facts))
    return None


def _command_arguments(observed: Observed, wanted: Generation) -> str:
    """Return the arguments by which `convoy checkpoint` finds the TrainingJob of a generation."""
    model = observed.job.status.model
    if model is not None and model.uid == wanted.uid and model.job:
        return model.job
    return f"NAME --store {wanted.store} --uid {wanted.uid}"


def waiting(observed: Observed, groups: Iterable[Group], revisions: Mapping[str, Revision]) -> str:
    """Return the name of a pod that waits for its model, in a sentence; empty if none waits."""
    for group in groups:
        revision = revisions.get(group.record.revision)
        wanted = revision.spec.generation if revision else None
        if group.record.membership or wanted is None:
            continue
        for _, pod in sorted(group.pods.items()):
            report = _report(observed, pod, wanted)
            if pod.uid in observed.slots and (report is None or not report.ready):
                return f"pod {pod.name} waits until node {pod.node} has read its model from {wanted.store!r}"
    return ""


def progress(observed: Observed, group: Group) -> float:
    """Return the Unix time at which a delivery to a pod of the group last made progress; 0 if none has."""
    views = (observed.slots.get(pod.uid) for pod in group.pods.values())
    return max((one.model.progress for one in views if one is not None and one.model), default=0.0)
