"""The generations in stores that ServingJobs load, now or after an undo of a rollout.

The agents of the jobs that saved them must keep them. They stand in the stored revisions of ServingJobs, so
the list is as short as the lists of revisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.cached import CachedObject
from convoy_controllers.resources import CONTROLLER_REVISIONS
from convoy_operator.cluster_cache import ClusterCache

_INDEX = "data.generation.store"


_Pin = tuple[str, str, int, int]
"""Namespace, uid of the TrainingJob, incarnation and step."""


class Pins:
    """Finds the generations that agents must keep."""

    def __init__(self, cache: ClusterCache, changed: Callable[[str], None]) -> None:
        """`changed`: called with the name of a store whose pinned generations may have changed."""
        self._cache = cache
        self._changed = changed
        self._known: dict[str, Mapping[str, set[_Pin]]] = {}
        """The pins of a store by uid of the TrainingJob, by name of the store. Made again after a change."""
        self._revisions = cache.store(CONTROLLER_REVISIONS)
        self._revisions.add_index(_INDEX, _stores)
        self._revisions.listen(self._on_change)

    def on(self, node: str, store: str) -> tuple[wire.ModelSource, ...]:
        """Return the pinned generations in a store of the jobs whose pods need a node."""
        pins = self._of(store)
        owners = {pod.view.owner_uid for pod in self._cache.members_on(node)}
        found = {pin for owner in owners if owner is not None for pin in pins.get(owner, ())}
        return tuple(
            wire.ModelSource(
                namespace=namespace, job_uid=uid, store=store, incarnation=incarnation, step=step
            )
            for namespace, uid, incarnation, step in sorted(found)
        )

    def _of(self, store: str) -> Mapping[str, set[_Pin]]:
        """Return the pins of a store, by uid of the TrainingJob."""
        if store not in self._known:
            found: dict[str, set[_Pin]] = {}
            for one in self._revisions.by_index(_INDEX, store):
                if (pin := _pin(one)) is not None:
                    found.setdefault(pin[1], set()).add(pin)
            self._known[store] = found
        return self._known[store]

    def _on_change(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        stores = {name for one in (before, after) if one is not None for name in _stores(one)}
        for name in stores:
            self._known.pop(name, None)
            self._changed(name)


def _generation(revision: CachedObject) -> Mapping[str, Any]:
    data = revision.raw.get("data")
    found = data.get("generation") if isinstance(data, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _stores(revision: CachedObject) -> Iterable[str]:
    store = _generation(revision).get("store")
    return (store,) if isinstance(store, str) else ()


def _pin(revision: CachedObject) -> _Pin | None:
    """Return the generation of a revision; None if it is malformed."""
    found = _generation(revision)
    uid, incarnation, step = found.get("uid"), found.get("incarnation", 0), found.get("step", 0)
    if not isinstance(uid, str) or not isinstance(incarnation, int) or not isinstance(step, int):
        return None
    return revision.namespace, uid, incarnation, step
