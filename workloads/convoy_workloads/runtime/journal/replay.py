"""The replay of a chain: the program's own optimizer repeats its steps with the recorded inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.optim import optimizer as torch_hooks

from convoy_workloads.runtime.journal import allowed, groups
from convoy_workloads.runtime.journal.kernel import kernel_of
from convoy_workloads.runtime.journal.segment import Segment
from convoy_workloads.runtime.journal.step_sequence import (
    ReplayError,
    StepSequence,
    assemble_gradient,
    merge_segments,
)


@contextmanager
def without_global_hooks() -> Iterator[None]:
    """Return a context in which the hooks on all optimizers of this process are disabled. Replayed steps
    are not steps of the training, so hooks must not count or record them.
    """
    hooks = (torch_hooks._global_optimizer_pre_hooks, torch_hooks._global_optimizer_post_hooks)
    with _set_aside(*hooks):
        yield


HookGuard = Callable[[], "AbstractContextManager[None]"]


def replay(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.Tensor],
    segments: Iterable[Segment],
    *,
    elementwise: Collection[type] = (),
    hooks_off: HookGuard = without_global_hooks,
    each: Callable[[int, int], None] | None = None,
) -> int:
    """Replay the segments on `optimizer` and `parameters`, into which the full save of the chain has already
    been loaded. Return the number of replayed steps.

    `parameters` holds all parameters of the optimizer, under the names that the segments use. `segments` come
    from all ranks. After the replay the gradients are as before, and the parameter groups have the scalars
    that were stored when the last segments were sealed.

    `hooks_off`: context in which the steps are replayed. `each`: function that is called after every step
    with the number of the step and the total number of steps. Raises ReplayError, before anything is changed,
    if the segments do not match the optimizer.
    """
    sequence = merge_segments(segments)
    check(sequence, optimizer, parameters, elementwise)
    with hooks_off():
        run(sequence, optimizer, parameters, each)
    return len(sequence.steps)


def check(
    sequence: StepSequence,
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.Tensor],
    elementwise: Collection[type] = (),
) -> None:
    """Raise ReplayError if `optimizer` with these parameters cannot replay `sequence`."""
    reason = allowed.refusal(optimizer, elementwise) or sequence.kernel.difference(kernel_of(optimizer))
    if reason:
        raise ReplayError(reason)
    if sequence.structure != groups.structure(optimizer):
        raise ReplayError("the optimizer's groups differ from those of the journal")
    worked = {id(one) for group in optimizer.param_groups for one in group["params"]}
    if {id(one) for one in parameters.values()} != worked or len(parameters) != len(worked):
        raise ReplayError("the names do not match the optimizer's parameters")
    for name in {*parameters, *sequence.shapes}:
        if name not in parameters or tuple(parameters[name].shape) != sequence.shapes.get(name):
            raise ReplayError(f"{name} is not in the journal, or has another shape there")
    for step_input in sequence.steps:
        for name, found in step_input.gradients.items():
            if f"torch.{found[0][1].dtype}" != str(parameters[name].dtype):
                raise ReplayError(f"the gradient of {name} was {found[0][1].dtype}")
        if len(step_input.groups) != len(optimizer.param_groups):
            raise ReplayError("a step was recorded with another number of groups")


def run(
    sequence: StepSequence,
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.Tensor],
    each: Callable[[int, int], None] | None = None,
) -> None:
    """Make the steps of `sequence` without checking whether they match the optimizer. During these steps,
    the hooks of this optimizer are disabled.
    """
    before = {name: one.grad for name, one in parameters.items()}
    room: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}
    with _set_aside(optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks):
        try:
            for number, step_input in enumerate(sequence.steps, 1):
                for name, one in parameters.items():
                    found = step_input.gradients.get(name)
                    one.grad = None
                    if found:
                        form = (name, found[0][1].strides)
                        if form not in room:
                            room[form] = torch.empty_strided(
                                one.shape, form[1], dtype=one.dtype, device=one.device
                            )
                        assemble_gradient(found, room[form])
                        one.grad = room[form]
                groups.set_scalars(optimizer, step_input.groups)
                device = next((one.device for one in parameters.values()), torch.device("cpu"))
                with groups.scaled(optimizer, step_input.scaling, device):
                    optimizer.step()
                if each is not None:
                    each(number, len(sequence.steps))
            groups.set_scalars(optimizer, sequence.after)
        finally:
            for name, one in parameters.items():
                one.grad = before[name]


@contextmanager
def _set_aside(*hooks: dict[int, Any]) -> Iterator[None]:
    kept = [dict(one) for one in hooks]
    for one in hooks:
        one.clear()
    try:
        yield
    finally:
        for one, before in zip(hooks, kept):  # noqa: B905 - `strict` came with Python 3.10
            one.clear()
            one.update(before)
