"""Hooks into torch that measure the parts of a step without changes to the program.

- Passes: `DistributedDataParallel` records when this rank's last gradient was ready and when all ranks'
  gradients were ready (torch/csrc/distributed/c10d/logger.cpp). Wrapping `dist.all_reduce` would not measure
  them, because DDP's reducer calls gloo or NCCL itself. A communication hook would change the bits of the
  average.
- Other collectives: every collective that Python waits for goes through `Work.wait`, which is timed. Some
  collectives are also timed one by one, by communicator (see `collectives`).
- Input: each `next` of a DataLoader is timed.
- Optimizer: torch's global optimizer hooks are used.
- Host: Python's garbage collector is timed.
- Position: the names of process groups tell the stage and replica of this rank (see `position`). Messages to
  and from single ranks show that the job may be a pipeline.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from convoy_workloads.runtime.telemetry import position
from convoy_workloads.runtime.telemetry.collectives import CollectiveTimer, RealTorch
from convoy_workloads.runtime.telemetry.step_recorder import Passes, StepRecorder

_POINT_TO_POINT = (12, 13, 14)
"""Numbers of torch's `c10d.OpType` for send, recv and recv from any rank."""

_recorder: StepRecorder | None = None


def install() -> StepRecorder:
    """Install the hooks, once per process, and return the recorder. Torch must be installed.

    The recorder sends nothing before its `send` is set.
    """
    global _recorder  # noqa: PLW0603 - what torch calls is patched once per process
    if _recorder is None:
        _recorder = StepRecorder()
        _hook_optimizers(_recorder)
        _hook_input(_recorder)
        _hook_garbage(_recorder)
        _hook_groups(_recorder)
    return _recorder


def recorder(link: Any) -> StepRecorder:
    """Return the recorder of step times, which sends to the link to the agent; None without one. Without
    torch, only `loading`, `saving` and `report` of the job feed it.
    """
    found = install() if "torch" in sys.modules else StepRecorder()
    found.send = link.telemetry if link is not None else None
    return found


def _hook_optimizers(recorder: StepRecorder) -> None:
    from torch.optim.optimizer import (  # noqa: PLC0415
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    began = [0.0]

    def before(*_: Any) -> None:
        recorder.optimizer_started()
        began[0] = time.perf_counter()

    def after(*_: Any) -> None:
        recorder.spend("optimizer", time.perf_counter() - began[0])

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _hook_input(recorder: StepRecorder) -> None:
    from torch.utils.data import dataloader  # noqa: PLC0415

    iterator: Any = dataloader._BaseDataLoaderIter
    iterator.__next__ = _timed(iterator.__next__, recorder, "data")


def _timed(function: Callable[..., Any], recorder: StepRecorder, kind: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **named)
        finally:
            recorder.spend(kind, time.perf_counter() - began)

    return timed


def _hook_garbage(recorder: StepRecorder) -> None:
    began = [0.0]

    def collected(phase: str, _: Any) -> None:
        if phase == "start":
            began[0] = time.perf_counter()
        else:
            recorder.spend("host", time.perf_counter() - began[0])

    gc.callbacks.append(collected)


def _hook_groups(recorder: StepRecorder) -> None:
    import torch.distributed as dist  # noqa: PLC0415

    if not dist.is_available():
        return
    _wrap_own_method(dist.Work, "wait", lambda wait: _timed_wait(wait, recorder))
    _hook_messages(recorder)
    collectives = CollectiveTimer(recorder, RealTorch())
    collectives.wrap(dist, dist.distributed_c10d)
    recorder.collect = collectives.collect
    recorder.find_position = position.from_torch
    _hook_passes(recorder)


def _timed_wait(wait: Callable[..., Any], recorder: StepRecorder) -> Callable[..., Any]:
    timed = _timed(wait, recorder, "wait")

    @functools.wraps(wait)
    def noted(work: Any, *args: Any, **named: Any) -> Any:
        kind = getattr(work, "_get_op_type", None)
        if kind is not None and int(kind()) in _POINT_TO_POINT:
            recorder.exchanged()
        return timed(work, *args, **named)

    return noted


def _hook_messages(recorder: StepRecorder) -> None:
    """Record messages in batches. Their work does not show that they go to single ranks."""
    import torch  # noqa: PLC0415

    message: Any = torch.distributed.P2POp
    original = message.__init__

    @functools.wraps(original)
    def made(*args: Any, **named: Any) -> None:
        if not torch.compiler.is_compiling():
            recorder.exchanged()
        original(*args, **named)

    message.__init__ = made


def _wrap_own_method(owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap a method of a torch class, but keep the original method in all classes derived from it.

    The program may derive classes that C++ calls. If such a class inherited the wrapper, C++ would take the
    wrapper for an override and call it endlessly.
    """
    native = vars(owner)[name]

    def keep(cls: Any, /, **named: Any) -> None:
        super(owner, cls).__init_subclass__(**named)
        if all(name not in vars(one) for one in cls.__mro__[: cls.__mro__.index(owner)]):
            setattr(cls, name, native)

    for cls in owner.__subclasses__():
        keep(cls)  # Classes derived from `cls` inherit the original from it.
    setattr(owner, name, wrap(getattr(owner, name)))
    owner.__init_subclass__ = classmethod(keep)


def _hook_passes(recorder: StepRecorder) -> None:
    import torch  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    wrapper: Any = DistributedDataParallel
    original = wrapper.__init__
    models = _Models()

    @functools.wraps(original)
    def made(self: Any, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        models.add(self)
        recorder.measure = models.measure
        self.register_forward_pre_hook(on_forward)

    def on_forward(model: Any, _: Any) -> None:
        if model.training and not torch.compiler.is_compiling():
            recorder.forward_started()

    wrapper.__init__ = made


class _Models:
    """The models of this process that DDP has wrapped."""

    def __init__(self) -> None:
        self._models: WeakSet[Any] = WeakSet()

    def add(self, model: Any) -> None:
        """Let DDP measure every pass of a model."""
        model._set_ddp_runtime_logging_sample_rate(1)
        self._models.add(model)

    def measure(self, began_ns: int) -> Passes | None:
        """Return the passes of the last complete step; None if no model has measured them.

        `began_ns`: Unix time in nanoseconds when the step's first forward pass started.
        """
        models = list(self._models)
        read = [model._get_ddp_logging_data() for model in models]
        if len(read) == 1 and next(models[0].parameters()).device.type == "cpu":
            return _by_clock(read[0], began_ns)
        return _by_duration(read)


def _by_clock(data: dict[str, Any], began_ns: int) -> Passes | None:
    ready, done = data.get("backward_compute_time_end", 0), data.get("backward_comm_time_end", 0)
    if not began_ns < ready <= done:
        return None  # The times belong to another step, or the clock was set. They cannot be used.
    return Passes((ready - began_ns) / 1e9, (done - ready) / 1e9)


def _by_duration(read: list[dict[str, Any]]) -> Passes | None:
    forward = sum(data.get("forward_compute_time", 0) for data in read)
    backward = sum(data.get("backward_compute_time", 0) for data in read)
    waited = sum(
        max(0, data.get("backward_comm_time", 0) - data.get("backward_compute_comm_overlap_time", 0))
        for data in read
    )
    return Passes((forward + backward) / 1e9, waited / 1e9) if backward else None
