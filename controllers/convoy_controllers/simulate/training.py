"""Training of a job's ranks: together they form a process group, step, save, hang, and fail.

A gang is the ranks of one incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from convoy_controllers.commands import Assign
from convoy_controllers.simulate.cluster_events import (
    CheckpointCommitted,
    FirstStep,
    Notify,
    TrainingPaused,
    TrainingResumed,
    TrainingStopped,
)
from convoy_controllers.simulate.gang import Gang
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.program import Program
from convoy_controllers.simulate.saves import SavedCheckpoints
from convoy_controllers.simulate.step_lengths import StepLengths
from convoy_controllers.simulate.workers import LIVE, Worker, Workers
from convoy_controllers.views import RankView

ABORT_SECONDS = 0.5
"""Seconds from the moment at which a step exceeds its time limit until a launcher's watchdog aborts the
ranks.
"""
FIRST_STEP_FACTOR = 3.0
"""The first step may take hangSeconds times this factor (convoy_workloads.runtime.heartbeat)."""
SIGABRT = 6


@dataclass(slots=True)
class Job:
    """Program and checkpoints of a job. Without a program, the job's ranks step only when a test makes them
    step.
    """

    program: Program | None = None
    save_every: float = 0.0
    """Seconds between two checkpoints, as set in the pods; 0 for no checkpoints."""
    saves: SavedCheckpoints = field(default_factory=SavedCheckpoints)


class GangTraining:
    """The gangs of all jobs.

    `jobs` has the jobs by uid. `reaches` returns True if two nodes can exchange packets.
    """

    endless = False

    def __init__(
        self,
        kernel: Kernel,
        workers: Workers,
        jobs: Mapping[str, Job],
        reaches: Callable[[str, str], bool],
        notify: Notify,
    ) -> None:
        self._kernel = kernel
        self._workers = workers
        self._jobs = jobs
        self._reaches = reaches
        self._notify = notify
        self.gangs: dict[tuple[str, int], Gang] = {}
        self._lengths = StepLengths(workers, notify)

    # Calls from launchers

    def join(self, worker: Worker, assign: Assign) -> None:
        """Add a pod's running ranks to their gang. The gang starts when all ranks have joined. An Independent
        pod joins none.
        """
        program = self._jobs[worker.job_uid].program if worker.job_uid in self._jobs else None
        if program is None:
            return
        if worker.alone:
            self._start_alone(worker, assign, program)
            return
        key = (worker.job_uid, assign.incarnation)
        gang = self.gangs.get(key)
        if gang is None:
            size = assign.world_size
            gang = self.gangs[key] = Gang(worker.job, worker.job_uid, assign.incarnation, size, program)
            for old in [
                old for old in self.gangs if old[0] == worker.job_uid and old[1] < assign.incarnation - 8
            ]:
                del self.gangs[old]
        worker.gang = gang
        gang.joined[worker.uid] = assign.processes
        if gang.whole:
            gang.members = frozenset(gang.joined)
            pause = program.join_seconds + (program.restore_seconds if self._restorable_step(gang) else 0.0)
            self._later(gang, self._kernel.about(pause), self._start_stepping)

    def _start_alone(self, worker: Worker, assign: Assign, program: Program) -> None:
        """Start the program of an Independent pod. It exits with code 0 after a time, or runs on."""

        def complete() -> None:
            slot = self._workers.slots.get(worker.uid)
            if slot is not None and slot.incarnation == assign.incarnation:
                self._workers.end_rank(worker.uid, 0, 0)

        if program.independent_seconds:
            self._kernel.after(self._kernel.about(program.independent_seconds), complete)

    def leave(self, worker: Worker, *, resets_peers: bool) -> None:
        """Remove a pod's ranks from their gang. The gang makes no more steps."""
        gang = worker.gang
        if gang is None:
            return
        self._stop_for_good(gang)
        slot = self._workers.slots.get(worker.uid)
        if slot is not None:
            # Store the ranks' last steps now, because they cannot be computed after the pod has left the
            # gang.
            ranks = self.progress(worker, slot.ranks, self._kernel.now)
            self._workers.slots[worker.uid] = replace(slot, ranks=ranks)
        worker.gang = None
        gang.joined.pop(worker.uid, None)
        if resets_peers:
            self._kernel.after(
                self._kernel.about(gang.program.peer_exit_seconds), lambda: self._end_peers(gang, worker.node)
            )
        elif gang.program.peer_timeout_seconds:
            self._kernel.after(gang.program.peer_timeout_seconds, lambda: self._end_peers(gang, None))

    def progress(self, worker: Worker, ranks: tuple[RankView, ...], moment: float) -> tuple[RankView, ...]:
        """Return the ranks with the steps that they had made by `moment`."""
        return ranks if worker.gang is None else worker.gang.progress(ranks, moment)

    def endpoints_changed(self, worker: Worker) -> None:
        """Do nothing: ranks of a training pass no requests on."""

    def interval_changed(self, worker: Worker) -> None:
        """Apply a changed checkpoint interval of a pod's ranks to their gang."""
        gang = worker.gang
        if gang is not None and gang.stepping and gang.first_step:
            self._next(gang)

    def drain(self, worker: Worker, drained: Callable[[], None]) -> None:
        """Let the ranks end, because they save a checkpoint within the latency of SIGTERM."""
        drained()

    # Faults

    def hang(self, uid: str) -> None:
        """Hang a rank, and with it the whole gang. Later the launchers' watchdogs abort all ranks."""
        worker = self._workers.by_uid.get(uid)
        if worker is not None and worker.gang is not None and not worker.gang.broken:
            gang = worker.gang
            self._stop_for_good(gang, hung=True)
            self._start_watchdogs(gang)

    def slow(self, job_uid: str, rank: int, factor: float) -> None:
        """Let a rank take `factor` times as long for each step, also after a restart. The others wait."""
        self._lengths.ranks[job_uid, rank] = factor
        self._apply_lengths()

    def machine_changed(self, machine: Machine) -> None:
        """Drop the checkpoints in memory if the machine has no power, then apply its speed and the changed
        network.
        """
        if machine.slow != self._lengths.nodes.get(machine.name, 1.0):
            self._lengths.nodes[machine.name] = machine.slow
            self._apply_lengths()
        if not machine.powered:
            for job in self._jobs.values():
                job.saves.lose(machine.name)
        self.network_changed()

    def network_changed(self) -> None:
        """Stall gangs whose nodes cannot reach each other, and resume stalled gangs whose nodes can."""
        for gang in list(self.gangs.values()):
            if gang.broken or gang.saving or not gang.whole:
                continue
            connected = self._connected(gang)
            if gang.stepping and not connected:
                self._stall(gang)
            elif connected and not gang.stepping:
                self._later(gang, 1.0, self._start_stepping if not gang.first_step else self._resume)

    def _stall(self, gang: Gang) -> None:
        gang.stop(self._kernel.now)
        _cancel(gang)
        self._notify(TrainingStopped(gang))
        self._start_watchdogs(gang)
        if gang.program.peer_timeout_seconds:
            self._kernel.after(gang.program.peer_timeout_seconds, lambda: self._give_up(gang))

    # Steps and checkpoints

    def _start_stepping(self, gang: Gang) -> None:
        if gang.broken or not self._connected(gang):
            return
        saves, first = self._jobs[gang.job_uid].saves, self._first_node(gang)
        length, step = self._lengths.of(gang), saves.restore(lambda node: self._reaches(first, node))
        gang.start(self._kernel.now, step, length)
        self._later(gang, length, self._first_step_done)

    def _first_step_done(self, gang: Gang) -> None:
        gang.first_step = self._kernel.now
        gang.saved = self._kernel.now
        self._notify(FirstStep(gang))
        self._report_changes(gang)
        self._next(gang)

    def _resume(self, gang: Gang) -> None:
        if not gang.broken and not gang.stepping and self._connected(gang):
            gang.start(self._kernel.now, gang.last[0], self._lengths.of(gang))
            self._notify(TrainingResumed(gang))
            self._next(gang)

    def _next(self, gang: Gang) -> None:
        """Schedule the gang's next event: its last step, its program's failure, or the next checkpoint."""
        now, length = self._kernel.now, gang.stretches[-1].length
        end, finish = gang.when(gang.program.total_steps), self._complete
        wrong = gang.when(gang.program.fails_at_step)
        if gang.program.fails_at_step and now <= wrong < end:
            end, finish = wrong, self._fail
        every = self._interval(gang)
        if every:
            stretch = gang.stretches[-1]
            steps = max(1, -(-(max(now, gang.saved + every) - stretch.begin) // length))
            due = stretch.begin + steps * length
            if due <= now:
                due += length
            if due < end:
                self._later(gang, due - now, self._save)
                return
        self._later(gang, end - now, finish)

    def _save(self, gang: Gang) -> None:
        gang.stop(self._kernel.now)
        gang.saving = True
        self._notify(TrainingPaused(gang))
        self._later(gang, gang.program.save_seconds, self._saved)

    def _saved(self, gang: Gang) -> None:
        now, step = self._kernel.now, gang.last[0]
        gang.saving = False
        gang.paused_seconds += gang.program.save_seconds
        if not self._connected(gang):
            self._stall(gang)
            return
        gang.saved = now
        gang.start(now, step, self._lengths.of(gang))
        self._notify(TrainingResumed(gang))
        self._kernel.after(gang.program.commit_seconds, lambda: self._commit(gang, step))
        self._next(gang)

    def _commit(self, gang: Gang, step: int) -> None:
        """Commit a checkpoint if all agents are connected and none of them knows a later incarnation."""
        slots = [self._workers.slots.get(uid) for uid in gang.members]
        intact = not gang.broken and self._connected(gang)
        if not intact or any(
            slot is None or max(slot.incarnation, slot.port_incarnation) > gang.incarnation for slot in slots
        ):
            return
        plans = [plan for uid in sorted(gang.members) if (plan := self._workers.by_uid[uid].plan) is not None]
        marks = self._jobs[gang.job_uid].saves.commit(gang.incarnation, step, plans, self._kernel.now)
        self._notify(CheckpointCommitted(gang, step))
        for uid in gang.members:
            slot = self._workers.slots[uid]
            self._workers.slots[uid] = replace(slot, committed={**slot.committed, **marks})
        self._report_changes(gang)

    def _complete(self, gang: Gang) -> None:
        gang.stop(self._kernel.now)
        self._notify(TrainingStopped(gang))
        for uid in sorted(gang.joined):
            worker = self._workers.by_uid[uid]
            if gang.program.endless_roles and _role(worker) in gang.program.endless_roles:
                continue
            for rank in self._workers.slots[uid].ranks:
                self._workers.end_rank(uid, rank.rank, 0)

    def _fail(self, gang: Gang) -> None:
        for uid in sorted(gang.joined):
            if any(rank.rank == 0 for rank in self._workers.slots[uid].ranks):
                self._workers.end_rank(uid, 0, 1)
                return

    # Ends of a gang

    def _stop_for_good(self, gang: Gang, *, hung: bool = False) -> None:
        stepping = gang.stepping
        gang.stop(self._kernel.now)
        if not gang.broken:
            gang.broken = True
            _cancel(gang)
            if stepping or gang.first_step:
                self._notify(TrainingStopped(gang, hung))

    def _end_peers(self, gang: Gang, node: str | None) -> None:
        """End the remaining ranks on nodes that can reach `node`, where a rank has ended. None: end all
        ranks.
        """
        for uid in sorted(gang.joined):
            worker = self._workers.by_uid.get(uid)
            if worker is None or worker.gang is not gang:
                continue
            if node is not None and node != worker.node and not self._reaches(node, worker.node):
                continue
            for rank in self._workers.slots[uid].ranks:
                if rank.state in LIVE:
                    self._workers.end_rank(uid, rank.rank, gang.program.peer_lost_code)

    def _give_up(self, gang: Gang) -> None:
        if not gang.stepping and not gang.broken and not self._connected(gang):
            self._stop_for_good(gang)
            self._end_peers(gang, None)

    def _start_watchdogs(self, gang: Gang) -> None:
        """Start the launchers' watchdogs for a gang that has stopped. They abort the ranks unless the gang
        steps again within the time limit of a step.
        """
        worker = next((self._workers.by_uid[uid] for uid in gang.joined if uid in self._workers.by_uid), None)
        if worker is None or worker.plan is None:
            return
        seconds = worker.plan.hang_seconds * (1.0 if gang.first_step else FIRST_STEP_FACTOR)
        mark = gang.last
        since = mark[1] or self._kernel.now

        def abort() -> None:
            if gang.stepping or gang.last != mark:
                return
            for uid in sorted(gang.joined):
                worker = self._workers.by_uid.get(uid)
                if worker is not None and worker.gang is gang:
                    for rank in self._workers.slots[uid].ranks:
                        self._workers.end_rank(uid, rank.rank, 128 + SIGABRT, signal=SIGABRT, hung=True)

        self._kernel.at(since + seconds + ABORT_SECONDS, abort)

    def _apply_lengths(self) -> None:
        """Let all gangs go on with steps of the length that nodes and ranks now need."""
        now = self._kernel.now
        for gang in self._lengths.apply(self.gangs.values(), now):
            if gang.first_step:
                self._next(gang)
            else:
                self._later(gang, gang.when(gang.stretches[-1].step + 1) - now, self._first_step_done)

    # Helpers

    def _interval(self, gang: Gang) -> float:
        """Return the checkpoint interval in seconds. The interval of slot 0's assignment overrides that of
        the pods.
        """
        plans = [self._workers.by_uid[uid].plan for uid in gang.joined if uid in self._workers.by_uid]
        memory = next((plan.memory for plan in plans if plan and plan.slot == 0), None)
        return (memory.interval_seconds if memory else 0) or self._jobs[gang.job_uid].save_every

    def _restorable_step(self, gang: Gang) -> int:
        """Return the step that the gang will restore; 0 if there is no checkpoint."""
        return self._jobs[gang.job_uid].saves.newest(lambda node: self._reaches(self._first_node(gang), node))

    def _first_node(self, gang: Gang) -> str:
        """Return the node of the gang's first worker."""
        return next(worker.node for uid in sorted(gang.members) if (worker := self._workers.by_uid.get(uid)))

    def _connected(self, gang: Gang) -> bool:
        workers = [self._workers.by_uid.get(uid) for uid in gang.members]
        if any(worker is None or not worker.live for worker in workers):
            return False
        nodes = sorted({worker.node for worker in workers if worker is not None})
        return all(self._reaches(nodes[0], node) for node in nodes[1:])

    def _report_changes(self, gang: Gang) -> None:
        for uid in sorted(gang.joined):
            self._workers.changed(uid)

    def _later(self, gang: Gang, seconds: float, action: Callable[[Gang], None]) -> None:
        """Replace the gang's next event by this action in `seconds`."""
        _cancel(gang)
        gang.timer = self._kernel.after(seconds, lambda: action(gang))


def _cancel(gang: Gang) -> None:
    if gang.timer is not None:
        gang.timer.cancel()


def _role(worker: Worker) -> str:
    """Return the role in a pod's name, which has the form `<job>-<role>-<replica>`."""
    return worker.pod.removeprefix(f"{worker.job}-").rpartition("-")[0]
