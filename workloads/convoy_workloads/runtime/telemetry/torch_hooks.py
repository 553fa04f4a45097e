"""Where torch says what a step is spent on, without change in the program.

- The passes: `DistributedDataParallel` keeps times of its own (torch/csrc/distributed/c10d/logger.cpp): when
  this rank's last gradient was there and when all ranks' were. Patching `dist.all_reduce` would see nothing,
  since its reducer calls gloo or NCCL itself; a communication hook would change the bits of the average.
- Other collectives: every one that Python waits for goes through `Work.wait`; see `collectives`.
- Input: each `next` of a DataLoader. Optimizer: torch's global hooks. The host: Python's garbage collector.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from convoy_workloads.runtime.telemetry.collectives import Collectives, DeviceTimes
from convoy_workloads.runtime.telemetry.communicators import Communicator, Moved
from convoy_workloads.runtime.telemetry.recorder import Passes, Recorder

_recorder: Recorder | None = None


def install() -> Recorder:
    """Measures this process from now on; what is measured goes nowhere before `tell` is set. Needs torch."""
    global _recorder  # noqa: PLW0603 - what torch calls is patched once per process
    if _recorder is None:
        _recorder = Recorder()
        _watch_optimizers(_recorder)
        _watch_input(_recorder)
        _watch_garbage(_recorder)
        _watch_groups(_recorder)
    return _recorder


def _watch_optimizers(recorder: Recorder) -> None:
    from torch.optim.optimizer import (  # noqa: PLC0415
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    began = [0.0]

    def before(*_: Any) -> None:
        recorder.optimizing()
        began[0] = time.perf_counter()

    def after(*_: Any) -> None:
        recorder.spend("optimizer", time.perf_counter() - began[0])

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _watch_input(recorder: Recorder) -> None:
    from torch.utils.data import dataloader  # noqa: PLC0415

    iterator: Any = dataloader._BaseDataLoaderIter
    iterator.__next__ = _timed(iterator.__next__, recorder, "data")


def _timed(function: Callable[..., Any], recorder: Recorder, kind: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **named)
        finally:
            recorder.spend(kind, time.perf_counter() - began)

    return timed


def _watch_garbage(recorder: Recorder) -> None:
    began = [0.0]

    def collected(phase: str, _: Any) -> None:
        if phase == "start":
            began[0] = time.perf_counter()
        else:
            recorder.spend("host", time.perf_counter() - began[0])

    gc.callbacks.append(collected)


def _watch_groups(recorder: Recorder) -> None:
    import torch.distributed as dist  # noqa: PLC0415

    if not dist.is_available():
        return
    collectives = Collectives(recorder, DeviceTimes(_mark))
    collectives.watch(dist.ProcessGroup, dist.Work)
    recorder.collect = collectives.collect
    _watch_passes(recorder, collectives)


def _mark() -> Any:
    import torch  # noqa: PLC0415

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _watch_passes(recorder: Recorder, collectives: Collectives) -> None:
    import torch  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    wrapper: Any = DistributedDataParallel
    original = wrapper.__init__
    models = _Models(collectives)

    @functools.wraps(original)
    def made(self: Any, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        models.add(self)
        recorder.measure = models.measure
        self.register_forward_pre_hook(begins)

    def begins(model: Any, _: Any) -> None:
        if model.training and not torch.compiler.is_compiling():
            recorder.forward()

    wrapper.__init__ = made


class _Models:
    """The wrapped models of this process."""

    def __init__(self, collectives: Collectives) -> None:
        self._collectives = collectives
        self._moved: WeakKeyDictionary[Any, tuple[Communicator, int]] = WeakKeyDictionary()

    def add(self, model: Any) -> None:
        """Has a model time its passes."""
        model._set_ddp_runtime_logging_sample_rate(1)
        members = self._collectives.communicator(model.process_group).members
        gradients = sum(one.nbytes for one in model.parameters() if one.requires_grad)
        self._moved[model] = (Communicator("dp", members), gradients)

    def measure(self, began_ns: int) -> Passes | None:
        """The passes of the last step that is whole; None where no model can tell."""
        read = [(model, model._get_ddp_logging_data()) for model in list(self._moved)]
        if len(read) == 1 and next(read[0][0].parameters()).device.type == "cpu":
            passes = _by_clock(read[0][1], began_ns)
        else:
            passes = _by_duration([data for _, data in read])
        if passes is None or len(read) != 1:
            return passes  # of several models it is not known whose gradients were waited for
        communicator, gradients = self._moved[read[0][0]]
        return replace(passes, moved={communicator: Moved(gradients, 1, passes.wait)})


def _by_clock(data: dict[str, Any], began_ns: int) -> Passes | None:
    ready, done = data.get("backward_compute_time_end", 0), data.get("backward_comm_time_end", 0)
    if not began_ns < ready <= done:
        return None  # of another step, or the clock was set
    return Passes((ready - began_ns) / 1e9, (done - ready) / 1e9)


def _by_duration(read: list[dict[str, Any]]) -> Passes | None:
    forward = sum(data.get("forward_compute_time", 0) for data in read)
    backward = sum(data.get("backward_compute_time", 0) for data in read)
    waited = sum(
        max(0, data.get("backward_comm_time", 0) - data.get("backward_compute_comm_overlap_time", 0))
        for data in read
    )
    return Passes((forward + backward) / 1e9, waited / 1e9) if backward else None
