"""The ranks of all simulated replicas: how they load, serve, hang, drain and end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from convoy_controllers.commands import Assign
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.machines import Machine, Machines
from convoy_controllers.simulate.serving.activator import Activator
from convoy_controllers.simulate.serving.program import Failure, ServingProgram
from convoy_controllers.simulate.serving.replica import Replica
from convoy_controllers.simulate.serving.requests import Cause, Outcome
from convoy_controllers.simulate.workers import LIVE, Worker, Workers
from convoy_controllers.views import RankView
from convoy_crds.servingjob_rollout import ENDPOINT_LAG_SECONDS
from convoy_crds.terms import ROLE_ACTIVATOR

STALL_SECONDS = 5.0
"""Seconds without a heartbeat after which a launcher reports its pod as not ready
(convoy_workloads.launcher.probes).
"""
ABORT_SECONDS = 0.5
"""Seconds from a hang's time limit until the launcher's watchdog aborts the rank."""
LOADING_SECONDS = 10.0
"""Seconds between two reports that a replica is still loading."""
FOLLOW_SECONDS = 0.2
"""Seconds between two checks of a rank whether slot 0 of its replica has ended."""
SIGABRT = 6


@dataclass(frozen=True, slots=True)
class RevisionFacts:
    """The program of a revision's replicas."""

    program: ServingProgram
    broken: bool
    """True if the revision does not work."""
    drain_seconds: float
    hold_seconds: float = 0.0
    """Longest time for which an activator holds a request."""


