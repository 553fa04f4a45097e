from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.guard import windows
from convoy_controllers.guard.telemetry import parse_members
from convoy_workloads.runtime.telemetry import communicators
from convoy_workloads.runtime.telemetry.communicators import (
    Communicator,
    Transfers,
    format_ranks,
    kind_of,
    messages,
)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ([0], "0"),
        ([0, 1, 2, 3], "0-3"),
        ([0, 4], "0-4:4"),
        ([1, 5, 9, 13], "1-13:4"),
        ([0, 1, 4, 5], "0-1,4-5"),
        ([0, 2, 4, 5, 6], "0-4:2,5-6"),
        ([3, 10, 11], "3-10:7,11"),
    ],
)
def test_ranks_are_formatted_briefly(given: list[int], reported: str) -> None:
    assert format_ranks(given) == reported


@given(st.sets(st.integers(0, 200), min_size=2, max_size=40))
def test_formatted_ranks_are_parsed_to_the_same_ranks(given: set[int]) -> None:
    reported = format_ranks(sorted(given))
    read = parse_members(reported, 201)
    assert read is not None and list(chain.from_iterable(read)) == sorted(given)
    assert parse_members(reported, max(given)) is None
    if len(reported) <= communicators.MAX_MEMBERS:
        one = {"kind": "dp", "members": reported, "bytes": 1, "count": 1, "seconds": 0.5}
        (window,) = windows.parse({"windows": [{"first": 1, "last": 1, "collectives": [one]}]}, rank=0)
        assert window.collectives[0].members == reported


def test_ranks_and_agents_have_equal_limits() -> None:
    assert (communicators.MAX_COMMUNICATORS, communicators.MAX_KIND, communicators.MAX_MEMBERS) == (
        windows.MAX_COLLECTIVES,
        windows.MAX_KIND,
        windows.MAX_MEMBERS,
    )


@pytest.mark.parametrize(
    ("description", "found"),
    [
        ("default_pg", "world"),
        ("undefined", "group"),
        ("", "group"),
        ("mesh_dp", "dp"),
        ("mesh_", "group"),
        ("EXPERTS", "EXPERTS"),
        ("default_pg:split:3", "group"),
        ("12:shrunk", "group"),
        ("\ud800", "group"),
        ("x" * 99, "x" * 32),
    ],
)
def test_all_members_of_a_group_report_the_same_kind(description: str, found: str) -> None:
    assert kind_of(description) == found


def test_all_members_omit_the_same_communicators() -> None:
    moved = {Communicator("tp", str(number)): Transfers(number, 0.1234567, 2) for number in range(10, 30)}
    moved[Communicator("odd", ",".join(str(number**2) for number in range(200)))] = Transfers(10**9, 9.0)
    reported = messages(moved)
    assert [one["members"] for one in reported] == [str(number) for number in range(10, 18)]
    assert reported[0] == {"kind": "tp", "members": "10", "bytes": 10, "count": 2, "seconds": 0.123457}


def test_a_merge_keeps_the_fastest_of_the_largest_transfers() -> None:
    assert Transfers(8, 0.5).merge(Transfers(8, 0.25, 2)) == Transfers(8, 0.25, 3)
    assert (
        Transfers(8, 0.5).merge(Transfers(9, 0.75))
        == Transfers(9, 0.75).merge(Transfers(8, 0.5))
        == Transfers(9, 0.75)
    )
