"""Tests that agents receive the stores of their jobs before the assignments that need the stores."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.store_hub import KEYS, Harness, assignment

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.checkpointstore.observed import Secret
from convoy_controllers.commands import MemoryTiers, PickPort, StoreUse
from convoy_operator import errors
from convoy_operator.hub import messages

from .conftest import FakeApi


@pytest.fixture
async def it(api: FakeApi) -> Harness:
    return Harness(api)


class TestVolume:
    async def test_it_is_told_and_tried_without_a_secret(self, it: Harness) -> None:
        it.put_volume(path="team")
        it.api.fail = lambda verb, plural, name: errors.Forbidden(403, "no") if plural == "secrets" else None
        it.dial("n0")
        await it.resolve()
        (told,) = it.sent("n0")
        assert (told.volume.claim, told.volume.path, told.probe) == ("disk", "team", True)
        assert it.seen().secret == Secret()
        it.report("n0", told)
        assert it.seen().probe.reached and not it.seen().probe.unmounted

    async def test_an_agent_that_begins_is_asked_at_once_while_the_claim_is_missed(self, it: Harness) -> None:
        it.put_volume()
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (told,) = it.sent("n0")
        for node in ("n0", "n1", "n0"):
            it.report(node, told, reached=False, unmounted=True)
            assert it.seen().probe.unmounted
            it.poll(20)
        it.report("n1", told, reached=False, unmounted=True)
        assert [one.probe for one in it.dial("n1")] == [True], "its claims are mounted as it starts"
        assert it.dial("n2") == [], "one at a time"
        it.report("n1", told)
        assert it.seen().probe.reached and it.dial("n2") == []

    async def test_another_failure_is_no_reason_to_ask_who_begins(self, it: Harness) -> None:
        it.put_volume()
        it.dial("n0")
        await it.resolve()
        (told,) = it.sent("n0")
        it.report("n0", told, reached=False)
        assert it.dial("n1") == [] and list(it.poll(5)) == ["n1"]


class TestWhoIsTold:
    async def test_an_agent_is_told_the_stores_of_the_jobs_on_its_node_before_anything_else(
        self, it: Harness
    ) -> None:
        await it.resolve()
        it.job("n0")
        it.job("n0", "twin")
        it.job("n1", "other", store="unknown")
        it.job("n2", "stranger", owner="somebody")
        asked = wire.PodReport(pod_uid="job-n0", launcher_connected=True)
        it.streams["n0"] = it.hub.streams.join(wire.Hello(node="n0", peer_address="n0:1", pods=[asked]))
        first = it.messages("n0")[0]
        assert first.store.name == "s3" and not first.store.probe and not first.store.conditional
        assert it.dial("n1") == [] and it.dial("n2") == []

    @pytest.mark.parametrize(("allowed", "told"), [(("*",), 1), (("default",), 1), (("elsewhere",), 0)])
    async def test_a_store_is_for_the_jobs_of_its_namespaces(
        self, it: Harness, allowed: tuple[str, ...], told: int
    ) -> None:
        it.put(*allowed)
        await it.resolve()
        it.job("n0")
        assert len(it.dial("n0")) == told

    async def test_an_assignment_comes_after_its_store_which_is_told_once(self, it: Harness) -> None:
        it.dial("n0")
        await it.resolve()
        (probed,) = it.sent("n0")
        it.report("n0", probed)
        it.dial("n1")
        it.hub.commands.send(PickPort("n1", "u", 1))
        it.hub.commands.send(assignment("n1"))
        kinds = [one.WhichOneof("body") for one in it.messages("n1")]
        assert kinds == ["pick_port", "store", "assignment"]
        it.hub.commands.send(assignment("n1", incarnation=2))
        (again,) = it.messages("n1")
        use = again.assignment.memory.store
        assert (use.name, use.every_seconds, use.keep_last, use.keep_every_steps) == ("s3", 600, 2, 5)

    @pytest.mark.parametrize("store", [None, "nobodys"])
    async def test_an_assignment_without_a_known_store_goes_alone(self, it: Harness, store: Any) -> None:
        await it.resolve()
        it.dial("n0")
        it.hub.commands.send(assignment("n0", store))
        assert [one.WhichOneof("body") for one in it.messages("n0")] == ["assignment"]

    @pytest.mark.parametrize(
        ("allowed", "node"), [("default", "n1"), ("elsewhere", "n0")], ids=["its own", "another"]
    )
    async def test_a_store_that_becomes_whole_goes_where_its_jobs_are(
        self, it: Harness, allowed: str, node: str
    ) -> None:
        it.put(allowed)
        it.keys()
        await it.resolve()
        for one in ("n0", "n1", "n2"):
            it.dial(one)
        it.job("n1")
        it.keys(**KEYS)
        await it.resolve()
        told = it.poll()
        assert set(told) == {node}, "without users, the store goes to the probing agent only"
        assert told[node][-1].probe

    async def test_what_was_found_out_goes_to_all_who_know_it(self, it: Harness) -> None:
        await it.resolve()
        it.job("n1")
        for node in ("n0", "n1", "n2"):
            it.dial(node)
        it.job("n2")
        (probed,) = it.poll()["n1"]
        it.report("n1", probed)
        told = it.poll()
        assert {node: [one.conditional for one in said] for node, said in told.items()} == {
            "n1": [True],
            "n2": [True],
        }
        assert it.poll(10) == {}

    async def test_renewed_credentials_go_to_all_who_have_the_old_and_are_tried(self, it: Harness) -> None:
        await it.resolve()
        it.job("n1")
        for node in ("n0", "n1", "n2"):
            it.dial(node)
        (old,) = it.poll()["n1"]
        it.report("n1", old)
        it.poll()
        await it.resolve()
        assert it.poll() == {}, "nothing changed"
        it.keys(accessKey="new", secretKey="new")
        await it.resolve()
        told = it.poll()
        assert set(told) == {"n1"}
        versions = {one.version for said in told.values() for one in said}
        assert len(versions) == 1 and old.version not in versions
        assert not any(one.conditional for said in told.values() for one in said), (
            "unknown until the store is probed"
        )
        assert [one.probe for one in told["n1"]] == [False, True]
        assert it.seen().probe is None and it.seen().fresh
        it.now += 31
        assert not it.seen().fresh

    async def test_a_new_stream_knows_nothing(self, it: Harness) -> None:
        await it.resolve()
        it.job("n0")
        assert len(it.dial("n0")) == 1
        assert len(it.dial("n0")) == 1


def test_a_store_use_that_is_too_long_for_the_wire_is_cut() -> None:
    given = MemoryTiers(1, 0, store=StoreUse("s3", 10**12, 2, 0))
    assert messages._memory(given, str).store.every_seconds == 2**32 - 1
    assert not messages._memory(MemoryTiers(1, 0), str).HasField("store")
