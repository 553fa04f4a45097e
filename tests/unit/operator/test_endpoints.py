"""Tests of the ready replicas that the hub reports to activators."""

from __future__ import annotations

from tests.unit.operator.hub_agents import AgentsHarness, report

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.commands import Endpoints
from convoy_operator.hub import messages


class TestEndpoints(AgentsHarness):
    async def test_a_change_is_sent_at_once_and_a_repetition_later(self) -> None:
        stream = self.join("n0")
        for addresses in (("a:1",), ("a:1",), ("a:1", "b:1"), ()):
            self.hub.commands.send(Endpoints("n0", "u", 1, addresses))
        sent = [stream.outbox.get_nowait().endpoints for _ in range(stream.outbox.qsize())]
        assert [list(one.addresses) for one in sent] == [["a:1"], ["a:1", "b:1"], []]
        assert {(one.pod_uid, one.incarnation) for one in sent} == {("u", 1)}


def test_a_report_shows_what_the_activator_knows() -> None:
    before = messages.slot_view(report(), "n0")
    given = report(endpoints=["a:1", "b:1"] + ["c" * 999] * 100)
    after = messages.slot_view(given, "n0")
    assert before.endpoints == () and after.endpoints[:2] == ("a:1", "b:1")
    assert len(after.endpoints) == messages.MAX_ENDPOINTS
    assert {len(one) for one in after.endpoints[2:]} == {messages.MAX_NAME}
    assert messages.skeleton(before) != messages.skeleton(after)


def test_a_message_is_bounded() -> None:
    addresses = tuple(f"10.0.0.1:{port}" for port in range(1000))
    order = messages.command(Endpoints("n0", "u", 3, addresses), lambda node: "", lambda token: "")
    assert isinstance(order.endpoints, wire.Endpoints)
    assert tuple(order.endpoints.addresses) == addresses[: messages.MAX_ENDPOINTS]
