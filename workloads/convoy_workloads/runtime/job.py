"""The handle of a running job: where this rank stands, its steps, its reports, its state."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from convoy_workloads.runtime import hooks
from convoy_workloads.runtime.checkpointer import DECISION_SECONDS, Checkpointer
from convoy_workloads.runtime.checkpoints import open_checkpoints
from convoy_workloads.runtime.errors import DataError, Interrupted, ParamsError, PeerLost
from convoy_workloads.runtime.exactness import exact, run_warmup_passes
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.generation import Generation, Record
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.interruption import Interruption
from convoy_workloads.runtime.link import RankLink
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.metrics import number
from convoy_workloads.runtime.process_exit import exit_process
from convoy_workloads.runtime.processes import Processes, form
from convoy_workloads.runtime.progress import Meter
from convoy_workloads.runtime.rank_context import RankContext, from_environment
from convoy_workloads.runtime.state import TrainingState
from convoy_workloads.runtime.step_consensus import StepConsensus, StepRequest, torch_reduce
from convoy_workloads.runtime.telemetry import torch_hooks
from convoy_workloads.runtime.telemetry.step_recorder import StepRecorder
from convoy_workloads.runtime.tiers.agent_notices import AgentNotices
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints
from convoy_workloads.runtime.tiers.rank_collectives import gather

P = TypeVar("P")

PRINT_SECONDS = 10.0
"""Rank 0 prints its progress this often; without an agent, each second."""
LEAVE_MARGIN = 3.0
"""Kept back of the grace period for the way out, in seconds."""


@dataclass(frozen=True)
class Restored:
    """Where the state came from."""

    step: int = 0
    """Steps that the state has behind it; 0 for a fresh start."""
    generation: Generation | None = None
    exact: bool = True
    """Whether the run goes on with the same bits as one that was never interrupted."""
    extra: Mapping[str, Any] = field(default_factory=dict)


class Job(Generic[P]):
    """Made by `join()`; a context manager."""

    def __init__(self, context: RankContext, params: P) -> None:
        self.params = params
        self.rank = context.rank
        self.world = context.world
        self.incarnation = context.incarnation
        self.restored = Restored()
        self.saves_itself = False
        """Whether the program restores and saves by itself (`convoy.dcp`)."""
        self._context = context
        self._heartbeat = HeartbeatWriter(context.heartbeat, joined=True)
        self._interruption = Interruption()
        self._meter = Meter()
        self._printed = 0.0
        self._state = TrainingState(context.rank)
        self._processes: Processes = form(context)
        self._consensus = StepConsensus(
            None if self._processes.control is None else torch_reduce(self._processes.control)
        )
        self._notices = AgentNotices()
        self._checkpoints: Checkpointer | None = open_checkpoints(
            context, self._processes.control, self._notices
        )
        if self._checkpoints is not None:
            self.incarnation = self._checkpoints.incarnation
        self._link = self._connect()
        self._recorder = self._start_recorder()

    @property
    def device(self) -> Any:
        """The `torch.device` of this rank."""
        return self._processes.device

    def __enter__(self) -> Job[P]:
        hooks.mute()
        self._heartbeat.start()  # first, since the launcher takes a handler of SIGTERM for the program's own
        self._interruption.arm()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._heartbeat.finish()
        if error is None or isinstance(error, Interrupted):
            self._processes.close()
            if self.saves_itself:
                self._heartbeat.extend(DECISION_SECONDS)
                self.memory.settle(self.within_grace(DECISION_SECONDS))
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
        """Continues from the newest readable checkpoint of this job, or starts fresh. All ranks call it.

        When there are checkpoints and none can be read, the rank ends with exit code 20.

        `extra`: further objects with `state_dict` and `load_state_dict`. Each rank gets its own version back,
        or, when another number of ranks had saved, rank 0's; of tensors above 64 KiB that the ranks had in
        common when they first saved, one version is saved for all. `warm` runs one forward and backward
        pass on data of the usual shape; with it a restored run yields the same bits as an uninterrupted one
        (same world size, torch and threads), on three or more ranks too.
        """
        self._state = TrainingState(self.rank, model, optimizer, extra, self.world)
        if warm is not None:
            run_warmup_passes(model, warm)
        if self._checkpoints is None:
            return self.restored
        began = time.monotonic()
        record = self._checkpoints.choose(model, optimizer)
        if record is not None:
            record = self._load(self._checkpoints, record, model, optimizer)
            self._meter.restore_seconds = time.monotonic() - began
            self._log_restored(record, began, warm is not None)
        self._checkpoints.ready(model, optimizer)
        return self.restored

    def _load(self, checkpoints: Checkpointer, record: Record, model: Any, optimizer: Any) -> Record:
        """Loads what was chosen; what was loaded in the end."""
        while True:
            self._state.allocate_optimizer_state()
            state = self._state.load_target()
            journal = checkpoints.journal
            checkpoints.load(state, record)
            self._state.apply(state, record.world)
            if journal is None:
                return record
            if journal.replay(model, optimizer):
                break
            record = journal.pass_over()
            optimizer.state.clear()  # a moment that the full save lacks is not to stay
        state = self._state.load_target()
        journal.overlay(state)
        self._state.apply(state, record.world)
        return record

    def _collect_state(self) -> dict[str, Any]:
        self._state.compare(lambda value: gather(value, self._processes.control))
        return self._state.collect()

    def _log_restored(self, record: Record, began: float, warmed: bool) -> None:
        torch = str(sys.modules["torch"].__version__)
        same = exact(record, self.world, torch, warmed)
        self.restored = Restored(record.generation.step, record.generation, same)
        if self.rank == 0:
            saver = f"saved by {record.world} ranks with torch {record.torch}"
            bits = "the same bits" if same else f"not the same bits ({saver})"
            done = f"continues after step {record.generation.step} from {record.generation.name}, {bits}"
            log_line(f"{done}; restored in {time.monotonic() - began:.2f} s")

    def steps(self, total: int) -> Iterator[int]:
        """The steps left, numbered 1 to `total`; after a restore it begins behind the restored one.

        Between two steps the ranks may be asked to leave: they save and all raise `Interrupted` (exit code
        75). After the last step the state is saved.
        """
        self._meter.total = total
        done = self.restored.step
        self._meter.step = done
        self._heartbeat.start()
        for step in range(done + 1, total + 1):
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
        if self._checkpoints is not None and total > done and not self.saves_itself:
            self._heartbeat.extend(2 * DECISION_SECONDS)  # for all to be ready, then for the decision
            with self.saving():
                self._checkpoints.finish_last(
                    self._checkpoints.stage_last(self._collect_state(), total, DECISION_SECONDS, end=True)
                )

    def checkpoint(self, step: int) -> bool:
        """Saves the state after `step` if the ranks agree that it is time. Whether it is being saved."""
        decision = self._consensus.decision()
        if self._checkpoints is None or not decision.save or decision.busy or decision.stop:
            return False
        if step == self._meter.total and self._checkpoints.marks_the_end:
            return False  # `steps` saves that, as what the job ends with
        self._heartbeat.touch()
        with self.saving():
            return self._checkpoints.start(self._collect_state(), step)

    # For programs that restore and save by themselves (convoy.dcp).

    @property
    def memory(self) -> MemoryCheckpoints:
        """What keeps states in the memory of the job's nodes. DataError when nothing does."""
        if not isinstance(self._checkpoints, MemoryCheckpoints):
            raise DataError(
                "no agent keeps this program's states in memory: it takes a TrainingJob with "
                "spec.checkpoint.tiers.local"
            )
        return self._checkpoints

    def choose(self) -> Record | None:
        """What all ranks go on from, for the program to read; None to begin at step 0. From now on it saves
        by itself too. All ranks call it, once. DataError, PeerLost, StoreAway.
        """
        if self.saves_itself or self.memory.planned.may_save:
            raise DataError("what this run goes on from has been chosen before")
        record = self.memory.choose()
        self.saves_itself = True
        if record is not None:
            self.restored = Restored(record.generation.step, record.generation, exact=False)
        return record

    def due(self, step: int) -> bool:
        """Whether all ranks are to save the state after `step`: it is time, or the job is asked to leave, or
        `step` is the last one. For the loop over `steps`, in place of `checkpoint`.
        """
        decision = self._consensus.decision()
        if self._checkpoints is None:
            return False
        return decision.stop or self.is_last_step(step) or (decision.save and not decision.busy)

    def is_last_step(self, step: int) -> bool:
        """Whether `step` is the last one of `steps`."""
        return step == self._meter.total

    def report(
        self,
        step: int,
        loss: float | None = None,
        samples: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        tokens: int | None = None,
    ) -> None:
        """Tells the agent, at most once a second, how far the training is.

        `samples`: samples of all ranks in this step. `tokens`: what this rank alone worked through in it,
        where that differs from rank to rank. `metrics`: figures of the program's own by name, such as
        `{"held_out_loss": 1.9}`; each keeps its newest value, with the step, until it is reported again, and
        of two ranks that report one name the lower one counts. A name has at most 63 lower-case letters,
        digits and `_`, and a rank at most 64 names: ValueError otherwise, TypeError for what is no number.
        Loss and metrics may be tensors and arrays of one element.
        """
        if tokens is not None:
            self._recorder.tokens(tokens)
        # A figure of the restored state, such as its held-out loss, is no step of this incarnation.
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

    def _save_and_stop(self, step: int) -> None:
        """Saves and leaves; every rank is here at the same step.

        The process group goes before the slow half of the save: a rank that dies while writing holds up
        nobody.
        """
        if self.rank == 0:
            log_line(f"asked to leave: stops after step {step}")
        self._heartbeat.finish()
        self.report(step)
        if self._checkpoints is not None and not self.saves_itself:
            self._heartbeat.extend(self._grace_left())
            with self.saving():
                staged = self._checkpoints.stage_last(self._collect_state(), step, self._grace_left() / 2)
                self._processes.close()
                saved = self._checkpoints.finish_last(staged, self._grace_left())
            if saved and self.rank == 0:
                log_line(f"step {step} is saved")
        raise Interrupted

    def loading(self) -> AbstractContextManager[None]:
        """Around what fetches a step's input: the time counts as waiting for data, not as the rank's own
        work. A DataLoader's is counted without.
        """
        return self._recorder.spending("data")

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Counts the time as one in which saving held up the steps."""
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            self._heartbeat.record_save(seconds)
            self._recorder.spend("save", seconds)

    def within_grace(self, seconds: float) -> float:
        """So many seconds, or what is left of the grace period when the job is asked to leave."""
        return min(seconds, self._grace_left()) if self._interruption.requested else seconds

    def _grace_left(self) -> float:
        """Seconds that the decision on the last checkpoint may take: SIGKILL must not come first."""
        left = self._context.grace_seconds - LEAVE_MARGIN
        return max(1.0, left - self._interruption.elapsed())

    def _connect(self) -> RankLink | None:
        context = self._context
        if not (context.socket and context.launched):
            return None
        hello: Message = {
            "type": "hello",
            "role": "rank",
            "incarnation": context.incarnation,
            "rank": context.rank,
        }
        return RankLink(context.socket, hello, self._notices.on_message)

    def _start_recorder(self) -> StepRecorder:
        """What measures the steps; a program without torch is measured by its own words alone."""
        recorder = torch_hooks.install() if "torch" in sys.modules else StepRecorder()
        recorder.send = self._link.telemetry if self._link is not None else None
        return recorder

    def _send_progress(self, urgent: bool = False) -> None:
        """How far the training is, and when that step ended."""
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


def join(params: Any = None) -> Job[Any]:
    """Takes this process's place in the job that the environment describes; alone, it is rank 0 of 1.

    `params` checks the job's parameters: a pydantic model, or any callable that takes them as keywords.
    Without it `job.params` is a plain dict. Parameters that it refuses end the rank with exit code 10.
    """
    try:
        context = from_environment(os.environ)
        return Job(context, _check(params, context.params))
    except Exception as error:
        if os.environ.get("CONVOY_INCARNATION"):
            exit_process(error)
        raise


def _check(params: Any, given: dict[str, Any]) -> Any:
    if params is None:
        return given
    try:
        return params.model_validate(given) if hasattr(params, "model_validate") else params(**given)
    except (ValueError, TypeError) as error:
        raise ParamsError(str(error)) from error
