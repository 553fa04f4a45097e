"""Tests of fake nodes and of kwok's configuration."""

from __future__ import annotations

import ipaddress

import yaml
from e2e.bench.rig import kwok
from e2e.cluster.addresses import Addresses


def test_every_tenth_node_crashes():
    surviving, crashing = kwok.names(100)
    assert (len(surviving), len(crashing)) == (90, 10)
    assert not set(surviving) & set(crashing)


def test_pod_ranges_lie_in_the_range_of_the_cluster_and_do_not_overlap():
    addresses = Addresses(3)
    ranges = [
        ipaddress.ip_network(kwok.node(f"n{index}", index, kwok.SURVIVING, addresses)["spec"]["podCIDR"])
        for index in range(250)
    ]
    whole = ipaddress.ip_network(addresses.pods)
    assert all(one.subnet_of(whole) for one in ranges)
    assert len(set(ranges)) == len(ranges)
    assert all(one.num_addresses > 110 for one in ranges)


def test_each_group_of_nodes_has_its_own_kwok():
    options, *stages = yaml.safe_load_all(kwok.config(kwok.CRASHING))
    assert options["options"]["manageNodesWithLabelSelector"] == f"{kwok.GROUP_LABEL}={kwok.CRASHING}"
    assert {stage["spec"]["resourceRef"]["kind"] for stage in stages} == {"Node", "Pod"}
