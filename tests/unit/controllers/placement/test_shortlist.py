"""Tests of the domains to which a pod is restricted in a large cluster."""

from __future__ import annotations

from collections import Counter

from convoy_controllers.placement.affinity import pinned
from convoy_controllers.placement.shortlist import SCORED_NODES, shortlist
from convoy_controllers.placement.topology import Path, Topology, topology

KEYS = ("rack", "zone")


def cluster(racks: int, nodes_per_rack: int = 10, racks_per_zone: int = 5) -> Topology:
    labels = {
        f"n{rack}-{number}": {"rack": f"r{rack:02}", "zone": f"z{rack // racks_per_zone}"}
        for rack in range(racks)
        for number in range(nodes_per_rack)
    }
    return topology(KEYS, labels)


def room(found: Topology, **counts: int) -> Counter[Path]:
    """Return room for one pod on each node, but for `counts` pods in the named racks."""
    held = Counter(found.paths.values())
    return Counter({path: counts.get(path[0], count) for path, count in held.items()})


def test_a_small_cluster_needs_no_restriction():
    found = cluster(10)
    assert shortlist(("r00", "z0"), found, room(found)) == []


def test_near_domains_come_first_and_all_are_scored():
    found = cluster(25)
    names = shortlist(("r07", "z1"), found, room(found, r09=30, r20=80))
    assert names[:2] == ["r07", "r09"], "the chosen domain, then the one with most room in its zone"
    assert set(names[:5]) == {"r05", "r06", "r07", "r08", "r09"}
    assert names[5] == "r20"
    assert len(names) * 10 == SCORED_NODES


def test_full_domains_are_left_out():
    found = cluster(25)
    full = {f"r{rack:02}": 0 for rack in range(25) if rack != 3}
    assert shortlist(("r03", "z0"), found, room(found, **full)) == ["r03"]


def test_a_domain_with_more_nodes_than_are_scored_stands_alone():
    found = cluster(3, nodes_per_rack=120)
    assert shortlist(("r01", "z0"), found, room(found)) == ["r01"]


def test_a_node_without_the_label_is_not_restricted():
    found = cluster(25)
    assert shortlist(("", "z0"), found, room(found)) == []


def test_the_restriction_joins_the_terms_of_the_template():
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    selector = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    body = {"metadata": {"name": "p"}, "spec": {"affinity": {"nodeAffinity": selector}}}
    made = pinned(body, KEYS, ("r1", "z0"), "n1", required=False, within=["r1", "r2"])
    affinity = made["spec"]["affinity"]["nodeAffinity"]
    (merged,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert merged["matchExpressions"] == [
        {"key": "disk", "operator": "Exists"},
        {"key": "rack", "operator": "In", "values": ["r1", "r2"]},
    ]
    assert len(affinity["preferredDuringSchedulingIgnoredDuringExecution"]) == 3
