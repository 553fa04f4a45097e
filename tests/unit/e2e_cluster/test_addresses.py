"""Tests of addresses and names of local clusters."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from e2e.cluster.addresses import BLOCKS, MAX_NODES, Addresses, choose_block, cluster_id, link_name, mac
from e2e.cluster.errors import ClusterError


def test_ranges_of_a_cluster_do_not_overlap_and_lie_in_its_block() -> None:
    for block in range(BLOCKS):
        addresses = Addresses(block)
        network = ipaddress.ip_network(addresses.network)
        pods, services = ipaddress.ip_network(addresses.pods), ipaddress.ip_network(addresses.services)
        machines = ipaddress.ip_network(f"{addresses.host}/18", strict=False)
        assert all(part.subnet_of(network) for part in (pods, services, machines))
        assert not pods.overlaps(services)
        assert not machines.overlaps(pods)
        assert not machines.overlaps(services)
        assert ipaddress.ip_address(addresses.dns) in services
        assert ipaddress.ip_address(addresses.kubernetes) == services[1]


def test_every_node_has_its_own_address_and_pod_range() -> None:
    addresses = Addresses(3)
    nodes = range(1, MAX_NODES + 1)
    assert len({addresses.node(index) for index in nodes}) == MAX_NODES
    assert len({addresses.pods_of(index) for index in nodes}) == MAX_NODES
    pods = ipaddress.ip_network(addresses.pods)
    assert all(ipaddress.ip_network(addresses.pods_of(index)).subnet_of(pods) for index in nodes)


@pytest.mark.parametrize("index", [0, -1, MAX_NODES + 1])
def test_a_node_number_out_of_range_is_refused(index: int) -> None:
    with pytest.raises(ClusterError, match="outside"):
        Addresses(0).node(index)


def test_identities_differ_by_checkout_and_by_name() -> None:
    identities = {cluster_id(Path(path), name) for path in ("/a", "/b") for name in ("dev", "ci")}
    assert len(identities) == 4
    assert cluster_id(Path("/a"), "dev") == cluster_id(Path("/a"), "dev")
    assert len({link_name(identity) for identity in identities}) == 4


def test_link_names_fit_the_kernel() -> None:
    assert len(link_name("a-very-long-cluster-name-0123ab", MAX_NODES)) <= 15
    assert link_name("x", 7).startswith(link_name("x"))


def test_a_block_is_stable_and_avoids_blocks_in_use() -> None:
    first = choose_block("dev-1", set(), [])
    assert choose_block("dev-1", set(), []) == first
    second = choose_block("dev-1", {first}, [])
    assert second != first
    third = choose_block("dev-1", {first}, [Addresses(second).network])
    assert third not in (first, second)


def test_a_block_avoids_overlapping_routes() -> None:
    first = choose_block("dev-1", set(), [])
    inside = Addresses(first).pods_of(9)
    assert choose_block("dev-1", set(), [inside]) != first
    with pytest.raises(ClusterError, match="no free address range"):
        choose_block("dev-1", set(), ["10.0.0.0/8"])


def test_without_a_free_block_none_is_chosen() -> None:
    with pytest.raises(ClusterError, match=f"{BLOCKS} clusters use"):
        choose_block("dev-1", set(range(BLOCKS)), [])


def test_a_hardware_address_is_stable_and_unique() -> None:
    addresses = Addresses(3)
    every = [mac(addresses.host), *(mac(addresses.node(index)) for index in range(1, MAX_NODES + 1))]
    assert every[0] == "02:00:0a:a3:00:01" and len(set(every)) == len(every)
