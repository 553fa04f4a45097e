"""The length of a gang's steps: all ranks wait for the slowest one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from convoy_controllers.simulate.cluster_events import Notify, TrainingPaused, TrainingResumed
from convoy_controllers.simulate.gang import Gang
from convoy_controllers.simulate.workers import Workers


class StepLengths:
    """The slow nodes and ranks of a cluster."""

    def __init__(self, workers: Workers, notify: Notify) -> None:
        self._workers = workers
        self._notify = notify
        self.nodes: dict[str, float] = {}
        """Factor by which each slow node lengthens a step, by name of the node."""
        self.ranks: dict[tuple[str, int], float] = {}
        """Factor by which each slow rank lengthens a step, by job uid and rank."""

    def of(self, gang: Gang) -> float:
        """Return the seconds of a step of a gang."""
        workers = (self._workers.by_uid.get(uid) for uid in gang.members)
        nodes = [self.nodes.get(worker.node, 1.0) for worker in workers if worker is not None]
        ranks = [factor for (job, _), factor in self.ranks.items() if job == gang.job_uid]
        return gang.program.step_seconds * max([1.0, *nodes, *ranks])

    def apply(self, gangs: Iterable[Gang], now: float) -> Iterator[Gang]:
        """Change the length of the steps that gangs make, and yield each gang whose length has changed. Its
        next event is then due at another time.
        """
        for gang in list(gangs):
            length = self.of(gang)
            if gang.stepping and length != gang.stretches[-1].length:
                # A pause that takes no time, so that the true ledger counts the steps of each length apart.
                if gang.first_step:
                    self._notify(TrainingPaused(gang))
                gang.change_length(now, length)
                if gang.first_step:
                    self._notify(TrainingResumed(gang))
                yield gang
