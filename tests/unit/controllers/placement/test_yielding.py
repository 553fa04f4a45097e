"""Tests of the pods that leave to make room for a gang of higher priority."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.placement.packing import PodClass, Room
from convoy_controllers.placement.yielding import Claim, SparePod, fits, freed, pods_to_leave

CPU = {"cpu": 1000, "pods": 1000}


def room(node: str, free: int, rack: str = "r") -> Room:
    return Room(node, (rack,), {"cpu": free * 1000, "pods": 110_000}, frozenset("w"))


def claim(count: int, *, priority: int = 10, required: bool = False) -> Claim:
    return Claim([PodClass("w", CPU, count, count)], priority, 1, required)


def spare(job: str, replica: int, node: str, *, priority: int = 0, created: float = 0.0) -> SparePod:
    return SparePod(job, "w", replica, node, CPU, priority, created)


FULL = [room("n1", 0), room("n2", 1), room("n3", 0, "s")]


def names(found: tuple[SparePod, ...]) -> list[tuple[str, int]]:
    return [(one.job, one.replica) for one in found]


def test_the_lowest_priority_and_then_the_youngest_job_gives_up_pods_first() -> None:
    pods = [
        spare("old", 3, "n1", created=1),
        spare("young", 2, "n1", created=2),
        spare("young", 3, "n2", created=2),
        spare("dear", 3, "n2", priority=5),
    ]
    assert names(pods_to_leave(claim(2), pods, FULL)) == [("young", 3)]
    assert names(pods_to_leave(claim(4), pods, FULL)) == [("young", 3), ("young", 2), ("old", 3)]
    assert len(pods_to_leave(claim(5), pods, FULL)) == 4


def test_nobody_leaves_if_that_makes_no_room() -> None:
    pods = [spare("a", 3, "n1"), spare("b", 3, "n1", priority=10)]
    assert pods_to_leave(claim(1), pods, FULL) == ()
    assert pods_to_leave(claim(3), pods, FULL) == ()


def test_a_pod_in_the_wrong_rack_does_not_leave() -> None:
    pods = [spare("young", 3, "n3", created=2), spare("old", 3, "n1", created=1)]
    assert names(pods_to_leave(claim(2, required=True), pods, FULL)) == [("old", 3)]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=8),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.integers(1, 8),
)
def test_the_pods_that_leave_are_enough_and_all_needed(
    pods: list[tuple[int, int]], free: list[int], count: int
) -> None:
    rooms = [room(f"n{at}", amount) for at, amount in enumerate(free)]
    donors = [spare(f"j{at}", 0, f"n{node}", priority=own) for at, (node, own) in enumerate(pods)]
    wanted = claim(count)
    leaving = pods_to_leave(wanted, donors, rooms)
    lower = [one for one in donors if one.priority < 10]
    assert all(one in lower for one in leaving)
    if fits(wanted, rooms) or not fits(wanted, freed(rooms, lower)):
        assert leaving == ()
        return
    assert fits(wanted, freed(rooms, leaving))
    for one in leaving:
        assert not fits(wanted, freed(rooms, [other for other in leaving if other != one]))
