"""Tests of the ready replicas that an agent reports to the ranks of an activator."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.agents.test_rules import hello, plan, run

from convoy_agents.outbox import Outbox
from convoy_agents.pods.registry import MAX_ENDPOINTS, Pods
from convoy_agents.pods.report import to_wire
from convoy_agents.pods.state import Endpoints, Urgency
from convoy_agents.wire import hub_pb2

ADDRESSES = ("10.0.0.7:8080", "[fd00::8]:8080")


def test_ranks_get_the_addresses_and_the_hub_learns_it() -> None:
    known = run(hello(), plan(1), Endpoints(1, ADDRESSES))
    assert known.to_ranks == {"type": "endpoints", "incarnation": 1, "addresses": list(ADDRESSES)}
    assert known.urgency is Urgency.NOW
    assert tuple(to_wire(known.state).endpoints) == ADDRESSES
    again = run(Endpoints(1, ADDRESSES), state=known.state)
    assert (again.to_ranks, again.urgency) == (None, Urgency.NOW), "the hub has missed the report"
    none = run(Endpoints(1, ()), state=known.state)
    assert none.to_ranks is not None and none.to_ranks["addresses"] == []


def test_addresses_belong_to_one_incarnation() -> None:
    known = run(hello(), plan(2), Endpoints(1, ADDRESSES))
    assert known.to_ranks is None and known.state.endpoints == ()
    next_one = run(plan(3), state=run(hello(), plan(2), Endpoints(2, ADDRESSES)).state)
    assert next_one.state.endpoints == () and not to_wire(next_one.state).endpoints


def test_the_number_of_addresses_is_bounded() -> None:
    got: list[Endpoints] = []

    class Session:
        """A session that keeps its events."""

        def dispatch(self, event: Endpoints) -> None:
            got.append(event)

    pods = Pods(Outbox())
    pods._sessions["p"] = Session()  # type: ignore[assignment]
    addresses = [f"10.0.0.7:{port}" for port in range(1000, 1100)]
    pods.command(
        hub_pb2.HubMessage(endpoints=hub_pb2.Endpoints(pod_uid="p", incarnation=1, addresses=addresses))
    )
    assert got == [Endpoints(1, tuple(addresses[:MAX_ENDPOINTS]))]


def test_a_rank_that_connects_gets_the_addresses() -> None:
    known = run(hello(), plan(1), Endpoints(1, ADDRESSES)).state
    assert known.welcome_frame == {"type": "endpoints", "incarnation": 1, "addresses": list(ADDRESSES)}
    assert run(hello(), plan(1)).state.welcome_frame is None


def test_an_activator_drops_its_addresses_when_the_agent_has_restarted() -> None:
    assignment = replace(plan(1), role="activator")
    frame = run(hello(), assignment).state.welcome_frame
    assert frame == {"type": "endpoints", "incarnation": 1, "addresses": []}
