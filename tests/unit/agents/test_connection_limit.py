"""The connection that is closed if there are too many."""

from __future__ import annotations

import pytest

from convoy_agents.wire.connection_limit import ConnectionLimit


@pytest.mark.parametrize(
    ("most", "each", "come", "gone"),
    [
        pytest.param(9, None, "a1 a2 b1", "", id="there is room"),
        pytest.param(9, 2, "a1 b1 a2 a3", "a1", id="who has their share loses the first of their own"),
        pytest.param(3, None, "b1 a1 a2 c1", "a1", id="all are taken: who has most loses the first of these"),
        pytest.param(3, None, "a1 a2 a3 a4 b1", "a1 a2", id="also to those who have none"),
        pytest.param(2, None, "a1 b1 a1 a2", "b1", id="who comes again is the last to have come"),
        pytest.param(2, None, "a1 a2 a1 a3", "a2", id="and is counted once"),
    ],
)
def test_who_has_to_go(most: int, each: int | None, come: str, gone: str) -> None:
    crowd: ConnectionLimit[str] = ConnectionLimit(most, each)
    everybody = come.split()
    out = [crowd.add(one, one[0]) for one in everybody]
    assert [one for one in out if one] == gone.split()
    assert {*crowd} == {*everybody} - {*gone.split()}
    crowd.remove(everybody[-1])
    assert everybody[-1] not in {*crowd}
