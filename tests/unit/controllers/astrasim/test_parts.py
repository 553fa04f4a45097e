"""Tests of parts of the analytical simulator: trees, queues, intervals, shared bus, clock, imports."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.unit.controllers.astrasim.simulations import Collective

import convoy_controllers.astrasim
from convoy_controllers.astrasim.clock import Clock, RankEvents
from convoy_controllers.astrasim.collective.insertions import Insertion
from convoy_controllers.astrasim.collective.queue_ids import QueueIds
from convoy_controllers.astrasim.collective.shared_bus import MemorySystem
from convoy_controllers.astrasim.collective.trees import places, tree_place
from convoy_controllers.astrasim.parameters import SharedBus
from convoy_controllers.astrasim.run import run
from convoy_controllers.astrasim.workload.intervals import union


@dataclass
class Branch:
    """A node of the reference tree."""

    parent: int | None
    children: tuple[int, ...]


def reference(ranks: int, root_last: bool) -> dict[int, Branch]:
    """Return a tree: each half of the complete part is again a complete tree around its middle."""
    size = places(ranks)
    found: dict[int, Branch] = {}

    def middle(low: int, high: int, parent: int) -> int:
        here = (low + high) // 2
        below = () if low == high else (middle(low, here - 1, here), middle(here + 1, high, here))
        found[here] = Branch(parent, below)
        return here

    root = size - 1 if root_last else 0
    low, high = (0, size - 2) if root_last else (1, size - 1)
    found[root] = Branch(None, (middle(low, high, root),) if size > 1 else ())
    return found


@pytest.mark.parametrize("root_last", [True, False])
def test_the_places_in_a_tree_follow_from_the_bits_of_the_position(root_last: bool) -> None:
    for ranks in range(1, 70):
        expected = reference(ranks, root_last)
        for position in range(ranks):
            found = tree_place(position, ranks, root_last)
            wanted = expected.get(position)
            assert (found is None) == (wanted is None)
            assert (
                found is None
                or wanted is None
                or (found.parent, found.children) == (wanted.parent, wanted.children)
            )


def test_the_two_ways_through_a_dimension_use_different_queues() -> None:
    queues = QueueIds(8, 4)
    assert [queues.up() for _ in range(3)] == [(8, True), (9, True), (8, True)]
    assert [queues.down() for _ in range(3)] == [(10, False), (11, False), (10, False)]
    assert [queues.any() for _ in range(5)] == [(8, True), (9, True), (10, False), (11, False), (8, True)]
    single = QueueIds(3, 1)
    assert [single.any(), single.up(), single.down(), single.any()] == [
        (3, True),
        (3, True),
        (3, False),
        (3, True),
    ]


@pytest.mark.parametrize(
    ("intervals", "length"),
    [([], 0), ([(0, 5)], 5), ([(3, 4), (0, 2)], 3), ([(0, 5), (1, 2), (4, 7)], 7), ([(0, 2), (2, 3)], 3)],
)
def test_the_union_of_intervals_counts_each_time_once(intervals: list[tuple[int, int]], length: int) -> None:
    assert union(intervals) == length


def transfers(bus: SharedBus, *sent: tuple[int, Insertion, int]) -> list[int]:
    """Return the ends of transfers on a shared bus: (time, insertion, bytes)."""
    clock = Clock()
    events = RankEvents(clock)
    memory = MemorySystem(clock, events, bus)
    ends = [0] * len(sent)

    def end(number: int) -> None:
        ends[number] = clock.now

    for number, (time, insertion, size) in enumerate(sent):
        call = lambda _, number=number: end(number)  # noqa: E731
        events.after(time, lambda _, a=insertion, b=size, c=call: memory.transfer(a, b, c), None)
    clock.run(10_000)
    return ends


def test_the_shared_bus_has_the_times_of_log_gp() -> None:
    own = Insertion(to_memory=True, reduced=False)
    received = Insertion(to_memory=False, reduced=False)
    # To the memory: the second bus (int(o + 0.0038 (n - 1) + L + o)), then the first (o + G (n - 1) + L + o).
    bus = SharedBus(latency=50, overhead=7, gap=0, gap_per_byte=0.5)
    second, first = int(64 + 0.0038 * 999), int(64 + 0.5 * 999)
    assert transfers(bus, (1, own, 1000)) == [1 + second + first]
    assert transfers(bus, (1, received, 1000)) == [1 + first + second]
    # A reduction takes 1 ns for each full 100 bytes, here 10 ns, and another 50 ns, before the processor's
    # data arrives.
    reduced = Insertion(to_memory=True, reduced=True)
    assert transfers(bus, (1, reduced, 1000)) == [1 + second + first + 10 + 50]
    # Two transfers in one direction share the bus.
    assert transfers(bus, (1, received, 1000), (1, received, 1000))[1] > 1 + first + second


def test_a_shared_bus_slows_a_collective() -> None:
    plain = Collective(ranks=4).simulation
    slow = replace(plain, system=replace(plain.system, shared_bus=SharedBus(100, 10, 5, 0.01)))
    assert run(slow).ranks[0].finish > run(plain).ranks[0].finish  # type: ignore[union-attr]


def test_two_queues_use_both_directions_of_a_ring() -> None:
    one = Collective(ranks=4, splits=4, active=2, queues=2)
    assert run(one.simulation, collapse=False).finished


def test_events_of_a_rank_run_in_the_place_of_the_first_one() -> None:
    clock = Clock()
    first, second = RankEvents(clock), RankEvents(clock)
    order: list[str] = []
    first.after(5, order.append, "a1")
    second.after(5, order.append, "b1")
    first.after(5, order.append, "a2")
    clock.at(5, order.append, "c")
    clock.run(100)
    assert order == ["a1", "a2", "b1", "c"]


def test_the_simulator_imports_the_standard_library_and_itself_only() -> None:
    package = convoy_controllers.astrasim.__name__
    folder = Path(convoy_controllers.astrasim.__file__).parent
    imported = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    others = {one for one in imported if not one.startswith(package)}
    assert {one.partition(".")[0] for one in others} <= sys.stdlib_module_names
