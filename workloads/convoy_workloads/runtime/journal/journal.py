"""A rank's journal beside its saves: opened when segments are expected to be fewer bytes than full saves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.journal import guard, policy, replay, segment_reader
from convoy_workloads.runtime.journal.allowed import Refused
from convoy_workloads.runtime.journal.fingerprints import ENDS, EndFingerprints, fingerprint_of
from convoy_workloads.runtime.journal.gradient_recorder import ChainEnded, GradientRecorder
from convoy_workloads.runtime.journal.guard import Chain
from convoy_workloads.runtime.journal.partition import partition
from convoy_workloads.runtime.journal.segment import NoRoom, Segment, SegmentError
from convoy_workloads.runtime.journal.step_sequence import merge_segments
from convoy_workloads.runtime.tiers.planning import RankPlan, StateSnapshot

READ_BYTES = 125e6
"""Per second, in which a restore is taken to read: what a node has lost comes over a link of 1 Gbit/s."""
SAMPLE_BYTES = 1 << 20
"""Of parameters that are replayed aside at each save."""
SAMPLED_BYTES = 64 << 20
"""Of one parameter, over all steps of a segment: a larger one is no sample of so many steps."""
INDEX_BYTES = 256 * 1024
"""Of a segment, for what is no gradient."""
MOST_SEGMENTS = 8
"""In one chain, whatever their size; each has a buffer."""


def parameters_of(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """By the model's names, what the optimizer works on. Refused when the model does not name all of it."""
    worked = {id(one) for group in optimizer.param_groups for one in group["params"]}
    named = {name: one for name, one in model.named_parameters() if id(one) in worked}
    if len(named) != len(worked):
        raise Refused("the optimizer works on parameters that the model does not name")
    return named


def refusal(model: Any, optimizer: Any, segments: Sequence[Segment]) -> str:
    """Why these objects cannot replay these segments; empty when they can."""
    if optimizer is None:
        return "no optimizer is restored"
    try:
        replay.check(merge_segments(segments), optimizer, parameters_of(model, optimizer))
    except ValueError as error:  # Refused, ReplayError
        return str(error)
    return ""


def last_segments(segments: Sequence[Segment]) -> list[Segment]:
    """The last segment of each rank."""
    newest: dict[int, Segment] = {}
    for one in sorted(segments, key=lambda one: one.head.number):
        newest[one.head.rank] = one
    return list(newest.values())


