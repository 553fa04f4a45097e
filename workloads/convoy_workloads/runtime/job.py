"""The handle through which a training program uses its job: rank, steps, reports and checkpoints."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, TypeVar

from convoy_workloads.runtime import hooks, node_notice
from convoy_workloads.runtime.checkpointer import DECISION_SECONDS, Checkpointer, usable
from convoy_workloads.runtime.checkpoints import open_checkpoints
from convoy_workloads.runtime.errors import DataError, Interrupted, PeerLost
from convoy_workloads.runtime.exactness import bits_of, deterministic_on, exact, run_warmup_passes
from convoy_workloads.runtime.facts.collector import FactsCollector
from convoy_workloads.runtime.generation import Record
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.interruption import Interruption
from convoy_workloads.runtime.link import connect
from convoy_workloads.runtime.loading import restore_newest
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.metrics import number
from convoy_workloads.runtime.process_exit import exit_process
from convoy_workloads.runtime.processes import Processes, form
from convoy_workloads.runtime.progress import Meter
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.restored import Restored
from convoy_workloads.runtime.result import encode_result, write_result
from convoy_workloads.runtime.state import TrainingState
from convoy_workloads.runtime.step_consensus import StepConsensus, StepRequest, torch_reduce
from convoy_workloads.runtime.telemetry import torch_hooks
from convoy_workloads.runtime.telemetry.position import Position
from convoy_workloads.runtime.tiers.agent_notices import AgentNotices
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints
from convoy_workloads.runtime.tiers.rank_collectives import gather
from convoy_workloads.runtime.tracing import CLOSE_SECONDS, StepTracer

P = TypeVar("P")

PRINT_SECONDS = 10.0
"""Minimum seconds between progress lines of rank 0 while it is connected to an agent; otherwise 1 s."""
LEAVE_MARGIN = 3.0
"""Seconds before SIGKILL that the process needs to exit. The last save must end before them."""


class Job(Generic[P]):
    """A rank's membership in its job. `join()` creates it; use it as a context manager.

    All ranks must call `restore`, `steps` and `checkpoint` in the same order. Times are in seconds.
    """

    def __init__(self, context: RankContext, params: P) -> None:
        self.params = params
        """The job's parameters, as `join` checked them."""
        self.rank = context.rank
        """Number of this rank, from 0."""
        self.world = context.world
        """Number of ranks."""
        self.incarnation = context.incarnation
        """Number of the current formation of the job's pods, which grows at each restart."""
        self.restored = Restored()
        """The checkpoint that the run started with, if any; set by `restore` or by a ConvoyReader."""
        self.program_saves = False
        """True if the program itself restores and saves its state, through `convoy.dcp`."""
        self._context = context
        self._heartbeat = HeartbeatWriter(context.heartbeat, joined=True)
        self._interruption = Interruption()
        self._meter = Meter(facts=FactsCollector(context).message)
        self._printed = 0.0
        self._state = TrainingState(context.rank)
        self._processes: Processes = form(context)
        self._consensus = StepConsensus(
            None if self._processes.control is None else torch_reduce(self._processes.control)
        )
        self._tracer = StepTracer(context, self._processes.control_name)
        self._notices = AgentNotices(self._tracer.on_message)
        self._checkpoints: Checkpointer | None = open_checkpoints(
            context, self._processes.control, self._notices
        )
        if self._checkpoints is not None:
            self.incarnation = self._checkpoints.incarnation
        self._link = connect(context, self._notices.on_message)
        self._tracer.report = self._link.report if self._link is not None else None
        self._recorder = torch_hooks.recorder(self._link)

    @property
    def device(self) -> Any:
        """The `torch.device` of this rank; None if torch is not installed."""
        return self._processes.device

    def __enter__(self) -> Job[P]:
        hooks.mute()
        # The heartbeat tells the launcher that the SIGTERM handler is Convoy's, so start the heartbeat first.
        self._heartbeat.start()
        self._interruption.arm()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._heartbeat.finish()
        if error is None or isinstance(error, Interrupted):
            self._processes.close()
            if self.program_saves:
                self._heartbeat.extend(DECISION_SECONDS)
                self.memory.settle(self.limit_to_grace(DECISION_SECONDS))
            self._tracer.close(self.limit_to_grace(CLOSE_SECONDS), self._heartbeat.extend, ended=not error)
            self._send_progress()
            self._close_link()
            self._interruption.disarm()
            return
        self._close_link()
        if self._context.launched:
            exit_process(error)

    def restore(
        self,
        model: Any,
        optimizer: Any = None,
        extra: Mapping[str, Any] | None = None,
        warm: Callable[[], None] | None = None,
    ) -> Restored:
        """Load the newest readable checkpoint of this job, or start fresh. Return the origin of the state.

        All ranks call this. They end with exit code 20 if there are checkpoints but none can be read.

        `extra` maps names to further objects with `state_dict` and `load_state_dict`. Each rank gets its
        own version back, or rank 0's version if the number of ranks has changed. A tensor above 64 KiB that
        was equal on all ranks at their first save is saved once for all ranks.

        `warm` runs one forward and one backward pass on data of the usual shape. With `warm`, a restored
        run on three or more ranks also yields exactly the bits of an uninterrupted run, if the world size,
        the torch version and the number of threads are the same, and a GPU uses deterministic algorithms.
        """
        self._state = TrainingState(self.rank, model, optimizer, extra, self.world)
        if warm is not None:
            run_warmup_passes(model, warm)
        if self._checkpoints is None:
            return self.restored
        began = time.monotonic()
        record = restore_newest(self._checkpoints, self._state, model, optimizer)
        if record is not None:
            self._meter.restore_seconds = time.monotonic() - began
            self._log_restored(record, began, warm is not None)
        self._checkpoints.ready(model, optimizer)
        return self.restored

    def _collect_state(self) -> dict[str, Any]:
        self._state.compare(lambda value: gather(value, self._processes.control))
        return self._state.collect()

    def _log_restored(self, record: Record, began: float, warmed: bool) -> None:
        torch = str(sys.modules["torch"].__version__)
        same = exact(record, self.world, torch, warmed, deterministic := deterministic_on(self.device))
        self.restored = Restored(record.generation.step, record.generation, same)
        if self.rank == 0:
            done = f"continues after step {record.generation.step} from {record.generation.name}"
            seconds = time.monotonic() - began
            log_line(f"{done}, {bits_of(record, same, deterministic)}; restored in {seconds:.2f} s")

    def steps(self, total: int) -> Iterator[int]:
        """Yield the numbers of the remaining steps, up to and including `total`. The first step is 1.

        After a restore, the first number is the one after the restored step. If the job is told to stop
        (SIGTERM), all ranks save after the same step and raise `Interrupted` (exit code 75). After the last
        step the state is saved.

        Raises PeerLost if a later incarnation of the job exists.
        """
        self._meter.total = total
        done = self.restored.step
        self._meter.step = done
        self._heartbeat.start()
        for step in self._tracer.steps(range(done + 1, total + 1)):
            if self._notices.stale:
                raise PeerLost("a later incarnation of this job exists")
            save = self._checkpoints is not None and self._checkpoints.due()
            busy = self._checkpoints is not None and self._checkpoints.busy()
            self._consensus.start(StepRequest(save=save, stop=self._interruption.requested, busy=busy))
            yield step
            self._heartbeat.step(step)
            if self._consensus.decision().stop:
                self._save_and_stop(step)
            if self._meter.step < step:
                self.report(step)
            self._recorder.step(step)
        self._heartbeat.finish()
        if (saver := usable(self._checkpoints)) is not None and total > done and not self.program_saves:
            self._save_and_wait(saver, total, end=True)

    @property
    def in_store(self) -> bool | None:
        """After the last step: True if the final state is in the job's store, False if the store did not
        accept it. None if the job has no store.
        """
        return None if self._checkpoints is None else self._checkpoints.in_store

    def checkpoint(self, step: int, now: bool = False) -> bool:
        """Save the state after `step` if a rank requests it and all can. Return True if a save starts. With
        `now`, save in any case, and return True once the save is committed.
        """
        decision, saver = self._consensus.decision(), usable(self._checkpoints)
        if saver is None or decision.stop or not (now or (decision.save and not decision.busy)):
            return False
        if step == self._meter.total and saver.final_save_differs:
            return False  # `steps` saves this state later, as the final state of the job.
        if now:
            return self._save_and_wait(saver, step)
        self._heartbeat.touch()
        with self.saving():
            return saver.start(self._collect_state(), step)

    def _save_and_wait(self, saver: Checkpointer, step: int, end: bool = False) -> bool:
        """Save the state after `step`. Return True if the save is committed."""
        # Allow two waits: until all ranks are ready to save, and until the save is committed.
        self._heartbeat.extend(2 * DECISION_SECONDS)
        with self.saving():
            return saver.finish_last(saver.stage_last(self._collect_state(), step, DECISION_SECONDS, end=end))

    # The following methods serve programs that restore and save by themselves (convoy.dcp).

    @property
    def memory(self) -> MemoryCheckpoints:
        """The checkpoints in the memory of the job's nodes. Raises DataError if the job has none."""
        if not isinstance(self._checkpoints, MemoryCheckpoints):
            raise DataError(
                "no agent keeps this program's states in memory: run it as a TrainingJob with "
                "spec.checkpoint.tiers.local"
            )
        return self._checkpoints

    def choose(self) -> Record | None:
        """Choose the generation that all ranks resume from. Afterwards the program itself saves its state.

        Return the generation's record; None if the job starts at step 0. All ranks call this once.

        Raises DataError at a second call, PeerLost if the agents do not agree in time, and StoreAway if the
        store does not respond.
        """
        if self.program_saves or self.memory.planned.may_save:
            raise DataError("the generation to resume from was chosen before")
        record = self.memory.choose()
        self.program_saves = True
        if record is not None:
            self.restored = Restored(record.generation.step, record.generation, exact=False)
        return record

    def due(self, step: int) -> bool:
        """Return True if all ranks must save after `step`. Programs that save their state themselves call
        `due` instead of `checkpoint`.

        A save is due at the last step, when the job was told to stop, or an interval after the last save.
        """
        decision = self._consensus.decision()
        if self._checkpoints is None:
            return False
        return decision.stop or self.is_last_step(step) or (decision.save and not decision.busy)

    def is_last_step(self, step: int) -> bool:
        """Return True if `step` equals the number of steps that was passed to `steps`."""
        return step == self._meter.total

    def report(
        self,
        step: int,
        loss: float | None = None,
        samples: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        tokens: int | None = None,
    ) -> None:
        """Report the progress of the training. The job sends it to the agent at most once a second.

        - `step`: the number of the step that is done.
        - `loss`: the loss of this step.
        - `samples`: the samples of all ranks in this step.
        - `tokens`: the tokens, or samples, of this rank alone in this step, if that number differs between
          ranks.
        - `metrics`: the program's own metrics by name, such as `{"held_out_loss": 1.9}`. Each metric keeps
          its newest value, and the step of that value, until the program reports it again. If two ranks
          report the same name, the value of the lower rank counts.

        Loss and metrics may be tensors or arrays of one element. A name has at most 63 lower-case letters,
        digits and `_`. A rank may report at most 64 names.

        Raises ValueError for an invalid name or too many names, TypeError for a value that is not a number.
        """
        if tokens is not None:
            self._recorder.tokens(tokens)
        # A report for the restored step, such as its held-out loss, is not a step of this incarnation.
        first = step > self.restored.step and self._heartbeat.step(step)
        now = time.monotonic()
        known = None if loss is None else number("loss", loss)
        rare = self._meter.observe(step, now, known, samples, metrics)
        self._send_progress(urgent=first)
        pause = PRINT_SECONDS if self._link is not None else 1.0
        due = rare or step == self._meter.total
        if self.rank == 0 and (due or now - self._printed >= pause):
            self._printed = now
            print(self._meter.line(), file=sys.stderr, flush=True)

    def report_layout(self, *, stage: int, replica: int) -> None:
        """Report this rank's position in a job with pipeline parallelism. Each rank calls this once, before
        the first step.

        - `stage`: the number of this rank's pipeline stage. Only ranks of one stage do the same work.
        - `replica`: the number of its model replica. All ranks of a replica work on the same samples.

        A program need not call this if its process groups have the names of a torch DeviceMesh (`pp`, `dp`).

        Raises TypeError for a number that is not whole, ValueError for one below 0.
        """
        self._recorder.position = Position(stage, replica)

    def set_result(self, result: Mapping[str, Any]) -> None:
        """Set the job's result, a small dict such as `{"accuracy": 0.93}`. The job's status shows it after
        the job has succeeded. A later call replaces the result. Only rank 0's result counts.

        A result may have 3,500 bytes as JSON. Raises ResultError if it is larger, or contains a value that
        JSON cannot express, such as NaN.
        """
        text = encode_result(result)
        if self.rank == 0:
            write_result(self._context.result, text)

    def _save_and_stop(self, step: int) -> None:
        """Save the state and raise Interrupted. All ranks call this after the same step.

        The process group is closed before the ranks write. So a rank that dies while it writes blocks no
        other rank.
        """
        if self.rank == 0:
            log_line(f"asked to stop: saves the state after step {step} and ends")
        self._heartbeat.finish()
        self.report(step)
        if (saver := usable(self._checkpoints)) is not None and not self.program_saves:
            self._heartbeat.extend(self._grace_left())
            with self.saving():
                staged = saver.stage_last(self._collect_state(), step, self._grace_left() / 2)
                self._processes.close()
                saved = saver.finish_last(staged, self._grace_left())
            if saved and self.rank == 0:
                log_line(f"the state after step {step} is saved")
        raise Interrupted

    def notice(self) -> node_notice.Notice | None:
        """Return the notice that this rank's node will disappear; None if there is none, or no agent."""
        return node_notice.read()

    def report_notice(self, node: str, deadline_seconds: float, source: str = "Ray") -> None:
        """Report that another node of this job disappears in `deadline_seconds`. Its SpotPool then drains it.

        `node` is the name of a node, or the IP of one of the job's pods, as in Ray's list of draining nodes.
        Without an agent this does nothing. Raises ValueError for an invalid argument.
        """
        message = node_notice.draining_message(node, deadline_seconds, source)
        if self._link is not None:
            self._link.report(message)

    def loading(self) -> AbstractContextManager[None]:
        """Return a context whose time counts as waiting for data. Use it around code that fetches a step's
        input.

        A DataLoader needs no context, because its time is always counted.
        """
        return self._recorder.spending("data")

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Count the time in this context as a stall of the training by a save."""
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            self._heartbeat.record_save(seconds)
            self._recorder.spend("save", seconds)

    def limit_to_grace(self, seconds: float) -> float:
        """Return `seconds`. After SIGTERM, return at most the time that remains before SIGKILL."""
        return min(seconds, self._grace_left()) if self._interruption.requested else seconds

    def _grace_left(self) -> float:
        """Return the number of seconds that the last save may still take before SIGKILL; at least 1."""
        left = self._context.grace_seconds - LEAVE_MARGIN
        return max(1.0, left - self._interruption.elapsed())

    def _send_progress(self, urgent: bool = False) -> None:
        """Send the newest progress to the agent, if there is one."""
        if self._link is not None:
            self._meter.first_step_ms = self._heartbeat.first_step_ms
            self._meter.checkpoint_seconds = self._heartbeat.checkpoint_seconds
            if self._checkpoints is not None:
                self._meter.save_seconds = self._checkpoints.stall_seconds
                self._meter.copy_seconds = self._checkpoints.copy_seconds
            self._link.progress(
                self._meter.message(self._heartbeat.step_ms or int(time.time() * 1000)), urgent
            )

    def _close_link(self) -> None:
        if self._link is not None:
            self._link.close()
