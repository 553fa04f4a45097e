"""Tests of the placement bench: the oracle, times in incomplete gangs, and the simulated schedulers."""

from __future__ import annotations

import pytest
from e2e.bench.placement import racks
from e2e.bench.placement.gangs.partial import PartialTimes
from e2e.bench.placement.gangs.rules import Coscheduling, Group, View, Volcano, Waiting
from e2e.bench.placement.racks import CPUS, Arrival, Racks

NAMES = [f"n{index:03}" for index in range(250)]


def test_tenants_fill_the_load_and_no_node_beyond_its_size():
    used = [0] * 250
    for node, cpus in racks.tenants(250, 1):
        used[node] += cpus
    assert sum(used) == 0.7 * CPUS * 250
    assert max(used) <= CPUS
    assert racks.tenants(250, 1) == racks.tenants(250, 1) != racks.tenants(250, 2)


def test_a_job_fits_a_rack_by_the_room_for_whole_pods():
    state = Racks(NAMES)
    for name in NAMES:
        state.add(name, CPUS)
    for name in NAMES[:10]:
        state.add(name, -3)
    # Ten nodes with three processors each: ten pods of two processors, and thirty of one.
    assert state.fits_one_rack(Arrival("a", 10, 2))
    assert not state.fits_one_rack(Arrival("a", 11, 2))
    assert state.fits_one_rack(Arrival("a", 30, 1))
    # Room in two racks does not add up.
    state.add(NAMES[10], -3)
    assert not state.fits_one_rack(Arrival("a", 31, 1))


@pytest.mark.parametrize(
    ("nodes", "hops"),
    [
        (["n000", "n000"], 0),
        (["n000", "n009"], 2),
        (["n000", "n010"], 4),
        (["n000", "n050"], 6),
        (["n000", "n000", "n001", "n010"], 0 + 1 + 2 + 2),
    ],
)
def test_hops_of_a_ring(nodes: list[str], hops: int):
    assert Racks(NAMES).ring_hops(nodes) == hops


def test_partial_time_counts_until_the_gang_is_complete():
    times = PartialTimes(size=3)
    times.update({"g": {"1"}}, 0.0)
    times.update({"g": {"1", "2"}}, 4.0)
    times.update({"g": {"1", "2", "3"}}, 5.0)
    assert times.longest == 5.0
    # The gang was complete, so its last pod does not wait for anybody.
    times.update({"g": {"1"}}, 50.0)
    times.update({}, 60.0)
    assert times.longest == 5.0


def test_partial_time_of_a_second_attempt_and_of_a_gang_that_still_waits():
    times = PartialTimes(size=2)
    times.update({"g": {"1", "2"}}, 0.0)
    times.update({}, 1.0)
    times.update({"g": {"3"}}, 2.0)
    times.update({"g": {"3"}}, 9.0)
    assert times.longest == 7.0
    times.update({"g": {"4"}}, 10.0)
    times.update({"g": {"4"}}, 12.0)
    assert times.longest == 8.0, "each pod counts alone, until it is gone"


def view(free: int, *gangs: str, bound: dict[str, int] | None = None, cpus: int = 3) -> View:
    """Return a cluster of nodes with one free processor each, and three waiting pods for each gang."""
    waiting = [Waiting(f"{gang}-{number}", gang, 1) for gang in gangs for number in range(3)]
    groups = {gang: Group(gang, str(number), 3, cpus) for number, gang in enumerate(gangs)}
    return View({f"n{index}": 1 for index in range(free)}, waiting, bound or {}, groups)


@pytest.mark.parametrize("rule", [Coscheduling, Volcano])
def test_a_scheduler_starts_whole_gangs_only(rule: type[Coscheduling | Volcano]):
    found = rule().cycle(view(7, "a", "b", "c"), 0.0)
    assert sorted(found) == ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2"]
    assert len(set(found.values())) == 6
    assert rule().cycle(view(2, "a"), 0.0) == {}


def test_coscheduling_holds_nodes_at_permit_and_gives_them_back_in_time():
    # A shortage of at most a tenth of the gang does not make PostFilter reject it.
    large = Group("a", "0", 30, 0, timeout=60.0)
    waiting = [Waiting(f"a-{number}", "a", 1) for number in range(30)]

    def cluster() -> View:
        return View({f"n{index}": 1 for index in range(28)}, waiting, {}, {"a": large})

    rule = Coscheduling()
    assert rule.cycle(cluster(), 0.0) == {}
    assert len(rule.held) == 28
    rule.cycle(cluster(), 60.0)
    assert {since for *_, since in rule.held.values()} == {0.0}
    rule.cycle(cluster(), 61.0)
    assert {since for *_, since in rule.held.values()} == {61.0}, "the wait has a limit, then it starts again"
    rule.cycle(View({}, [], {}, {"a": large}), 62.0)
    assert not rule.held, "pods that are gone hold nothing"


def test_coscheduling_rejects_a_gang_that_misses_much():
    rule = Coscheduling()
    assert rule.cycle(view(2, "a", cpus=0), 0.0) == {}
    assert not rule.held


def test_volcano_enqueues_only_what_fits():
    rule = Volcano()
    assert rule.cycle(view(2, "a"), 0.0) == {}
    assert not rule.enqueued
    rule.cycle(view(3, "a", "b"), 1.0)
    assert rule.enqueued == {"a"}


@pytest.mark.parametrize("rule", [Coscheduling, Volcano])
def test_the_room_of_gangs_that_have_ended_is_free_again(rule: type[Coscheduling | Volcano]):
    scheduler, names = rule(), ("a", "b", "c")
    groups = view(0, *names).groups
    assert (
        len(
            scheduler.cycle(
                View({f"n{index}": 1 for index in range(6)}, view(0, *names).waiting, {}, groups), 0.0
            )
        )
        == 6
    )
    # The pods of `a` and `b` have succeeded: they hold no node, and their PodGroups are still there.
    found = scheduler.cycle(
        View({f"n{index}": 1 for index in range(6)}, view(0, "c").waiting, {}, groups), 1.0
    )
    assert sorted(found) == ["c-0", "c-1", "c-2"]
