"""The collection of Experiments, with methods to await and stop an experiment, and to run its plan again."""

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

    def stop(self, name: str) -> Experiment:
        """Start no further run, and analyse the blocks that have ended. The experiment cannot go on
        afterwards.

        Raises Refused if it has ended or was stopped before.
        """
        found = self.get(name)
        if found.status.phase in EXPERIMENT_ENDED:
            raise Refused(f"experiment/{name} has ended ({found.status.phase}): there is nothing to stop")
        if found.spec.stop:
            raise Refused(
                f"experiment/{name} was stopped before: {found.status.phase or 'not reconciled yet'}"
            )
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
