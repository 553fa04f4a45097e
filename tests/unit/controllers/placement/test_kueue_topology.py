"""Tests of the places that Kueue's topology-aware scheduling has chosen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.placement.kueue.topology import HOSTNAME, Assignment, Domain, decode, levels_of

NAMES = st.text("ab-1", min_size=1, max_size=4)


@st.composite
def values(draw: st.DrawFn, count: int) -> tuple[list[str], dict[str, Any]]:
    """Return the values of a level, and how Kueue writes them."""
    if draw(st.booleans()):
        one = draw(NAMES)
        return [one] * count, {"universal": one}
    prefix, suffix = draw(st.text("x", max_size=2)), draw(st.text("y", max_size=2))
    roots = draw(st.lists(NAMES, min_size=count, max_size=count))
    own: dict[str, Any] = {"roots": roots}
    own |= {"prefix": prefix} if prefix else {}
    own |= {"suffix": suffix} if suffix else {}
    return [f"{prefix}{root}{suffix}" for root in roots], {"individual": own}


@st.composite
def slices(draw: st.DrawFn, levels: int) -> tuple[Counter[tuple[str, ...]], dict[str, Any]]:
    """Return the pods of each domain of a slice, and how Kueue writes the slice."""
    count = draw(st.integers(1, 4))
    parts = [draw(values(count)) for _ in range(levels)]
    if draw(st.booleans()):
        pods = [draw(st.integers(1, 5))] * count
        counts: dict[str, Any] = {"universal": pods[0]}
    else:
        pods = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
        counts = {"individual": pods}
    found: Counter[tuple[str, ...]] = Counter()
    for number in range(count):
        found[tuple(part[0][number] for part in parts)] += pods[number]
    raw = {"domainCount": count, "valuesPerLevel": [part[1] for part in parts], "podCounts": counts}
    return found, raw


@st.composite
def assignments(draw: st.DrawFn) -> tuple[Counter[tuple[str, ...]], dict[str, Any]]:
    levels = draw(st.integers(1, 3))
    parts = draw(st.lists(slices(levels), min_size=1, max_size=3))
    total: Counter[tuple[str, ...]] = Counter()
    for part, _ in parts:
        total.update(part)
    names = [f"level-{number}" for number in range(levels)]
    return total, {"levels": names, "slices": [raw for _, raw in parts]}


@given(assignments())
def test_every_slice_is_decoded(made: tuple[Counter[tuple[str, ...]], dict[str, Any]]) -> None:
    wanted, raw = made
    found = decode(raw)
    assert found is not None
    assert {one.values: one.count for one in found.domains} == dict(wanted)
    for one in found.domains:
        assert list(found.selector(one)) == raw["levels"]


@given(assignments(), st.data())
def test_the_places_hold_exactly_the_admitted_pods(
    made: tuple[Counter[tuple[str, ...]], dict[str, Any]], data: st.DataObject
) -> None:
    found = decode(made[1])
    assert found is not None
    total = sum(one.count for one in found.domains)
    taken: Counter[str] = Counter()
    for rank in data.draw(st.permutations(range(total))):
        domain = found.choose(rank, taken)
        assert domain is not None
        taken[domain.key] += 1
    assert found.choose(0, taken) is None
    assert taken == Counter({key: n for one in found.domains for key, n in [(one.key, one.count)]})


HOSTS = Assignment((HOSTNAME,), (Domain(("n1",), 2), Domain(("n2",), 1), Domain(("n3",), 1)))


def test_ranks_follow_each_other_in_the_domains() -> None:
    taken: Counter[str] = Counter()
    order = []
    for rank in range(4):
        domain = HOSTS.choose(rank, taken)
        assert domain is not None
        taken[domain.key] += 1
        order.append(domain.key)
    assert order == ["n1", "n1", "n2", "n3"]


def test_a_replacement_takes_the_place_that_is_free() -> None:
    found = HOSTS.choose(0, {"n1": 2, "n2": 0, "n3": 1})
    assert found is not None
    assert found.key == "n2"


def test_no_pod_starts_on_a_failed_node() -> None:
    assert HOSTS.choose(2, {"n1": 2, "n3": 1}, {"n2"}) is None


@pytest.mark.parametrize(
    ("slice_", "message"),
    [
        ({"domainCount": 2, "valuesPerLevel": [], "podCounts": {"universal": 1}}, "0 of 1 levels"),
        (
            {
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"roots": ["a"]}}],
                "podCounts": {"universal": 1},
            },
            "1 values for 2 domains",
        ),
        (
            {"domainCount": 2, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"individual": [1]}},
            "1 numbers of pods for 2 domains",
        ),
        ({"domainCount": 10**9, "valuesPerLevel": [], "podCounts": {}}, "1000000000 domains"),
    ],
)
def test_lists_that_contradict_each_other_are_refused(slice_: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode({"levels": ["rack"], "slices": [slice_]})


def test_the_levels_of_a_queue_are_those_of_its_flavors() -> None:
    topologies = {"dc": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]}}
    assert levels_of([{"topologyName": "dc"}, {}], topologies) == ["rack", HOSTNAME]
    assert levels_of([{}, {"topologyName": "other"}], topologies) == []
