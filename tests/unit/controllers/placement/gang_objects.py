"""PodGroups for tests of gangs: an API server that stores what plans apply, and drops what its gates ask."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply
from convoy_controllers.placement.gang_choice import GANG_RESOURCES
from convoy_controllers.placement.gangs import BACKENDS
from convoy_controllers.plan import Plan
from convoy_controllers.resources import Resource

NATIVE, COSCHEDULING, VOLCANO = BACKENDS
V1BETA1, V1ALPHA3, V1ALPHA2 = NATIVE.resources
PLUGINS, VOLCANO_GROUPS = COSCHEDULING.resources[0], VOLCANO.resources[0]


class PodGroups:
    """The PodGroups of one cluster."""

    def __init__(self, *served: Resource, topology: bool = False) -> None:
        self.served = frozenset(served)
        self.topology = topology
        """True if the API server keeps `schedulingConstraints`."""
        self.refuses = ""
        """The API server's reason for refusing PodGroups; empty if it accepts them."""
        self.stored: dict[tuple[Resource, str], dict[str, Any]] = {}
        self.applied: list[Apply] = []

    @property
    def names(self) -> list[str]:
        """The names of the stored PodGroups."""
        return sorted({name for _, name in self.stored})

    def only(self) -> dict[str, Any]:
        """Return the only stored PodGroup."""
        [(_, name)] = self.stored
        return next(iter(self.stored.values())) if name else {}

    def objects(self, read: Collection[Resource]) -> tuple[CachedObject, ...]:
        """Return the objects of these resources. An object shows in every version of its API."""
        return tuple(
            CachedObject("default", name, f"uid-{name}", 1, body)
            for resource in read
            for (stored, name), body in self.stored.items()
            if (stored.group, stored.plural) == (resource.group, resource.plural)
        )

    def carry_out(self, made: Plan, now: datetime) -> None:
        """Store the PodGroups that a plan applies, and delete those that it prunes."""
        for child in made.children:
            if isinstance(child, Apply) and child.resource in GANG_RESOURCES:
                assert child.resource in self.served, "the API is not served"
                self.applied.append(child)
                if not self.refuses:
                    self._store(child, now)
        kept = {(one.resource, one.name) for one in made.children if isinstance(one, Apply)}
        for resource in made.prune:
            for stored, name in list(self.stored):
                shown = (stored.group, stored.plural) == (resource.group, resource.plural)
                if shown and resource in self.served and (resource, name) not in kept:
                    del self.stored[stored, name]

    def _store(self, child: Apply, now: datetime) -> None:
        body = copy.deepcopy(dict(child.manifest))
        if not self.topology:
            body["spec"].pop("schedulingConstraints", None)
        before = self.stored.get((child.resource, child.name))
        if before is not None:
            assert before["spec"] == body["spec"], "the spec of a PodGroup is immutable"
            return
        body["metadata"]["creationTimestamp"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.stored[child.resource, child.name] = body

    def set_status(self, name: str, status: Mapping[str, Any]) -> None:
        """Let the scheduler write the status of a PodGroup."""
        for (_, other), body in self.stored.items():
            if other == name:
                body["status"] = dict(status)


def scheduled(value: str = "True", message: str = "", kind: str = "PodGroupScheduled") -> dict[str, Any]:
    """Return the status that kube-scheduler writes."""
    return {"conditions": [{"type": kind, "status": value, "reason": "Scheduled", "message": message}]}
