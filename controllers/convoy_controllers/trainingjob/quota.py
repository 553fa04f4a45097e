"""Limits the pods of a job to the quota that its queue has admitted, and places them where the queue says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from convoy_controllers.placement.kueue.admission import PodSetAdmission, Stage
from convoy_controllers.placement.kueue.pods import Conflict, admitted
from convoy_controllers.placement.kueue.topology import Domain
from convoy_controllers.resources import KUEUE_WORKLOADS
from convoy_controllers.trainingjob import queueing
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod_ends import ended
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import Slot
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ANNOTATION_QUEUE_DOMAIN


class QuotaRooms:
    """The quota that is left for further pods of each role. Without a queue there is no limit."""

    def __init__(self, observed: Observed, layout: Iterable[Slot], own: Mapping[str, PodView]) -> None:
        """`own`: the job's own pods that stay, by name."""
        self.held: Violation | None = None
        """Reason why a pod within the quota cannot be created; None if there is none."""
        self._observed = observed
        self._queue = queueing.find(observed) if KUEUE_WORKLOADS in observed.served else None
        state = self._queue.admission if self._queue else None
        self._admission = state if state is not None and state.stage is Stage.ADMITTED else None
        live = [(slot, own[slot.pod]) for slot in layout if slot.pod in own and not ended(own[slot.pod])]
        there = Counter(slot.role for slot, _ in live)
        self._taken: dict[str, Counter[str]] = {}
        for slot, one in live:
            places = self._taken.setdefault(slot.role, Counter())
            places[one.annotations.get(ANNOTATION_QUEUE_DOMAIN, "")] += 1
        self._rooms = {
            role.name: queueing.role_count(role, self._admission) - there[role.name]
            for role in observed.job.spec.roles
        }

    def allows(self, slot: Slot) -> bool:
        """Return True if there is quota for the slot's pod."""
        return self._queue is None or self._rooms.get(slot.role, 0) > 0

    def reserve(self, slot: Slot) -> None:
        """Use up the quota of one pod."""
        if self._queue is not None:
            self._rooms[slot.role] -= 1

    def place(self, slot: Slot, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the manifest of a slot's pod with the fields of the admission; None if it has no place."""
        if self._queue is None:
            return body
        stored, state = self._queue.stored, self._admission
        if stored is None or state is None:
            return None
        own = state.pod_sets[slot.role]
        domain = self._domain(slot, own)
        if own.places is not None and domain is None:
            lost = ", ".join(sorted(state.unhealthy))
            more = f", because these nodes have failed: {lost}" if lost else ""
            self._hold(Reasons.QUEUE_PLACES, workload=stored.name, pod=slot.pod, more=more)
            return None
        flavors = self._observed.queue.flavors
        if unknown := [name for name in own.flavors if name not in flavors]:
            why = f"ResourceFlavor {', '.join(unknown)} does not exist"
            self._hold(Reasons.QUEUE_CONFLICT, role=slot.role, cluster_queue=state.cluster_queue, why=why)
            return None
        specs = [flavors[name] for name in own.flavors]
        try:
            found = admitted(body, stored.raw, slot.role, own, specs, domain)
        except Conflict as error:
            self._hold(Reasons.QUEUE_CONFLICT, role=slot.role, cluster_queue=state.cluster_queue, why=error)
            return None
        if domain is not None:
            self._taken.setdefault(slot.role, Counter())[domain.key] += 1
        return found

    def _domain(self, slot: Slot, own: PodSetAdmission) -> Domain | None:
        if own.places is None or self._admission is None:
            return None
        taken = self._taken.get(slot.role, Counter())
        return own.places.choose(slot.replica, taken, self._admission.unhealthy)

    def _hold(self, reason: Reason, **facts: object) -> None:
        self.held = self.held or Violation(reason, reason.format(**facts))
