"""The collection of Experiments, with methods to control and await one, and to run its plan again."""

from __future__ import annotations

from typing import Any

from convoy.client.api import Api
from convoy.client.awaited import WAIT_SECONDS, Awaited
from convoy.client.errors import Refused
from convoy.client.waiting import experiment_end
from convoy_crds.experiment import KIND, MUTABLE, Experiment
from convoy_crds.experiment_status import EXPERIMENT_ENDED
from convoy_crds.kind import Kind


class Experiments(Awaited[Experiment]):
    """The Experiments in the client's namespace."""

    def __init__(self, api: Api, kind: Kind[Experiment] = KIND) -> None:
        super().__init__(api, kind)

    def suspend(self, name: str) -> Experiment:
        """Start no more jobs. Jobs that run go on to their end.

        Raises Refused if the experiment has ended, was stopped before or is already suspended.
        """
        if self._controllable(name, "suspend").spec.suspend:
            raise Refused(f"experiment/{name} is already suspended; to go on, run: convoy resume {name}")
        return self._patch(name, {"spec": {"suspend": True}})

    def resume(self, name: str) -> Experiment:
        """Continue a suspended experiment. Raises Refused if it has ended, was stopped before or is not
        suspended.
        """
        if not self._controllable(name, "resume").spec.suspend:
            raise Refused(f"experiment/{name} is not suspended")
        return self._patch(name, {"spec": {"suspend": False}})

    def stop(self, name: str) -> Experiment:
        """Start no further run, and analyse the blocks that have ended. The experiment cannot go on
        afterwards.

        Raises Refused if the experiment has already ended or been stopped.
        """
        self._controllable(name, "stop")
        return self._patch(name, {"spec": {"stop": True}})

    def wait(self, name: str, timeout: float = WAIT_SECONDS) -> Experiment:
        """Wait until the experiment has ended, and return it. Its phase is then Succeeded, Invalid or Failed.

        `timeout` is in seconds and must be above 0. Raises WaitTimeout, NotFound or Unreachable.
        """
        return self._await(name, timeout, experiment_end())

    def rerun(self, name: str, other: str) -> Experiment:
        """Create the experiment `other` with the plan of the experiment `name`, and return it.

        The name is a part of the plan, so the plan's hash differs. Raises AlreadyExists if `other` exists.
        """
        body: dict[str, Any] = self._call("get", name)
        spec = {field: value for field, value in body["spec"].items() if field not in MUTABLE}
        labels = body["metadata"].get("labels")
        metadata = {"name": other, **({"labels": labels} if labels else {})}
        return self.create({"metadata": metadata, "spec": spec})

    def _controllable(self, name: str, verb: str) -> Experiment:
        """Return the experiment. Raises Refused if the experiment has already ended or been stopped."""
        found = self.get(name)
        again = f"to run its plan again, run: convoy experiment rerun {name} --as OTHER"
        if found.status.phase in EXPERIMENT_ENDED:
            raise Refused(
                f"experiment/{name} has ended ({found.status.phase}): there is nothing to {verb}; {again}"
            )
        if found.spec.stop:
            phase = found.status.phase or "not reconciled yet"
            raise Refused(f"experiment/{name} has already been stopped: {phase}; {again}")
        return found