class ServingRanks:
    """The ranks of all ServingJobs. It is the program that the launchers run."""

    endless = True

    def __init__(
        self,
        kernel: Kernel,
        workers: Workers,
        machines: Machines,
        revision_of: Callable[[Worker], RevisionFacts | None],
    ) -> None:
        """Create the ranks. `revision_of` returns the program of a container; None if the container's job
        has none.
        """
        self._kernel = kernel
        self._workers = workers
        self._machines = machines
        self._revision_of = revision_of
        self._forming: dict[tuple[str, str, int, int], Replica] = {}
        """Replicas of which not all ranks run yet, by job uid, role, number and incarnation."""
        self.by_pod: dict[str, Replica] = {}
        """The replica to which the running rank of a pod belongs, by pod uid."""
        self.changed: Callable[[str], None] = lambda uid: None
        """Called with the uid of a pod that may have started or stopped to serve."""
        self.held: Callable[[str], None] = lambda uid: None
        """Called with the uid of an activator that begins to hold requests."""
        self.pod_at: Callable[[str, str], str] = lambda job, ip: ""
        """(job, ip) -> uid of the job's pod with this IP; empty if there is none."""
        machines.changed.append(self._machine_changed)

    # State

    def ready(self, uid: str) -> bool:
        """Return True if the launcher of a pod reports that the pod is ready."""
        replica, worker = self.by_pod.get(uid), self._workers.by_uid.get(uid)
        if replica is None or worker is None or not worker.live or worker.ending:
            return False
        if not replica.loaded or replica.ended:
            return False
        return not replica.hung_since or self._kernel.now < replica.hung_since + STALL_SECONDS

    def reachable(self, uid: str) -> bool:
        """Return True if clients can reach a pod's node."""
        worker = self._workers.by_uid.get(uid)
        return worker is not None and self.node_reachable(worker.node)

    def node_reachable(self, node: str) -> bool:
        """Return True if clients can reach a node."""
        return _connected(self._machines[node])

    # Calls from launchers

    def join(self, worker: Worker, assign: Assign) -> None:
        """Add a pod's running rank to its replica. The replica loads when all ranks have joined."""
        revision = self._revision_of(worker)
        if revision is None:
            return
        key = (worker.job_uid, assign.role, assign.replica, assign.incarnation)
        kind = Activator if assign.role == ROLE_ACTIVATOR else Replica
        found = self._forming.get(key) or kind(
            kernel=self._kernel,
            job=worker.job,
            role=assign.role,
            incarnation=assign.incarnation,
            size=assign.world_size,
            program=revision.program,
            broken=revision.broken,
            drain_seconds=revision.drain_seconds,
        )
        if isinstance(found, Activator):
            found.hold_seconds = revision.hold_seconds
            found.choose = lambda: self._first_known(worker)
            found.on_first = lambda: self.held(worker.uid)
        self._forming[key] = found
        found.members.add(worker.uid)
        self.by_pod[worker.uid] = found
        if assign.slot == 0:
            found.head = worker.uid
        if found.whole:
            del self._forming[key]
            found.loading_since = self._kernel.now
            self._report_loading(found)
            self._kernel.after(self._kernel.about(found.program.load_seconds), lambda: self._loaded(found))

    def _first_known(self, worker: Worker) -> Replica | None:
        """Return a replica that an activator knows, and whose node it can reach; None if there is none."""
        for address in self._workers.slots[worker.uid].endpoints:
            uid = self.pod_at(worker.job, address.rpartition(":")[0])
            if uid in self.by_pod and self.reachable(uid) and self.reachable(worker.uid):
                return self.by_pod[uid]
        return None

    def leave(self, worker: Worker, *, resets_peers: bool) -> None:
        """Remove a pod's rank from its replica. The requests of the replica are lost."""
        replica = self.by_pod.pop(worker.uid, None)
        if replica is None:
            return
        replica.members.discard(worker.uid)
        replica.ended = True
        replica.abort(Outcome.LOST)
        self._forming = {key: one for key, one in self._forming.items() if one is not replica}
        self._changed(replica)
        self.changed(worker.uid)

    def progress(self, worker: Worker, ranks: tuple[RankView, ...], moment: float) -> tuple[RankView, ...]:
        """Return the ranks with the time of their last report of loading."""
        replica = self.by_pod.get(worker.uid)
        if replica is None or replica.loaded or replica.ended or not replica.loading_since:
            return ranks
        return tuple(
            replace(rank, loading=moment) if rank.state == "RUNNING" and not replica.broken else rank
            for rank in ranks
        )

    def interval_changed(self, worker: Worker) -> None:
        """Do nothing: replicas save no checkpoints."""

    def endpoints_changed(self, worker: Worker) -> None:
        """Let an activator pass on what waits."""
        found = self.by_pod.get(worker.uid)
        if isinstance(found, Activator):
            found.release()

    def slow(self, job_uid: str, rank: int, factor: float) -> None:
        """Do nothing: scenarios name no rank of a ServingJob by its number."""

    def hang(self, uid: str) -> None:
        """Hang a replica. Later the launchers' watchdogs abort all its ranks."""
        replica, worker = self.by_pod.get(uid), self._workers.by_uid.get(uid)
        if replica is None or worker is None or worker.plan is None or replica.hung_since:
            return
        replica.hang()
        self._kernel.after(STALL_SECONDS, lambda: self._changed(replica))
        limit = worker.plan.hang_seconds + ABORT_SECONDS
        self._kernel.after(limit, lambda: self._abort_ranks(replica))
        self._changed(replica)

    def drain(self, worker: Worker, drained: Callable[[], None]) -> None:
        """Drain a replica after SIGTERM. Slot 0 accepts requests until all proxies know that the pod ends.
        The other slots run until slot 0 has ended.
        """
        replica = self.by_pod.get(worker.uid)
        self.changed(worker.uid)
        if replica is None or not replica.loaded or replica.ended:
            drained()
            return
        if worker.uid == replica.head:
            replica.idle = drained
            self._kernel.after(ENDPOINT_LAG_SECONDS, lambda: self._refuse(replica))
            self._kernel.after(ENDPOINT_LAG_SECONDS + replica.drain_seconds, lambda: self._cut_off(replica))
        else:
            self._kernel.play(self._follow(replica, worker, drained))

    def _follow(self, replica: Replica, worker: Worker, drained: Callable[[], None]) -> Iterator[float]:
        """End a rank of another slot when slot 0 has ended, or at the end of the pod's grace period."""
        until = self._kernel.now + max(0.0, worker.grace - 1.0)
        while worker.live and not replica.ended and self._kernel.now < until:
            yield FOLLOW_SECONDS
        if worker.live:
            drained()

    def _refuse(self, replica: Replica) -> None:
        replica.refuse()
        self._changed(replica)

    def _cut_off(self, replica: Replica) -> None:
        if not replica.ended:
            replica.abort(Outcome.FAILED, Cause.DRAIN)

    # Loading

    def _loaded(self, replica: Replica) -> None:
        if replica.ended:
            return
        if not replica.broken:
            replica.loaded = True
            self._report(replica)
            self._changed(replica)
        elif replica.program.failure is Failure.CRASH:
            self._end_ranks([replica.head], 1)

    def _report_loading(self, replica: Replica) -> None:
        """Let the agents report from time to time that the replica loads."""
        if replica.ended or replica.loaded or replica.broken:
            return
        self._report(replica)
        self._kernel.after(LOADING_SECONDS, lambda: self._report_loading(replica))

    def _report(self, replica: Replica) -> None:
        for uid in sorted(replica.members):
            self._workers.changed(uid)

    # Ends

    def _abort_ranks(self, replica: Replica) -> None:
        if replica.hung_since and not replica.ended:
            self._end_ranks(sorted(replica.members), 128 + SIGABRT, signal=SIGABRT, hung=True)

    def _end_ranks(self, uids: Iterable[str], code: int, *, signal: int = 0, hung: bool = False) -> None:
        for uid in uids:
            for rank in self._workers.slots[uid].ranks:
                if rank.state in LIVE:
                    self._workers.end_rank(uid, rank.rank, code, signal=signal, hung=hung)

    def _machine_changed(self, machine: Machine) -> None:
        for worker in self._workers.on(machine.name):
            replica = self.by_pod.get(worker.uid)
            if replica is not None and replica.head == worker.uid and not _connected(machine):
                replica.abort(Outcome.LOST)
            self.changed(worker.uid)

    def _changed(self, replica: Replica) -> None:
        for uid in sorted(replica.members):
            self.changed(uid)


def _connected(machine: Machine) -> bool:
    return machine.up and not machine.cut
