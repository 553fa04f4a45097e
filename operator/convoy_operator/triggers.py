"""The way from changes in the caches to keys in the queue, derived from the controllers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.controller import Controller, Watch
from convoy_controllers.keys import Key
from convoy_controllers.reader import Reader
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.queue import WorkQueue


class Triggers:
    """Adds the keys that a change concerns to the queue."""

    def __init__(
        self,
        cache: ClusterCache,
        reader: Reader,
        queue: WorkQueue[Key],
        debounce: float,
        controllers: Iterable[Controller[Any]],
    ) -> None:
        """`debounce`: seconds that news wait which comes in bursts."""
        self._reader = reader
        self._queue = queue
        self._debounce = debounce
        for controller in controllers:
            if controller.kind is not None:
                cache.store(controller.resource).listen(partial(self._object, controller))
            for watch in controller.watches:
                cache.store(watch.resource).listen(partial(self._watched, controller, watch))

    def _object(
        self, controller: Controller[Any], before: CachedObject | None, after: CachedObject | None, own: bool
    ) -> None:
        """An object of the controller itself has changed."""
        item: Any = after if after is not None else before
        if own:
            return
        key = controller.key(item.namespace, item.name)
        if before is None or after is None or _spec(before) != _spec(after):
            self._queue.add(key)
        else:
            # Its status or metadata: reconciled, but not at once.
            self._queue.add(key, self._debounce, high=False)

    def _watched(
        self, controller: Controller[Any], watch: Watch, before: Any | None, after: Any | None, own: bool
    ) -> None:
        if own and not watch.own:
            return
        if before is not None and after is not None and watch.concern(before) == watch.concern(after):
            return
        urgent = watch.urgent(before, after)
        # Nodes come in thousands, and their requests wait for the budget of nodes: jobs go first.
        high = urgent or not controller.reflector
        for namespace, name in watch.keys(self._reader, before, after):
            self._queue.add(controller.key(namespace, name), 0.0 if urgent else self._debounce, high=high)


def _spec(parent: CachedObject) -> tuple[str, int]:
    return parent.uid, parent.generation
