"""The count of steps in a program that does not use Convoy's API. Each `step` call of a torch optimizer
ends a step.
"""

from __future__ import annotations

import os
import time
from typing import Any
from weakref import WeakKeyDictionary

from convoy_workloads.runtime.facts.collector import FactsCollector
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.link import RankLink
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.processes import keep_groups, smaller_group
from convoy_workloads.runtime.progress import Meter
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.telemetry import torch_hooks
from convoy_workloads.runtime.telemetry.step_recorder import StepRecorder
from convoy_workloads.runtime.tiers.agent_notices import AgentNotices
from convoy_workloads.runtime.tracing import CLOSE_SECONDS, StepTracer


class StepHook:
    """Counts optimizer steps and reports them to the watchdog and the agent.

    If the program has several optimizers, such as the two of a GAN, the reported step is the count of the
    optimizer with the most steps.
    """

    def __init__(self, context: RankContext, recorder: StepRecorder) -> None:
        self._context = context
        self._recorder = recorder
        self._heartbeat = HeartbeatWriter(context.heartbeat)
        self._meter = Meter(facts=FactsCollector(context).message)
        self._counts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._tracer = StepTracer(context)
        self._link: RankLink | None = None
        self._owner = 0
        self._muted = False

    def mute(self) -> None:
        """Stop counting optimizer steps. Call this once the program reports its steps itself."""
        self._muted = True

    def __call__(self, optimizer: Any, *_: Any) -> None:
        """Count one finished step of `optimizer`."""
        if self._muted:
            return
        pid = os.getpid()
        if not self._owner:
            self._owner = pid
        # A process that the program forked is not a rank, so its steps do not count.
        elif pid != self._owner:
            return
        count = self._counts.get(optimizer, 0) + 1
        self._counts[optimizer] = count
        if count == 1:
            keep_groups()
            if self._meter.step == 0 and (warning := smaller_group(self._context.world)):
                log_line(warning)
        if count <= self._meter.step:
            return
        first = self._heartbeat.step(count)
        self._meter.observe(count, time.monotonic())
        self._meter.first_step_ms = self._heartbeat.first_step_ms
        if self._context.socket:
            if self._link is None:
                hello = {
                    "type": "hello",
                    "role": "rank",
                    "incarnation": self._context.incarnation,
                    "rank": self._context.rank,
                }
                notices = AgentNotices(self._tracer.on_message)
                self._link = RankLink(self._context.socket, hello, notices.on_message)
                self._recorder.send, self._tracer.report = self._link.telemetry, self._link.report
            self._link.progress(self._meter.message(self._heartbeat.step_ms), urgent=first)
        self._recorder.step(count)
        # A step of such a program lasts from the end of one optimizer step to the end of the next.
        if self._tracer.active:
            self._tracer.end_step(count)
        if count + 1 >= self._tracer.due:
            self._tracer.start_step(count + 1)

    def finish(self) -> None:
        """Record that the main program is over. From this moment, its exit handlers and remaining threads
        have the time limit of one step (see `FINISHED`).
        """
        if not self._muted and os.getpid() == self._owner:
            self._heartbeat.finish()

    def close(self) -> None:
        """Send the trace and the newest progress message to the agent, and close the connection."""
        # The program may have failed and start again. This cannot know it, so no order has failed for good.
        self._tracer.close(CLOSE_SECONDS, self._heartbeat.extend, ended=False)
        if self._link is not None:
            self._link.close()


_installed: StepHook | None = None


def install(context: RankContext) -> StepHook:
    """Install the hook on every torch optimizer of this process. Torch must be installed."""
    global _installed  # noqa: PLW0603 - torch keeps the hook per process too
    from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: PLC0415

    # torch calls hooks in the order of their registration. Telemetry's hooks come first, so the optimizer's
    # time is known when StepHook ends the step.
    hook = StepHook(context, torch_hooks.install())
    register_optimizer_step_post_hook(hook)
    _installed = hook
    return hook


def finish() -> None:
    """Record for the installed hook, if any, that the main program is over."""
    if _installed is not None:
        _installed.finish()


def mute() -> None:
    """Stop counting optimizer steps in this process, because the program reports its steps itself."""
    if _installed is not None:
        _installed.mute()
