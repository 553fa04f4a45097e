"""The base class of collections whose objects have Events and reach a state that a program waits for."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any, TypeVar

from convoy.client.collection import Writable
from convoy.client.errors import ApiError, NotFound, Unreachable, WaitTimeout
from convoy.client.waiting import Goal
from convoy.client.watch import watch_object
from convoy_crds.experiment import Experiment
from convoy_crds.servingjob import ServingJob
from convoy_crds.trainingjob import TrainingJob

WAIT_SECONDS = 3600.0
"""Default timeout of waits, in seconds."""

A = TypeVar("A", TrainingJob, ServingJob, Experiment)
"""The model of a kind whose objects reach an end."""


class Awaited(Writable[A]):
    """The objects of one kind in the client's namespace, with their Events, and a method to wait for a
    state of one.
    """

    def events(self, uid: str) -> list[Any]:
        """Return the Events of the object or pod with that uid, in no particular order, as objects of the
        package kubernetes.
        """
        found = self._api.call(
            self._api.core.list_namespaced_event,
            self._api.namespace,
            field_selector=f"involvedObject.uid={uid}",
        )
        return list(found.items)

    def _await(self, name: str, timeout: float, goal: Goal[A]) -> A:
        """Watch an object until the object has reached the goal, and return the object. Raises WaitTimeout
        after `timeout` seconds.
        """
        if timeout <= 0:
            raise ValueError(f"timeout must be above 0, is {timeout:g}")
        deadline = time.monotonic() + timeout
        known: A | None = None
        late = ""
        try:
            with closing(watch_object(self._api, self._kind.plural, name, deadline)) as found:
                for body in found:
                    here = None if body is None else self._read(body)
                    known = self._same_object(name, known, here)
                    if goal.reached(known):
                        return known
        except (Unreachable, ApiError) as error:
            if known is None or isinstance(error, NotFound) or time.monotonic() < deadline:
                raise
            late = f"; last error: {error}"
        state = "it could not be read" if known is None else goal.describe(known)
        raise WaitTimeout(f"{name} is not {goal.name} after {timeout:g} s: {state}{late}", known)

    def _same_object(self, name: str, before: A | None, here: A | None) -> A:
        """Return the object as it is now. Raises NotFound if it does not exist, or if another object has its
        name.
        """
        full = f"{self._kind.name.lower()}/{name}"
        if before is None and here is None:
            raise NotFound(f"there is no {full}", 404)
        if here is None or (before is not None and before.metadata.uid != here.metadata.uid):
            raise NotFound(f"{full} was deleted during the wait", 404)
        return here
