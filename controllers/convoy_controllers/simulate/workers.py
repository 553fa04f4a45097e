"""Containers of a simulated cluster, with their launchers and ranks.

Two mappings have pod uids as keys. `slots` has the reports of the pods' agents, and `by_uid` has the
containers. They can differ: when a container is killed, its agent gets no report about the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from convoy_controllers.commands import (
    Assign,
    DeliverModel,
    Endpoints,
    JobCommand,
    PickPort,
    ReportMembers,
    Shutdown,
)
from convoy_controllers.simulate.cluster_events import Notify, RanksStarted
from convoy_controllers.simulate.gang import Gang
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.trainingjob.trace_orders import ordered
from convoy_controllers.views import ModelView, RankView, SlotView
from convoy_controllers.workers.faults import PREEMPTED

SIGTERM, SIGKILL = 15, 9
LIVE = ("STARTING", "RUNNING")
FIRST_PORT = 29500


@dataclass(slots=True)
class Worker:
    """A container with its launcher."""

    uid: str
    pod: str
    job: str
    job_uid: str
    node: str
    grace: float
    """Seconds between SIGTERM and SIGKILL."""
    term_code: int = PREEMPTED
    """Exit code of a rank that SIGTERM ends. Codes above 128 mean that the signal itself ends the rank."""
    gang: Gang | None = None
    plan: Assign | None = None
    """Newest assignment that the pod's agent has."""
    ending: bool = False
    """True if the launcher has been ordered to end. It then accepts no further assignment."""
    shutdown: Shutdown | None = None
    """Shutdown command that the agent delivers when the launcher connects; None if there is none."""
    exit_code: int | None = None
    """Exit code of the container; None while it runs."""
    reason: str = ""

    @property
    def alone(self) -> bool:
        """True if the ranks form a group of their own: those of an Independent pod or of a replica."""
        return self.plan is not None and self.plan.job_uid != self.job_uid

    @property
    def live(self) -> bool:
        """True if the container runs."""
        return self.exit_code is None


class RankProgram(Protocol):
    """Interface to the simulation of the program that the ranks of jobs of one kind run."""

    endless: bool
    """True if no rank may end by itself."""

    def join(self, worker: Worker, assign: Assign) -> None:
        """Called when the ranks of a pod start to run."""
        ...

    def leave(self, worker: Worker, *, resets_peers: bool) -> None:
        """Called when ranks of a pod end. With `resets_peers`, the connections of their peers are reset."""
        ...

    def progress(self, worker: Worker, ranks: tuple[RankView, ...], moment: float) -> tuple[RankView, ...]:
        """Return the ranks with the steps that they had made by `moment`."""
        ...

    def interval_changed(self, worker: Worker) -> None:
        """Called when the checkpoint interval of a pod's ranks has changed."""
        ...

    def endpoints_changed(self, worker: Worker) -> None:
        """Called when an activator has learnt of other ready replicas."""
        ...

    def hang(self, uid: str) -> None:
        """Called when the rank of a pod hangs."""
        ...

    def slow(self, job_uid: str, rank: int, factor: float) -> None:
        """Called when a rank of a job takes another time to compute. `factor`: 1 for the usual time."""
        ...

    def drain(self, worker: Worker, drained: Callable[[], None]) -> None:
        """Called when a container gets SIGTERM. The program calls `drained` when its ranks may be ended."""
        ...


