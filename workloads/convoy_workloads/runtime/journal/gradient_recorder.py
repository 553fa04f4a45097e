"""The recorder of each optimizer step's input. It is a hook that every torch optimizer calls at the start
of a step.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from convoy_workloads.runtime.journal import allowed, groups
from convoy_workloads.runtime.journal.allowed import Refused
from convoy_workloads.runtime.journal.kernel import kernel_of
from convoy_workloads.runtime.journal.partition import OwnedBox
from convoy_workloads.runtime.journal.segment import Head, NoRoom, Share
from convoy_workloads.runtime.journal.segment_writer import SegmentWriter
from convoy_workloads.runtime.tiers import values as texts
from convoy_workloads.runtime.tiers.shard import ALIGN, Box

_ROW = 96
"""Maximum number of bytes in a segment's index for the gradient of one box in one step."""


class ChainEnded(RuntimeError):
    """Raised by a call that needs a chain, because the chain has ended. The message gives the reason. The
    next save is a full save.
    """


class GradientRecorder:
    """Records the gradients that this rank journals, in each step of one optimizer. A full save and the
    recorded steps after it form a chain.

    Call `start` after a full save, `open_segment` to provide memory for the coming steps, and `seal` to
    close the segment. The thread that makes the steps calls all of them, between two steps. Each step waits
    while its gradients are copied.

    The chain ends (see `reason`) if a replay of the recorded data could give another result, for example in
    these cases:

    - The kernel or the parameter groups have changed.
    - A parameter is no longer trained.
    - The program has written to a parameter or its state outside the optimizer.
    - The gradients of a step do not fit into the segment.

    Torch's version counters detect most writes. They do not count writes through `.data`, which guard.py
    detects.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        owned: Sequence[OwnedBox],
        rank: int = 0,
        world: int = 1,
        elementwise: Collection[type] = (),
    ) -> None:
        """Install the hooks on the optimizer. Raises Refused if the optimizer's steps cannot be replayed.

        `owned`: the boxes that this rank journals (partition.py).
        """
        self._optimizer = optimizer
        self._owned = list(owned)
        self._rank, self._world = rank, world
        self._elementwise = tuple(elementwise)
        self._reason = "no full save yet"
        self._base = ""
        self._done = self._segments = 0
        self._writer: SegmentWriter | None = None
        self._open = False
        self._paused = False
        self._began = 0.0
        self.step_seconds = 0.0
        """Seconds that the last step of the optimizer took, without the time to record it."""
        reason = allowed.refusal(optimizer, self._elementwise)
        if reason:
            raise Refused(reason)
        worked = {id(one) for group in optimizer.param_groups for one in group["params"]}
        for one in self._owned:
            if id(one.parameter) not in worked:
                raise Refused(f"{one.name} is not a parameter of the optimizer")
        self._hooks = (
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        )

    @property
    def reason(self) -> str:
        """The reason why there is no chain to continue: no full save has started one, or it has ended.
        Empty while steps can be recorded.
        """
        return self._reason

    @property
    def base(self) -> str:
        """Name of the full save that the chain starts with."""
        return self._base

    @property
    def steps(self) -> int:
        """Number of recorded steps since the base."""
        return self._done

    @property
    def step_bytes(self) -> int:
        """Maximum number of bytes that one more step needs in a segment."""
        dense = sum(-(-_bytes(one) // ALIGN) * ALIGN for one in self._owned)
        return dense + len(self._owned) * _ROW + 2 * len(self._scalars()) + ALIGN

    @property
    def bytes_left(self) -> int:
        """Number of unused bytes in the open segment; 0 if no segment is open."""
        return 0 if self._writer is None else self._writer.left

    def start(self, base: str) -> None:
        """Start a chain at the full save named `base`, which must hold the current state.

        Raises Refused if the optimizer's steps cannot be replayed.
        """
        reason = allowed.refusal(self._optimizer, self._elementwise)
        self._writer, self._open, self._base = None, False, base
        self._done = self._segments = 0
        self._reason = reason
        if reason:
            raise Refused(reason)
        self._kernel = kernel_of(self._optimizer)
        self._structure = groups.structure(self._optimizer)
        self._members = groups.members(self._optimizer)
        self._versions = groups.versions(self._optimizer)

    def open_segment(self, target: memoryview) -> None:
        """Record the coming steps into `target`. Raises ChainEnded if there is no chain.

        The caller must ensure that the steps fit (see `step_bytes` and `bytes_left`), because the chain
        ends at a step that does not fit.
        """
        self._require_chain()
        shares = tuple(
            Share(one.name, one.box[0], one.box[1], tuple(one.parameter.shape)) for one in self._owned
        )
        head = Head(
            self._rank,
            self._world,
            self._base,
            self._segments,
            self._done,
            self._structure,
            self._kernel,
            shares,
        )
        self._writer = SegmentWriter(target, head)
        self._segments += 1

    def save(self, name: str, box: Box, shape: tuple[int, ...], tensor: torch.Tensor) -> None:
        """Write a tensor that no optimizer step computes, such as a model's buffer, into the open segment
        in full.
        """
        self._require_chain()
        if self._writer is None:
            raise ChainEnded("no segment is open")
        try:
            self._writer.tensor(name, box, shape, tensor)
        except NoRoom as error:
            self.end(f"no space in the segment: {error}")
            self._require_chain()

    def seal(self, values: Mapping[str, str], facts: Mapping[str, Any]) -> int:
        """Close the open segment and return its length in bytes. Raises ChainEnded if the chain has ended,
        or if the rest of the segment does not fit into its memory.

        `values`: the current encoded values that are not tensors, by name (tiers/values.py). `facts`:
        metadata of the save, such as its step.
        """
        self._require_chain()
        self._check_unchanged()
        self._require_chain()
        if self._writer is None:
            raise ChainEnded("no segment is open")
        writer, self._writer = self._writer, None
        try:
            return writer.seal(self._scalars(), values, facts)
        except NoRoom as error:
            self.end(f"no space in the segment: {error}")
            raise ChainEnded(self._reason) from error

    def end(self, reason: str) -> None:
        """End the chain for `reason`. Do nothing if the chain has already ended."""
        self._reason = self._reason or reason
        self._writer = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context in which steps are not recorded. The caller must undo these steps bit for bit."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            if not self._reason:
                self._versions = groups.versions(self._optimizer)

    def close(self) -> None:
        """Remove the hooks from the optimizer."""
        self.end("closed")
        for hook in self._hooks:
            hook.remove()

    def _require_chain(self) -> None:
        if self._reason:
            raise ChainEnded(self._reason)

    def _check_unchanged(self) -> None:
        """End the chain if anything other than the optimizer has changed the parameters or the optimizer's
        state.
        """
        if self._open:
            self.end("a step was interrupted before it was finished")
        elif groups.members(self._optimizer) != self._members:
            self.end("the optimizer's groups, or the set of trained parameters, have changed")
        elif groups.versions(self._optimizer) != self._versions:
            self.end("a parameter or its state was written to outside the optimizer")

    def _before(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._paused or self._reason:
            return
        self._check_unchanged()
        reason = (
            self._reason
            or allowed.call_refusal(args, kwargs)
            or allowed.hook_refusal(optimizer)
            or self._kernel.difference(kernel_of(optimizer))
            or next(
                filter(None, (allowed.gradient_refusal(one.name, one.parameter) for one in self._owned)), ""
            )
        )
        if not reason and self._writer is None:
            reason = "a step was made while no segment was open"
        if reason:
            self.end(reason)
            return
        try:
            self._pending = self._scalars(), texts.dumps(groups.scaling(optimizer))
            self._copy()
        # An error of the recorder ends the chain, but must not end the training.
        except (ValueError, TypeError, RuntimeError) as error:
            self.end(f"the step cannot be recorded: {error}")
            return
        self._open = True
        self._began = time.monotonic()

    def _copy(self) -> None:
        assert self._writer is not None  # noqa: S101 - asked before
        self._writer.gradients(self._parts())

    def _parts(self) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Yield the gradients of this step, as `SegmentWriter.gradients` takes them."""
        for number, owned in enumerate(self._owned):
            gradient = owned.parameter.grad
            if gradient is None:
                continue
            part = gradient
            for dimension, (start, size) in enumerate(zip(*owned.box)):  # noqa: B905
                if size != part.shape[dimension]:
                    part = part.narrow(dimension, start, size)
            yield number, gradient, part

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._paused or self._reason or self._writer is None:
            return
        self.step_seconds = time.monotonic() - self._began
        self._writer.step(*self._pending)
        self._open = False
        self._done += 1
        self._versions = groups.versions(optimizer)

    def _scalars(self) -> str:
        return texts.dumps(groups.scalars(self._optimizer))


def _bytes(owned: OwnedBox) -> int:
    size = owned.parameter.element_size()
    for one in owned.box[1]:
        size *= one
    return size