class Journal:
    """Of one rank: the chain behind its newest full save. Used between two steps, by the thread that makes
    them.

    `based` follows a full save and `sealed` a segment; then `open` lets the coming steps be written, if they
    pay. Steps that are made while nothing is open end the chain.
    """

    def __init__(self, rank: int, world: int, model: Any, optimizer: torch.optim.Optimizer) -> None:
        """Refused when the optimizer cannot be replayed."""
        self._optimizer = optimizer
        self._parameters = parameters_of(model, optimizer)
        self._frozen = {one.data_ptr(): one for one in model.parameters() if not one.requires_grad}
        owned = partition(self._parameters, rank, world)
        self._recorder = GradientRecorder(optimizer, owned, rank, world)
        self._ends = EndFingerprints(owned)
        whole = [one for one in owned if one.box[1] == tuple(one.parameter.shape)]
        self._sizes = {one.name: one.parameter.numel() * one.parameter.element_size() for one in whole}
        self._chain = Chain()
        self._name = ""
        self._target = memoryview(b"")
        self._sealed: list[tuple[str, memoryview]] = []
        """Buffers of the chain's segments, and their bytes."""
        self._sample: guard.Sample | None = None
        """Of what the open segment begins with."""
        self._turn = 0
        self._prints: dict[int, str] = {}
        """Of frozen parameters, where they lie, at the base."""
        self.inexact = ""
        """What the last segment, or the last check, found that gradients do not make; empty if nothing."""
        self.tip: Generation | None = None
        """The newest save that the next segment can follow."""

    @property
    def structure(self) -> str:
        """A digest that is equal on all ranks which have the same gradients."""
        rows = [f"{name} {tuple(one.shape)} {one.dtype}" for name, one in sorted(self._parameters.items())]
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]

    @property
    def writing(self) -> bool:
        """Whether a segment is open."""
        return bool(self._name) and self._chain.usable and not self._recorder.reason

    @property
    def ready(self) -> bool:
        """Whether the steps since the last save, at least one, are in the open segment."""
        return self.writing and self._recorder.steps > self._chain.steps

    def capacity(self, steps: int) -> int:
        """Bytes of a buffer for segments of so many steps; one more may come before there is time to save."""
        return (steps + 1) * self._recorder.step_bytes + INDEX_BYTES

    def buffers(self, steps: int, full: int) -> int:
        """Buffers of that capacity that are worth while: about as much memory as one full save, which has
        `full` bytes, and one to write to.
        """
        return max(2, min(MOST_SEGMENTS, full // self.capacity(steps))) + 1

    def is_worthwhile(self, steps: int, full: int) -> bool:
        """Whether the next save should be a segment, if it comes after so many steps.

        `full`: bytes of this rank's full save.
        """
        if not self._chain.usable or len(self._sealed) >= MOST_SEGMENTS:
            return False
        each = self._recorder.step_bytes
        behind = policy.ChainPosition(
            steps, self._chain.steps + steps, sum(len(one) for _, one in self._sealed)
        )
        times = policy.RestoreTimes(self._recorder.step_seconds, READ_BYTES, full)
        return policy.choose(policy.Tensors(full, each), behind, times).kind == "journal"

    def on_full_save(self, generation: Generation) -> None:
        """A full save is made of the state as it is now."""
        self._close()
        self._sealed, self._sample = [], None
        self._chain = self._chain.saved(generation.name)
        self.tip = generation
        # Measured while a segment is open alone: one step that was slow must not keep it shut for good.
        self._recorder.step_seconds /= 2
        if not self._chain.usable:
            return
        try:
            self._recorder.start(generation.name)
        except Refused as error:
            self.end(str(error))
            return
        # Not torch's count of writes: what goes through `.data` is not in it.
        self._prints = {at: fingerprint_of(one) for at, one in self._frozen.items()}

    def open(self, name: str, target: memoryview, steps: int = 1) -> None:
        """The coming steps, about so many, are written to a buffer."""
        if any(name == one for one, _ in self._sealed):
            self.end("a segment of the chain is not kept any more")
            return
        try:
            self._recorder.open_segment(target)
        except (ChainEnded, NoRoom) as error:
            self.end(str(error))
            return
        self._name, self._target = name, target
        most = max(SAMPLE_BYTES, SAMPLED_BYTES // max(1, steps))
        sizes = {one: size for one, size in self._sizes.items() if size <= most}
        self._sample = None
        if sizes:
            names = guard.pick_sample(sizes, min(most, SAMPLE_BYTES), self._turn)
            self._turn += 1
            self._sample = guard.copy_sample(self._optimizer, self._parameters, names)

    def seal(
        self, snapshot: StateSnapshot, rank_plan: RankPlan, facts: Mapping[str, Any]
    ) -> tuple[str, int] | None:
        """Closes the open segment: its buffer and its bytes. None, and the chain has ended, when it is of no
        use, or does not make again what a sample has become (`inexact`).

        What no step makes, such as buffers and generators, goes into it as it is now.
        """
        made = self._replayed_addresses()
        facts = {**facts, ENDS: self._ends.facts()}
        try:
            for part, tensor in zip(rank_plan.layout.parts, snapshot.tensors(rank_plan)):  # noqa: B905
                if not (tensor.numel() and tensor.data_ptr() in made):
                    self._recorder.save(part.name, part.box, part.shape, tensor)
            size = self._recorder.seal(snapshot.texts(rank_plan), facts)
        except ChainEnded as error:
            self.end(str(error))
            return None
        return None if self._check_segment(size) else (self._name, size)

    def on_segment_saved(self, generation: Generation, size: int) -> None:
        """All ranks have closed theirs: the chain goes on from here."""
        count = self._recorder.steps - self._chain.steps
        self._chain = self._chain.extended(self._recorder.base, self._chain.steps, count)
        self._sealed.append((self._name, self._target[:size]))
        self.tip = generation
        self._close()

    def check(self) -> str:
        """Before a full save: what of a sample the open segment does not make again; empty if nothing is
        found. Otherwise this journal is not used for a while.
        """
        if self.ready:
            try:
                self._check_segment(self._recorder.seal({}, {}))
            except ChainEnded as error:
                self.end(str(error))
        found, self.inexact = self.inexact, ""
        return found

    def _check_segment(self, size: int) -> bool:
        """Looks at the segment that was just closed."""
        if self._sample is None:
            return False
        try:
            one = segment_reader.read(self._target[:size])
        except SegmentError as error:
            self.end(str(error))
            return True
        # From the sample on, it is the first.
        alone = replace(one, head=replace(one.head, number=0, first=0))
        self.inexact = guard.find_difference(self._sample, self._optimizer, self._parameters, [alone])
        if self.inexact:
            self._chain = self._chain.inexact(self.inexact)
            self._recorder.end(self._chain.reason)
        return bool(self.inexact)

    def end(self, reason: str) -> None:
        """The next save is a full one."""
        self._chain = self._chain.ended(reason)
        self._recorder.end(reason)
        self._close()

    @property
    def reason(self) -> str:
        """Why there is no chain; empty while there is."""
        return self._chain.reason or self._recorder.reason

    def _close(self) -> None:
        self._name, self._target = "", memoryview(b"")

    def _replayed_addresses(self) -> set[int]:
        """Where tensors lie that a replay makes, or that were frozen and not written to since the base."""
        found = {one.data_ptr() for one in self._parameters.values()}
        for state in self._optimizer.state.values():
            found |= {one.data_ptr() for one in state.values() if isinstance(one, torch.Tensor)}
        found |= {at for at, one in self._frozen.items() if self._prints.get(at) == fingerprint_of(one)}
        return found
