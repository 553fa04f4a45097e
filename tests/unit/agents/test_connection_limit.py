"""Tests of the connection limit: the choice of the connection to close."""

from __future__ import annotations

import pytest

from convoy_agents.wire.connection_limit import ConnectionLimit


@pytest.mark.parametrize(
    ("total", "per_owner", "added", "closed"),
    [
        pytest.param(9, None, "a1 a2 b1", "", id="below both limits nothing is closed"),
        pytest.param(9, 2, "a1 b1 a2 a3", "a1", id="an owner at its own limit loses its oldest connection"),
        pytest.param(3, None, "b1 a1 a2 c1", "a1", id="at the total limit the largest owner loses one"),
        pytest.param(
            3, None, "a1 a2 a3 a4 b1", "a1 a2", id="a first connection displaces the largest owner's"
        ),
        pytest.param(2, None, "a1 b1 a1 a2", "b1", id="a connection that is added again becomes the newest"),
        pytest.param(2, None, "a1 a2 a1 a3", "a2", id="a connection that is added again counts once"),
    ],
)
def test_connection_to_close(total: int, per_owner: int | None, added: str, closed: str) -> None:
    """Add connections in order, and check which ones are closed. The first letter of a connection's name is
    its owner.
    """
    limit: ConnectionLimit[str] = ConnectionLimit(total, per_owner)
    names = added.split()
    out = [limit.add(name, name[0]) for name in names]
    assert [name for name in out if name] == closed.split()
    assert {*limit} == {*names} - {*closed.split()}
    limit.remove(names[-1])
    assert names[-1] not in {*limit}
