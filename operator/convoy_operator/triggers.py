"""The triggers. They convert changes in the cluster cache into keys in the queue, as the controllers
declare.
"""

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
    """Adds the keys of all objects that a change affects to the queue."""

    def __init__(
        self,
        cache: ClusterCache,
        reader: Reader,
        queue: WorkQueue[Key],
        debounce: float,
        controllers: Iterable[Controller[Any]],
    ) -> None:
        """Register as a listener of the stores. `debounce` is the delay in seconds for changes that are not
        urgent.
        """
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
        """Queue a changed object of the controller's own kind."""
        item: Any = after if after is not None else before
        if own:
            return
        key = controller.key(item.namespace, item.name)
        if before is None or after is None or _spec(before) != _spec(after):
            self._queue.add(key)
        else:
            # Use low priority and a delay, because only the status or the metadata changed.
            self._queue.add(key, self._debounce, high=False)

    def _watched(
        self, controller: Controller[Any], watch: Watch, before: Any | None, after: Any | None, own: bool
    ) -> None:
        if own and not watch.own:
            return
        if before is not None and after is not None and watch.concern(before) == watch.concern(after):
            return
        urgent = watch.urgent(before, after)
        # Give controllers of node objects low priority: nodes come in thousands, and jobs must go first.
        high = urgent or not controller.reflector
        for namespace, name in watch.keys(self._reader, before, after):
            self._queue.add(controller.key(namespace, name), 0.0 if urgent else self._debounce, high=high)


def _spec(parent: CachedObject) -> tuple[str, int]:
    return parent.uid, parent.generation
