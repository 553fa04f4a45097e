"""The journal of one rank. It records segments while they are expected to be smaller than full saves."""

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
"""Assumed speed of a restore in bytes per second. A node that has lost its data fetches it over a link of 1
Gbit/s.
"""
SAMPLE_BYTES = 1 << 20
"""Bytes of parameters that the guard replays separately at each save. A single parameter may be larger."""
SAMPLED_BYTES = 64 << 20
"""Limit of the work for the guard. A parameter may be sampled only if its size in bytes, multiplied by the
number of steps in the segment, is at most this value. Parameters of at most `SAMPLE_BYTES` may always be
sampled.
"""
INDEX_BYTES = 256 * 1024
"""Bytes of a segment that are reserved for everything except gradients."""
MAX_SEGMENTS = 8
"""Maximum number of segments in one chain. Each segment has its own buffer."""


def parameters_of(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the parameters of the optimizer by the model's names.

    Raises Refused if the model does not name all parameters of the optimizer.
    """
    worked = {id(one) for group in optimizer.param_groups for one in group["params"]}
    named = {name: one for name, one in model.named_parameters() if id(one) in worked}
    if len(named) != len(worked):
        raise Refused("the optimizer works on parameters that the model does not name")
    return named


def refusal(model: Any, optimizer: Any, segments: Sequence[Segment]) -> str:
    """Return why this model and optimizer cannot replay these segments; empty if they can."""
    if optimizer is None:
        return "no optimizer is restored"
    try:
        replay.check(merge_segments(segments), optimizer, parameters_of(model, optimizer))
    except ValueError as error:  # The error is Refused or ReplayError.
        return str(error)
    return ""


def last_segments(segments: Sequence[Segment]) -> list[Segment]:
    """Return the last segment of each rank."""
    newest: dict[int, Segment] = {}
    for one in sorted(segments, key=lambda one: one.head.number):
        newest[one.head.rank] = one
    return list(newest.values())


class Journal:
    """The journal of one rank since its newest full save.

    Call `on_full_save` after a full save and `on_segment_saved` after a saved segment. Then, if
    `is_worthwhile` returns True, call `open` to record the coming steps. The thread that makes the steps
    calls all methods, between two steps. A step that is made while no segment is open ends the chain.
    """

    def __init__(self, rank: int, world: int, model: Any, optimizer: torch.optim.Optimizer) -> None:
        """Prepare the journal. Raises Refused if the optimizer's steps cannot be replayed."""
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
        """Name and used bytes of the buffer of each segment in the chain."""
        self._sample: guard.Sample | None = None
        """Sample of the parameters at the start of the open segment; None if no parameter is small enough."""
        self._turn = 0
        self._fingerprints: dict[int, str] = {}
        """Fingerprints that the frozen parameters had at the full save of the chain, by memory address."""
        self.inexact = ""
        """Name of the parameter or state that a replay of the last checked segment did not reproduce; empty
        if the replay was exact.
        """
        self.tip: Generation | None = None
        """The newest save, which the next segment extends; None before the first save."""

    @property
    def structure(self) -> str:
        """A digest of the names, shapes and types of the parameters. Ranks with the same gradients have
        equal digests.
        """
        rows = [f"{name} {tuple(one.shape)} {one.dtype}" for name, one in sorted(self._parameters.items())]
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]

    @property
    def writing(self) -> bool:
        """True if a segment is open."""
        return bool(self._name) and self._chain.usable and not self._recorder.reason

    @property
    def ready(self) -> bool:
        """True if the open segment can be saved: it holds at least one step, and all steps since the last
        save.
        """
        return self.writing and self._recorder.steps > self._chain.steps

    def segment_capacity(self, steps: int) -> int:
        """Return the size in bytes of a buffer for a segment of `steps` steps.

        The buffer has space for one more step, because the save may come late.
        """
        return (steps + 1) * self._recorder.step_bytes + INDEX_BYTES

    def buffer_count(self, steps: int, full: int) -> int:
        """Return the number of segment buffers to reserve. They take about as much memory as one full save,
        plus one buffer for the open segment.

        `steps`: number of steps in a segment. `full`: bytes of a full save.
        """
        return max(2, min(MAX_SEGMENTS, full // self.segment_capacity(steps))) + 1

    def is_worthwhile(self, steps: int, full: int) -> bool:
        """Return True if a save after `steps` steps should be a segment rather than a full save.

        `full`: bytes of this rank's full save.
        """
        if not self._chain.usable or len(self._sealed) >= MAX_SEGMENTS:
            return False
        each = self._recorder.step_bytes
        position = policy.ChainPosition(
            steps, self._chain.steps + steps, sum(len(one) for _, one in self._sealed)
        )
        times = policy.RestoreTimes(self._recorder.step_seconds, READ_BYTES, full)
        return policy.choose(policy.Tensors(full, each), position, times).kind == "journal"

    def on_full_save(self, generation: Generation) -> None:
        """Start a chain at the full save `generation`, which must hold the current state."""
        self._close()
        self._sealed, self._sample = [], None
        self._chain = self._chain.after_full_save(generation.name)
        self.tip = generation
        # The step time is measured only while a segment is open, and a long step time keeps segments from
        # being opened. Halve the time at each full save, so that one slow step does not prevent segments
        # forever.
        self._recorder.step_seconds /= 2
        if not self._chain.usable:
            return
        try:
            self._recorder.start(generation.name)
        except Refused as error:
            self.end(str(error))
            return
        # Do not use torch's write counters here, because they do not count writes through `.data`.
        self._fingerprints = {at: fingerprint_of(one) for at, one in self._frozen.items()}

    def open(self, name: str, target: memoryview, steps: int = 1) -> None:
        """Record the coming steps into the buffer `target`, which is called `name`.

        `steps`: the expected number of steps until the next save.
        """
        if any(name == one for one, _ in self._sealed):
            self.end("the buffer of an earlier segment of the chain was reused")
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
        """Close the open segment. Return the name of its buffer and its length in bytes.

        The current values that no optimizer step computes, such as buffers and generators, are added to the
        segment. Return None, and end the chain, if the segment cannot be completed, or if its replay does
        not reproduce the sample (see `inexact`).
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
        """Add the segment that this rank has just sealed to the chain. The caller calls this once every
        rank has sealed its segment of `generation`. `size`: length of this rank's segment in bytes.
        """
        count = self._recorder.steps - self._chain.steps
        self._chain = self._chain.after_segment(self._recorder.base, self._chain.steps, count)
        self._sealed.append((self._name, self._target[:size]))
        self.tip = generation
        self._close()

    def check(self) -> str:
        """Check the open segment before a full save. Return the name of the parameter or state that a
        replay of the segment does not reproduce; empty if the replay is exact.

        If the replay is not exact, the next full saves start no chain (see `Chain`).
        """
        if self.ready:
            try:
                self._check_segment(self._recorder.seal({}, {}))
            except ChainEnded as error:
                self.end(str(error))
        found, self.inexact = self.inexact, ""
        return found

    def _check_segment(self, size: int) -> bool:
        """Replay the sample with the segment that was just closed. Return True if the segment cannot be
        read, or if the replay is not exact.
        """
        if self._sample is None:
            return False
        try:
            one = segment_reader.read(self._target[:size])
        except SegmentError as error:
            self.end(str(error))
            return True
        # The sample was copied at the start of this segment, so replay it as the first segment of a chain.
        alone = replace(one, head=replace(one.head, number=0, first=0))
        self.inexact = guard.find_difference(self._sample, self._optimizer, self._parameters, [alone])
        if self.inexact:
            self._chain = self._chain.after_difference(self.inexact)
            self._recorder.end(self._chain.reason)
        return bool(self.inexact)

    def end(self, reason: str) -> None:
        """End the chain. The next save is a full save."""
        self._chain = self._chain.after_end(reason)
        self._recorder.end(reason)
        self._close()

    @property
    def reason(self) -> str:
        """The reason why there is no chain; empty if there is one."""
        return self._chain.reason or self._recorder.reason

    def _close(self) -> None:
        self._name, self._target = "", memoryview(b"")

    def _replayed_addresses(self) -> set[int]:
        """Return the memory addresses of the tensors that a segment need not hold in full.

        They are the parameters and the optimizer's state, which a replay computes, and the frozen
        parameters that are unchanged since the full save.
        """
        found = {one.data_ptr() for one in self._parameters.values()}
        for state in self._optimizer.state.values():
            found |= {one.data_ptr() for one in state.values() if isinstance(one, torch.Tensor)}
        found |= {at for at, one in self._frozen.items() if self._fingerprints.get(at) == fingerprint_of(one)}
        return found
