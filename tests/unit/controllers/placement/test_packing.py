"""Tests of the choice of nodes for a gang."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.placement.packing import Choice, NoRoom, PodClass, Room, choose, near

CPU = {"cpu": 1000, "pods": 1000}


def room(node: str, rack: str, free: int, zone: str = "z1", classes: str = "w") -> Room:
    """A node with room for `free` pods of one core."""
    return Room(node, (rack, zone), {"cpu": free * 1000, "pods": 110_000}, frozenset(classes))


def pods(count: int, least: int | None = None, name: str = "w") -> PodClass:
    return PodClass(name, CPU, count, count if least is None else least)


def used(choice: Choice | NoRoom) -> Counter[str]:
    assert isinstance(choice, Choice)
    return Counter(node for nodes in choice.nodes.values() for node in nodes)


RACKS = [room("a1", "a", 2), room("a2", "a", 2), room("b1", "b", 3), room("c1", "c", 5, "z2")]


@pytest.mark.parametrize(
    ("count", "nodes"),
    [
        (1, {"b1": 1}),
        (3, {"b1": 3}),
        (4, {"a1": 2, "a2": 2}),
        (5, {"c1": 5}),
        # Zone z1 holds 7: the rack with most room first, then the rest.
        (6, {"a1": 2, "a2": 2, "b1": 2}),
        (7, {"a1": 2, "a2": 2, "b1": 3}),
    ],
)
def test_the_domain_with_the_least_spare_room_is_chosen(count: int, nodes: dict[str, int]) -> None:
    assert used(choose([pods(count)], RACKS, 2, required=False)) == nodes


def test_more_than_the_cluster_holds_is_placed_in_part() -> None:
    choice = choose([pods(20)], RACKS, 2, required=False)
    assert isinstance(choice, Choice)
    assert (choice.whole, sum(used(choice).values()), choice.level) == (False, 12, 2)


def test_a_required_domain_without_room_is_named() -> None:
    assert choose([pods(6)], RACKS, 2, required=True) == NoRoom(("c", "z2"), 5, 6)
    assert choose([pods(6)], [], 2, required=True) == NoRoom((), 0, 6)


def test_an_elastic_gang_may_start_with_the_room_of_the_largest_domain() -> None:
    choice = choose([pods(6, least=2)], RACKS, 2, required=True)
    assert isinstance(choice, Choice)
    assert (used(choice), choice.whole, choice.domain) == ({"c1": 5}, False, ("c", "z2"))
    assert isinstance(choose([pods(9, least=6)], RACKS, 2, required=True), NoRoom)


@pytest.mark.parametrize(("count", "least"), [(2, 2), (6, 1)], ids=["whole", "elastic"])
def test_attempts_after_a_failed_one_try_all_domains_that_hold_the_gang(count: int, least: int) -> None:
    def racks(*attempts: str) -> set[tuple[str, ...]]:
        found = [
            choose([pods(count, least)], RACKS, 2, required=True, attempt=attempt) for attempt in attempts
        ]
        return {one.domain for one in found if isinstance(one, Choice)}

    assert racks("") == {("b", "z1") if count == 2 else ("c", "z2")}
    assert racks(*(f"uid {number}" for number in range(30))) == {("a", "z1"), ("b", "z1"), ("c", "z2")}
    assert racks("uid 1") == racks("uid 1")


def test_racks_of_the_same_name_in_two_zones_are_two_racks() -> None:
    rooms = [room("n1", "r", 2, "z1"), room("n2", "r", 2, "z2")]
    assert choose([pods(3)], rooms, 2, required=True) == NoRoom(("r", "z1"), 2, 3)


def test_a_node_without_a_label_is_in_no_required_domain() -> None:
    rooms = [room("n1", "", 9), room("n2", "r", 2)]
    assert used(choose([pods(2)], rooms, 2, required=True)) == {"n2": 2}
    assert used(choose([pods(2)], [room("n1", "", 9)], 2, required=False)) == {"n1": 2}


def test_roles_with_different_nodes_share_a_domain() -> None:
    rooms = [
        room("a1", "a", 4, classes="w"),
        room("b1", "b", 2, classes="wp"),
        room("b2", "b", 2, classes="w"),
    ]
    choice = choose([pods(3), pods(1, name="p")], rooms, 2, required=True)
    assert isinstance(choice, Choice)
    assert choice.domain == ("b", "z1")
    assert choice.nodes["p"] == ["b1"]
    assert Counter(choice.nodes["w"]) == {"b1": 1, "b2": 2}


def test_a_replacement_comes_near_the_pods_that_stay() -> None:
    fixed = [("a", "z1"), ("a", "z1"), ("c", "z2")]
    assert used(near([pods(1)], RACKS, 2, fixed, required=False)) == {"a1": 1}
    full = [one for one in RACKS if one.path[0] != "a"]
    assert used(near([pods(1)], full, 2, fixed, required=False)) == {"c1": 1}
    only_b = [one for one in RACKS if one.path[0] == "b"]
    assert used(near([pods(1)], only_b, 2, fixed, required=False)) == {"b1": 1}
    assert near([pods(1)], only_b, 2, fixed, required=True) == NoRoom(("a", "z1"), 0, 1)


@pytest.mark.parametrize(
    ("count", "least", "placed"), [(3, 0, 3), (6, 0, 4), (6, 4, 4), (6, 5, None), (6, 6, None)]
)
def test_an_elastic_gang_gets_back_as_many_pods_as_its_domain_holds(
    count: int, least: int, placed: int | None
) -> None:
    found = near([pods(count, least)], RACKS, 2, [("a", "z1")], required=True)
    if placed is None:
        assert found == NoRoom(("a", "z1"), 4, count)
    else:
        assert sum(used(found).values()) == placed and set(used(found)) <= {"a1", "a2"}


def test_an_elastic_gang_waits_while_its_domain_has_no_room_at_all() -> None:
    only_b = [one for one in RACKS if one.path[0] == "b"]
    assert near([pods(2, least=0)], only_b, 2, [("a", "z1")], required=True) == NoRoom(("a", "z1"), 0, 2)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=12),
    st.integers(1, 14),
)
def test_a_gang_gets_one_rack_if_some_rack_holds_it(nodes: list[tuple[int, int, int]], count: int) -> None:
    rooms = [room(f"n{at}", f"r{rack}", free, f"z{zone}") for at, (rack, zone, free) in enumerate(nodes)]
    sizes: Counter[tuple[str, ...]] = Counter()
    for one in rooms:
        sizes[one.path] += one.free["cpu"] // 1000
    choice = choose([pods(count)], rooms, 2, required=False)
    assert isinstance(choice, Choice)
    placed = used(choice)
    by_name = {one.node: one for one in rooms}
    assert all(number * 1000 <= by_name[node].free["cpu"] for node, number in placed.items())
    assert sum(placed.values()) == min(count, sum(sizes.values()))
    if max(sizes.values()) >= count:
        assert len({by_name[node].path for node in placed}) == 1
        assert isinstance(choose([pods(count)], rooms, 2, required=True), Choice)
    else:
        assert isinstance(choose([pods(count)], rooms, 2, required=True), NoRoom)
