"""Tests of hops between nodes, and of ranks numbered along the topology."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.placement.numbering import Move, hops, order, pays
from convoy_controllers.placement.topology import along, topology
from convoy_crds.layout import Slot, numbered

LABELS = {
    "a1": {"rack": "a", "zone": "z1"},
    "a2": {"rack": "a", "zone": "z1"},
    "b1": {"rack": "b", "zone": "z1"},
    "c1": {"rack": "a", "zone": "z2"},
    "bare": {},
    "bare2": {},
}
FOUND = topology(["rack", "zone"], LABELS)


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ("a1", "a1", 0),
        ("a1", "a2", 1),
        ("a1", "b1", 2),
        ("a1", "c1", 3),
        ("a1", "bare", 3),
        ("bare", "bare2", 3),
    ],
)
def test_hops_count_the_domains_that_differ(one: str, other: str, count: int) -> None:
    assert FOUND.hops(one, other) == FOUND.hops(other, one) == count


def test_a_ring_counts_the_way_back() -> None:
    assert FOUND.ring_hops(["a1"]) == 0
    assert FOUND.ring_hops(["a1", "a2"]) == 2
    assert FOUND.ring_hops(["a1", "b1", "a2"]) == 5


def slots(*roles: tuple[str, int]) -> tuple[Slot, ...]:
    names = [(role, replica) for role, count in roles for replica in range(count)]
    return tuple(
        Slot(at, role, replica, f"j-{role}-{replica}", 2 * at, 2, at)
        for at, (role, replica) in enumerate(names)
    )


def test_ranks_of_a_role_follow_the_topology() -> None:
    layout = slots(("w", 4), ("p", 2))
    nodes = dict(zip([slot.pod for slot in layout], ["a1", "c1", "a2", "c1", "b1", "a1"], strict=True))
    found = order(layout, nodes, FOUND)
    assert found == {"w": [0, 2, 1, 3], "p": [1, 0]}
    renumbered = numbered(layout, found)
    assert [(slot.role, slot.replica) for slot in renumbered] == [
        ("w", 0),
        ("w", 2),
        ("w", 1),
        ("w", 3),
        ("p", 1),
        ("p", 0),
    ]
    assert [slot.rank_offset for slot in renumbered] == [0, 2, 4, 6, 8, 10]
    assert [slot.position for slot in renumbered] == [0, 1, 2, 3, 4, 5]
    assert hops(renumbered, nodes, FOUND) < hops(layout, nodes, FOUND)


def test_replicas_without_a_place_in_the_order_come_last() -> None:
    renumbered = numbered(slots(("w", 3), ("p", 1)), {"w": [2, 0], "gone": [1]})
    assert [slot.replica for slot in renumbered] == [2, 0, 1, 0]
    assert numbered(slots(("w", 3)), {"w": []}) == slots(("w", 3))


@given(st.lists(st.sampled_from(["a1", "a2", "b1", "c1"]), min_size=1, max_size=6))
def test_no_other_order_has_fewer_hops(nodes: list[str]) -> None:
    ours = FOUND.ring_hops([nodes[at] for at in along(nodes, FOUND)])
    assert ours == min(FOUND.ring_hops(one) for one in itertools.permutations(nodes))


@pytest.mark.parametrize(
    ("move", "worth"),
    [
        (Move(10, 10, 4), False),
        (Move(10, 4, 0), False),
        (Move(10, 4, 4), True),
        # 0.05 x 6/10 x 3600 s = 108 s saved in an hour; 10 GB take 100 s, 12 GB 120 s.
        (Move(10, 4, 4, bytes_per_slot=10_000_000_000), True),
        (Move(10, 4, 4, bytes_per_slot=12_000_000_000), False),
        (Move(10, 4, 4, bytes_per_slot=10_000_000_000, remaining_seconds=3000), False),
    ],
)
def test_a_new_order_must_regain_the_time_that_it_costs(move: Move, worth: bool) -> None:
    assert pays(move) is worth
