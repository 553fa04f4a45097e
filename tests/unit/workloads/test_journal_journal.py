"""Tests of a rank's journal: the content of its segments, and the restore from them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.journal import fingerprints, segment_reader
from convoy_workloads.runtime.journal import journal as journals
from convoy_workloads.runtime.journal.allowed import Refused
from convoy_workloads.runtime.journal.journal import Journal, last_segments, parameters_of
from convoy_workloads.runtime.journal.replay import replay
from convoy_workloads.runtime.state import TrainingState
from convoy_workloads.runtime.tiers import planning, reading, shard

ROOM = 600_000


class Net(nn.Module):
    """A model with buffers that change and a frozen part."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(12, 40)
        self.norm = nn.BatchNorm1d(40)
        self.two = nn.Linear(40, 4)
        self.frozen = nn.Linear(200, 200)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.tanh(self.norm(self.one(x))))  # type: ignore[no-any-return]


class Run:
    """One rank that trains, makes full saves and journal saves, and can be restored."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = Net()
        trained = [one for one in self.model.parameters() if one.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=0.01, fused=True)
        self.state = TrainingState(0, self.model, self.optimizer)
        self.step = 0
        self.rank_plan: Any = None

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            self.optimizer.param_groups[0]["lr"] = 0.01 / self.step
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 12)).square().sum().backward()
            self.optimizer.step()

    @property
    def generation(self) -> Generation:
        return Generation(1, self.step)

    def full(self) -> bytearray:
        snapshot = planning.StateSnapshot(self.state.collect())
        self.rank_plan = planning.plan_save(snapshot)
        target = bytearray(self.rank_plan.layout.size)
        shard.write(
            memoryview(target),
            self.rank_plan.layout,
            snapshot.tensors(self.rank_plan),
            snapshot.texts(self.rank_plan),
            {},
        )
        return target

    def journal(self) -> Journal:
        return Journal(0, 1, self.model, self.optimizer)

    def segment(self, journal: Journal) -> int:
        assert journal.ready
        closed = journal.seal(
            planning.StateSnapshot(self.state.collect()), self.rank_plan, {"step": self.step}
        )
        assert closed is not None, journal.reason
        journal.on_segment_saved(self.generation, closed[1])
        return closed[1]

    def restore(self, base: bytearray, pieces: list[memoryview]) -> None:
        state = self.state.load_target()
        reading.load(state, [shard.read(memoryview(base))])
        self.state.apply(state, 1)
        segments = [segment_reader.read(one) for one in pieces]
        assert journals.refusal(self.model, self.optimizer, segments) == ""
        replay(self.optimizer, parameters_of(self.model, self.optimizer), segments)
        state = self.state.load_target()
        reading.load(state, last_segments(segments), partial=True)
        self.state.apply(state, 1)

    def bits(self) -> list[bytes]:
        tensors = [*self.model.state_dict().values()]
        for one in self.optimizer.state_dict()["state"].values():
            tensors += one.values()
        return [one.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for one in tensors]


def target() -> memoryview:
    return memoryview(bytearray(b"\xa5" * ROOM))


def after_full_save(run: Run, journal: Journal) -> bytearray:
    """Make a full save, and let the journal record the coming steps into buffer `a`. Return the full save."""
    base = run.full()
    journal.on_full_save(run.generation)
    journal.open("a", target())
    return base


def test_a_base_and_its_segments_reproduce_the_run() -> None:
    run = Run()
    journal = run.journal()
    run.train(2)
    base = after_full_save(run, journal)
    assert journal.writing and not journal.ready, "no step is in it"
    pieces = []
    for name, steps in (("b", 1), ("c", 3), ("d", 1)):
        run.train(steps)
        buffer = journal._target
        size = run.segment(journal)
        assert journal.tip == run.generation
        pieces.append(buffer[:size])
        journal.open(name, target())
    again = Run(seed=5)
    again.restore(base, pieces)
    again.step = run.step
    assert again.bits() == run.bits()
    assert again.optimizer.param_groups[0]["lr"] == run.optimizer.param_groups[0]["lr"]
    state = torch.get_rng_state()
    run.train(3)
    torch.set_rng_state(state)
    again.train(3)
    assert again.bits() == run.bits(), "generators and buffers are those of the last segment too"


def test_a_frozen_parameter_is_in_no_segment_until_written() -> None:
    run = Run()
    journal = run.journal()
    run.train(1)
    after_full_save(run, journal)
    run.train(1)
    small = run.segment(journal)
    assert small < run.model.frozen.weight.numel()
    run.full()
    journal.on_full_save(run.generation)
    journal.open("a", target())
    run.train(1)
    with torch.no_grad():
        run.model.frozen.weight.mul_(2)
    assert run.segment(journal) > small + 4 * run.model.frozen.weight.numel() - 1


def test_a_frozen_parameter_written_through_data_is_restored() -> None:
    """A frozen parameter is written through `.data`, as by a momentum encoder. torch does not count such
    writes.
    """
    run = Run()
    journal = run.journal()
    run.train(2)
    base = after_full_save(run, journal)
    version = run.model.frozen.weight._version
    run.train(1)
    run.model.frozen.weight.data.mul_(0.9)
    assert run.model.frozen.weight._version == version
    buffer = journal._target
    piece = buffer[: run.segment(journal)]
    again = Run(seed=5)
    again.restore(base, [piece])
    assert again.bits() == run.bits()


def test_a_replay_with_other_values_is_detected() -> None:
    run = Run()
    journal = run.journal()
    run.train(2)
    base = after_full_save(run, journal)
    # Remove the sample, because it need not contain the parameter that is changed below.
    journal._sample = None
    run.train(1)
    run.model.two.weight.data[0, 0] += 1
    buffer = journal._target
    piece = segment_reader.read(buffer[: run.segment(journal)])
    state = run.state.load_target()
    reading.load(state, [shard.read(memoryview(base))])
    run.state.apply(state, 1)
    parameters = parameters_of(run.model, run.optimizer)
    check = fingerprints.ReplayCheck([piece], parameters)
    replay(run.optimizer, parameters, [piece], each=check.check_step)
    assert check.wrong == "two.weight"


def test_a_replay_with_equal_values_passes() -> None:
    run = Run()
    journal = run.journal()
    run.train(2)
    base = after_full_save(run, journal)
    pieces = []
    for name in "bc":
        run.train(2)
        buffer = journal._target
        pieces.append(segment_reader.read(buffer[: run.segment(journal)]))
        journal.open(name, target())
    assert all(one.facts[fingerprints.ENDS] for one in pieces)
    state = run.state.load_target()
    reading.load(state, [shard.read(memoryview(base))])
    run.state.apply(state, 1)
    parameters = parameters_of(run.model, run.optimizer)
    check = fingerprints.ReplayCheck(pieces, parameters)
    replay(run.optimizer, parameters, pieces, each=check.check_step)
    assert not check.wrong


def test_a_step_without_an_open_segment_ends_the_chain() -> None:
    run = Run()
    journal = run.journal()
    run.train(1)
    run.full()
    journal.on_full_save(run.generation)
    run.train(1)
    assert not journal.ready and "no segment was open" in journal.reason
    after_full_save(run, journal)
    run.train(1)
    assert journal.ready, "the next full save begins another"


def closed(run: Run, journal: Journal) -> Any:
    return journal.seal(planning.StateSnapshot(run.state.collect()), run.rank_plan, {"step": run.step})


@pytest.mark.parametrize("full", [False, True], ids=["at a segment", "at a full save"])
def test_an_edited_weight_is_detected_before_a_segment_counts(full: bool) -> None:
    run = Run()
    journal = run.journal()
    run.train(1)
    after_full_save(run, journal)
    run.train(1)
    run.segment(journal)
    journal.open("b", target())
    run.train(1)
    run.model.two.weight.data[0, 0] += 1
    run.train(1)
    if not full:
        assert closed(run, journal) is None
        assert not journal.writing
    assert journal.check() == "two.weight"
    assert journal.check() == "", "the difference is reported once"
    after_full_save(run, journal)
    assert not journal.writing, "the next save is a full one as well"
    after_full_save(run, journal)
    run.train(1)
    assert journal.ready and journal.check() == ""


def test_an_undisturbed_journal_passes_the_check() -> None:
    run = Run()
    journal = run.journal()
    run.train(1)
    for _ in range(3):
        after_full_save(run, journal)
        run.train(2)
        run.segment(journal)
        journal.open("b", target())
        run.train(1)
        before = run.bits()
        assert journal.check() == "" and run.bits() == before


def test_a_buffer_of_the_chain_is_not_written_again() -> None:
    run = Run()
    journal = run.journal()
    run.train(1)
    after_full_save(run, journal)
    run.train(1)
    run.segment(journal)
    journal.open("a", target())
    assert not journal.writing


def test_a_full_segment_ends_the_chain_but_not_the_training() -> None:
    run = Run()
    journal = run.journal()
    run.train(1)
    run.full()
    journal.on_full_save(run.generation)
    journal.open("a", memoryview(bytearray(8192)))
    run.train(2)
    assert not journal.ready and journal.reason


@pytest.mark.parametrize(("steps", "pays"), [(1, True), (2, True), (3, False), (100, False)])
def test_the_journal_pays_while_gradients_are_smaller_than_the_state(steps: int, pays: bool) -> None:
    run = Run()
    run.model.frozen = nn.Linear(1, 1)
    run.state = TrainingState(0, run.model, run.optimizer)
    journal = run.journal()
    run.train(1)
    size = sum(one.numel() * 4 for one in run.optimizer.param_groups[0]["params"])
    journal.on_full_save(run.generation)
    journal.open("a", target())
    run.train(1)
    journal._recorder.step_seconds = 0.0
    assert journal.is_worthwhile(steps, 3 * size) is pays


def test_one_slow_step_does_not_disable_the_journal_permanently() -> None:
    run = Run()
    journal = run.journal()
    run.train(1)
    size = sum(one.numel() * 4 for one in run.optimizer.param_groups[0]["params"])
    journal.on_full_save(run.generation)
    journal.open("a", target())
    run.train(1)
    journal._recorder.step_seconds = 1.0
    found = []
    while not (found and found[-1]) and len(found) < 40:
        journal.on_full_save(run.generation)
        found.append(journal.is_worthwhile(1, 3 * size))
    assert not found[0] and found[-1]


def test_parameters_outside_the_model_are_rejected() -> None:
    run = Run()
    optimizer = torch.optim.SGD([*run.model.parameters(), nn.Parameter(torch.ones(3))], lr=0.1)
    with pytest.raises(Refused, match="does not name"):
        Journal(0, 1, run.model, optimizer)


def test_segments_of_other_parameter_groups_are_rejected() -> None:
    run = Run()
    journal = run.journal()
    run.train(1)
    after_full_save(run, journal)
    run.train(1)
    buffer = journal._target
    piece = segment_reader.read(buffer[: run.segment(journal)])
    other = torch.optim.SGD(list(run.model.two.parameters()), lr=0.1)
    assert journals.refusal(run.model, other, [piece])
    assert journals.refusal(run.model, None, [piece])
