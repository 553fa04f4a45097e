"""Tests of the choice of nodes that keep copies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.checkpoint.placement import Host, Placed, place


def loads(placed: dict[str, Placed]) -> dict[str, int]:
    """Return, for each node, the number of other nodes whose copies it keeps."""
    found = dict.fromkeys(placed, 0)
    for one in placed.values():
        for host in one.hosts:
            found[host] = found.get(host, 0) + 1
    return found


def hosts(*domains: str) -> list[Host]:
    return [Host(f"node-{number}", domain) for number, domain in enumerate(domains)]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 16, 33])
@pytest.mark.parametrize("copies", [1, 2])
def test_copies_are_on_other_nodes_and_the_load_is_even(count: int, copies: int) -> None:
    found = place(hosts(*[""] * count), copies)
    wanted = min(copies, count - 1)
    for owner, placed in found.items():
        assert len(set(placed.hosts)) == wanted and owner not in placed.hosts
    assert max(loads(found).values()) <= wanted + 1
    assert sum(loads(found).values()) == wanted * count


def test_single_node_has_no_host_for_a_copy() -> None:
    assert place(hosts("a"), 1)["node-0"].hosts == ()


@pytest.mark.parametrize("domains", ["ab", "aabb", "abc", "aabbcc", "aabbccdd", "abcdefgh"])
def test_copies_are_in_another_rack_if_racks_are_even(domains: str) -> None:
    found = place(hosts(*domains), 1)
    where = {f"node-{number}": domain for number, domain in enumerate(domains)}
    for owner, placed in found.items():
        assert placed.apart and where[placed.hosts[0]] != where[owner]


@pytest.mark.parametrize("domains", ["aa", "aaaa", ""])
def test_single_rack_is_reported_as_not_apart(domains: str) -> None:
    assert not any(placed.apart for placed in place(hosts(*(domains or ["", ""])), 1).values())


def test_small_rack_receives_copies_up_to_its_capacity() -> None:
    found = place([*hosts("a", "a", "a"), Host("far", "b", capacity=2)], 1)
    assert loads(found)["far"] == 2
    assert sum(placed.apart for placed in found.values()) == 3


@given(st.integers(3, 40), st.data())
def test_removed_node_moves_few_copies(count: int, data: st.DataObject) -> None:
    nodes = hosts(*[""] * count)
    removed = data.draw(st.integers(0, count - 1))
    before, after = place(nodes, 1), place([one for one in nodes if one is not nodes[removed]], 1)
    name = nodes[removed].node
    moved = sum(
        before[owner].hosts != placed.hosts and name not in before[owner].hosts
        for owner, placed in after.items()
    )
    # Besides the copies on the removed node, some others move because of the bound on loads. Most copies
    # stay.
    assert moved <= max(2, 0.6 * count)


@given(st.permutations(hosts(*"aabbbc")))
def test_the_order_of_nodes_does_not_matter(nodes: list[Host]) -> None:
    assert place(nodes, 2) == place(hosts(*"aabbbc"), 2)
