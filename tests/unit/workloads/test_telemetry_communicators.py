from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.guard.windows import parse
from convoy_controllers.guard.telemetry import members
from convoy_workloads.runtime.telemetry.communicators import (
    MAX_COMMUNICATORS,
    Communicator,
    Moved,
    kind,
    messages,
    ranks,
)


@pytest.mark.parametrize(
    ("given", "told"),
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
def test_ranks_are_told_in_brief(given: list[int], told: str) -> None:
    assert ranks(given) == told
    assert members(told, given[-1] + 1) == tuple(given)


@given(st.sets(st.integers(0, 200), min_size=1, max_size=40))
def test_ranks_are_read_as_they_were_told(given: set[int]) -> None:
    told = ranks(sorted(given))
    assert members(told, 201) == tuple(sorted(given))
    one = {"kind": "dp", "members": told, "bytes": 1, "count": 1, "seconds": 0.5}
    if len(told) <= 256:
        (read,) = parse({"windows": [{"first": 1, "last": 1, "collectives": [one]}]}, rank=0)
        assert read.collectives[0].members == told


@pytest.mark.parametrize(
    "told", ["", "a", "0-", "-3", "3-1", "0-3:0", "0,0", "4,2", "0-9:2,8", "0-8", "1,,2", "٣"]
)
def test_what_are_no_ranks_of_the_job_is_not_read(told: str) -> None:
    assert members(told, 8) is None


@pytest.mark.parametrize(
    ("description", "found"),
    [
        ("default_pg", "world"),
        ("undefined", "group"),
        ("", "group"),
        ("mesh_dp", "dp"),
        ("mesh_", "group"),
        ("EXPERTS", "EXPERTS"),
        ("x" * 99, "x" * 32),
    ],
)
def test_the_kind_is_what_torch_has_it_described_as(description: str, found: str) -> None:
    assert kind(description) == found


def test_what_moves_most_is_told_and_the_runtimes_own_is_not() -> None:
    moved = {Communicator("tp", str(number)): Moved(number, 2, 0.1234567) for number in range(20)}
    moved[Communicator("convoy", "0-19")] = Moved(10**9, 1, 9.0)
    moved[Communicator("odd", ",".join(str(number**2) for number in range(200)))] = Moved(10**9, 1, 9.0)
    told = messages(moved)
    assert [one["members"] for one in told] == [
        str(number) for number in range(19, 19 - MAX_COMMUNICATORS, -1)
    ]
    assert told[0] == {"kind": "tp", "members": "19", "bytes": 19, "count": 2, "seconds": 0.123457}
