"""Tests of the caller that the agent reads from a client certificate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.operator.test_certificates import request

from convoy_agents.wire.callers import Caller, caller, node_of
from convoy_crds.terms import HUB_SERVER_NAME, agent_server_name
from convoy_operator.hub.ca import Authority, make_authority

NOW = datetime.now(UTC)


class Context:
    """A fake gRPC context. The client certificate of its connection has the given names."""

    def __init__(self, *names: str, life: timedelta = timedelta(hours=1)) -> None:
        pem, self.ends = Authority(make_authority(NOW)).agent(request(), "n", life, NOW)
        self._shown = {
            "x509_pem_cert": [pem],
            "x509_subject_alternative_name": [name.encode() for name in names],
        }

    def auth_context(self) -> dict[str, Any]:
        return self._shown


ONE, TWO = agent_server_name("node-1"), agent_server_name("node-2")


@pytest.mark.parametrize(
    ("names", "node"),
    [((ONE,), "node-1"), ((), ""), ((HUB_SERVER_NAME,), ""), ((ONE, TWO), ""), (("node-1.example.com",), "")],
    ids=["an agent", "nobody", "the hub", "two agents", "somebody else"],
)
def test_a_certificate_names_one_agent_or_none(names: tuple[str, ...], node: str) -> None:
    context = Context(*names)
    assert caller(context) == Caller(node, context.ends.timestamp())
    assert node_of(context) == node


def test_an_expired_certificate_names_no_agent() -> None:
    context = Context(ONE, life=timedelta(seconds=-1))
    assert caller(context).node == "node-1" and node_of(context) == ""


def test_a_caller_without_certificate_has_no_name() -> None:
    class Bare:
        def auth_context(self) -> dict[str, Any]:
            return {}

    assert caller(Bare()).expired() and node_of(Bare()) == ""


@pytest.mark.parametrize(("now", "outdated"), [(99.9, False), (100.0, True), (101.0, True)])
def test_a_caller_expires_with_its_certificate(now: float, outdated: bool) -> None:
    assert Caller("n", 100.0).expired(now) is outdated
