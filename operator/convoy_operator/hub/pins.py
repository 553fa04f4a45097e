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


class Pins:
    """Finds the generations that agents must keep."""

    def __init__(self, cache: ClusterCache, changed: Callable[[str], None]) -> None:
        """`changed`: called with the name of a store whose pinned generations may have changed."""
        self._cache = cache
        self._changed = changed
        self._revisions = cache.store(CONTROLLER_REVISIONS)
        self._revisions.add_index(_INDEX, _stores)
        self._revisions.listen(self._on_change)

    def on(self, node: str, store: str) -> tuple[wire.ModelSource, ...]:
        """Return the pinned generations in a store of the jobs whose pods need a node."""
        owners = {pod.view.owner_uid for pod in self._cache.members_on(node)}
        found = {
            _key(one, generation)
            for one in self._revisions.by_index(_INDEX, store)
            if (generation := _generation(one)).get("uid") in owners
        }
        return tuple(
            wire.ModelSource(
                namespace=namespace, job_uid=uid, store=store, incarnation=incarnation, step=step
            )
            for namespace, uid, incarnation, step in sorted(found)
        )

    def _on_change(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        stores = {name for one in (before, after) if one is not None for name in _stores(one)}
        for name in stores:
            self._changed(name)


def _generation(revision: CachedObject) -> Mapping[str, Any]:
    return (revision.raw.get("data") or {}).get("generation") or {}


def _stores(revision: CachedObject) -> Iterable[str]:
    store = _generation(revision).get("store")
    return (store,) if isinstance(store, str) else ()


def _key(revision: CachedObject, generation: Mapping[str, Any]) -> tuple[str, str, int, int]:
    incarnation, step = generation.get("incarnation") or 0, generation.get("step") or 0
    return revision.namespace, str(generation["uid"]), int(incarnation), int(step)