class Workers:
    """All containers of a cluster."""

    def __init__(self, kernel: Kernel, latencies: Latencies, notify: Notify) -> None:
        self._kernel = kernel
        self._latencies = latencies
        self._notify = notify
        self.program: Callable[[str], RankProgram]
        """Function that returns the program of a job, by the job's uid."""
        self.slots: dict[str, SlotView] = {}
        self.by_uid: dict[str, Worker] = {}
        self.changed: Callable[[str], None] = lambda uid: None
        """Called with the uid of a pod whose agent has a changed report."""
        self.ended: Callable[[Worker], None] = lambda worker: None
        """Called with a container that has ended."""

    # Containers

    def start(self, worker: Worker) -> None:
        """Start a container. Its launcher connects later."""
        self.by_uid[worker.uid] = worker
        self.slots[worker.uid] = SlotView(worker.uid, worker.node, False)
        self.changed(worker.uid)

    def connect(self, uid: str) -> None:
        """Connect a pod's launcher to its agent."""
        worker = self.by_uid.get(uid)
        if worker is not None and worker.live and uid in self.slots:
            self._set(uid, launcher_connected=True)
            if worker.shutdown is not None:
                self.handle_command(worker.shutdown)

    def terminate(self, uid: str) -> None:
        """Send SIGTERM to a container. Its ranks may save a checkpoint or drain; then its launcher ends."""
        worker = self.by_uid.get(uid)
        if worker is None or not worker.live or worker.ending:
            return
        worker.ending = True
        self._program(worker).drain(worker, lambda: self._drained(worker))

    def _drained(self, worker: Worker) -> None:
        self._kernel.after(min(self._term(), worker.grace), lambda: self._end_container(worker, None))

    def _program(self, worker: Worker) -> RankProgram:
        return self.program(worker.job_uid)

    def kill(self, uid: str, code: int = 128 + SIGKILL, reason: str = "Error") -> None:
        """Kill a container. Only processes with an open connection to the container notice its end."""
        worker = self.by_uid.get(uid)
        if worker is not None and worker.live:
            self._end(worker, code, reason)

    def lose_node(self, node: str) -> None:
        """Remove all containers of a node that has lost its power. No connection is reset."""
        for worker in [worker for worker in self.by_uid.values() if worker.node == node]:
            worker.exit_code = 128 + SIGKILL
            self._program(worker).leave(worker, resets_peers=False)
            self.remove(worker.uid)

    def remove(self, uid: str) -> None:
        """Remove a pod from its node."""
        self.by_uid.pop(uid, None)
        self.slots.pop(uid, None)
        self.changed(uid)

    def on(self, node: str) -> list[Worker]:
        """Return the containers of a node."""
        return [worker for worker in self.by_uid.values() if worker.node == node]

    def view(self, uid: str, moment: float) -> SlotView | None:
        """Return the report of a pod's agent, with the steps that the ranks had made by `moment`."""
        slot, worker = self.slots.get(uid), self.by_uid.get(uid)
        if slot is None or worker is None or not slot.ranks:
            return slot
        return replace(slot, ranks=self._program(worker).progress(worker, slot.ranks, moment))

    # Commands

    def handle_command(self, command: JobCommand) -> None:
        """Handle a command as the pod's launcher does.

        The agent itself delivers models. If the launcher is not connected to its agent, keep a Shutdown
        command for later and drop every other command.
        """
        slot = self.slots.get(command.pod_uid)
        worker = self.by_uid.get(command.pod_uid)
        if slot is None or (worker is not None and not worker.live):
            return
        if isinstance(command, DeliverModel):
            self._deliver(slot, command)
            return
        if not slot.launcher_connected:
            if worker is not None and isinstance(command, Shutdown):
                worker.shutdown = command
            return
        match command:
            case PickPort() if command.incarnation > max(slot.port_incarnation, slot.incarnation):
                port = FIRST_PORT + command.incarnation
                self._set(slot.pod_uid, port_incarnation=command.incarnation, master_port=port)
            case Assign() if command.incarnation > slot.incarnation:
                self._assign(self._worker_of(command, worker), command)
            case Assign() if worker is not None and command.incarnation == slot.incarnation:
                self._set_interval(worker, command)
                self._set_trace(worker, command)
            case Endpoints() if worker is not None and command.incarnation == slot.incarnation:
                self._set(slot.pod_uid, endpoints=command.addresses)
                self._program(worker).endpoints_changed(worker)
            case ReportMembers():
                self._set(slot.pod_uid, members_incarnation=command.incarnation)
            case Shutdown() if worker is not None:
                self._shut_down(worker, command)
            case _:
                pass

    def _deliver(self, slot: SlotView, command: DeliverModel) -> None:
        """Read a model from its store, as the agent does. The agent needs no launcher for that."""
        if slot.model is not None and slot.model.source == command.source:
            return
        model = ModelView(command.source, progress=self._kernel.now)
        self._set(slot.pod_uid, model=model)

        def delivered() -> None:
            now = self.slots.get(slot.pod_uid)
            if now is not None and now.model is model:
                self._set(slot.pod_uid, model=replace(model, ready=True, progress=self._kernel.now))

        self._kernel.after(self._kernel.about(self._latencies.model), delivered)

    def _worker_of(self, command: Assign, worker: Worker | None) -> Worker:
        """Return the container to which a command is sent. Create one if a test sends a command to a pod
        without one.
        """
        if worker is None:
            job = command.job.rpartition("/")[2]
            pod = f"{job}-{command.role}-{command.replica}"
            worker = self.by_uid[command.pod_uid] = Worker(
                command.pod_uid, pod, job, command.job_uid, command.node, 30.0
            )
        return worker

    def _assign(self, worker: Worker, command: Assign) -> None:
        if worker.ending:
            return
        self._program(worker).leave(worker, resets_peers=True)
        worker.plan = command
        numbers = range(command.rank_offset, command.rank_offset + command.processes)
        ranks = tuple(RankView(number, "STARTING") for number in numbers)
        every = _interval(command)
        self._set(worker.uid, incarnation=command.incarnation, ranks=ranks, interval_seconds=every)
        self._set(worker.uid, trace=ordered(command.trace), traces=())
        if self._latencies.rank_start:
            pause = self._kernel.about(self._latencies.rank_start)
            self._kernel.after(pause, lambda: self._start_ranks(worker, command))
        else:
            self._start_ranks(worker, command)

    def _set_interval(self, worker: Worker, command: Assign) -> None:
        if (every := _interval(command)) != self.slots[worker.uid].interval_seconds and not worker.ending:
            worker.plan = command
            self._set(worker.uid, interval_seconds=every)
            self._program(worker).interval_changed(worker)

    def _set_trace(self, worker: Worker, command: Assign) -> None:
        """Record the order for a trace. The simulated ranks record nothing."""
        if (order := ordered(command.trace)) != self.slots[worker.uid].trace and not worker.ending:
            self._set(worker.uid, trace=order, traces=())

    def _start_ranks(self, worker: Worker, command: Assign) -> None:
        slot = self.slots.get(worker.uid)
        if slot is None or not worker.live or worker.ending or slot.incarnation != command.incarnation:
            return
        self._notify(RanksStarted(worker.job, worker.job_uid, worker.pod, worker.uid, command.incarnation))
        now = self._kernel.now
        ranks = tuple(
            replace(rank, state="RUNNING", started=now, time=now) if rank.state == "STARTING" else rank
            for rank in slot.ranks
        )
        self._set(worker.uid, ranks=ranks)
        self._program(worker).join(worker, command)

    def _shut_down(self, worker: Worker, command: Shutdown) -> None:
        worker.ending = True
        pause = 0.0 if command.immediate else self._term()
        self._kernel.after(pause, lambda: self._end_container(worker, command.exit_code))

    def _term(self) -> float:
        return self._kernel.about(self._latencies.term)

    # Ends

    def end_rank(self, uid: str, number: int, code: int, *, signal: int = 0, **facts: Any) -> None:
        """End a rank's process, which the launcher notices at once. Do nothing if the rank has already
        ended.
        """
        worker = self.by_uid.get(uid)
        if worker is None or not worker.live or uid not in self.slots:
            return
        if not any(rank.rank == number and rank.state in LIVE for rank in self.slots[uid].ranks):
            return
        if code or signal or self._program(worker).endless:
            self._program(worker).leave(worker, resets_peers=True)
        now = self._kernel.now
        known = self._program(worker).progress(worker, self.slots[uid].ranks, now)
        ranks = tuple(
            replace(rank, state="EXITED", exit_code=code, signal=signal, ended=now, **facts)
            if rank.rank == number
            else rank
            for rank in known
        )
        self._set(uid, ranks=ranks)

    def _end_container(self, worker: Worker, code: int | None) -> None:
        """End the live ranks as SIGTERM does, and then the container.

        The container's exit code is `code`. If `code` is None, it is the worst exit code of the ranks.
        """
        if not worker.live or worker.uid not in self.slots:
            return
        left = [rank for rank in self.slots[worker.uid].ranks if rank.state in LIVE]
        for rank in left:
            signal = max(0, worker.term_code - 128)
            self.end_rank(worker.uid, rank.rank, worker.term_code, signal=signal)
        codes = [rank.exit_code for rank in self.slots[worker.uid].ranks]
        own = max(codes, key=lambda code: (code != 0, code != PREEMPTED), default=128 + SIGTERM)
        final = own if code is None else code
        self._end(worker, final, "Completed" if final == 0 else "Error")

    def _end(self, worker: Worker, code: int, reason: str) -> None:
        worker.exit_code, worker.reason = code, reason
        self._program(worker).leave(worker, resets_peers=True)
        if worker.uid in self.slots:
            self._set(worker.uid, launcher_connected=False)
        self.ended(worker)

    def _set(self, uid: str, **facts: Any) -> None:
        self.slots[uid] = replace(self.slots[uid], **facts)
        self.changed(uid)


def _interval(command: Assign) -> int:
    """Return the checkpoint interval in seconds that an assignment sets; 0 if it sets none."""
    return command.memory.interval_seconds if command.memory else 0
