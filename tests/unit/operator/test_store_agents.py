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
    async def test_a_volume_is_sent_and_probed_without_a_secret(self, it: Harness) -> None:
        it.put_volume(path="team")
        it.api.fail = lambda verb, plural, name: errors.Forbidden(403, "no") if plural == "secrets" else None
        it.dial("n0")
        await it.resolve()
        (sent,) = it.sent("n0")
        assert (sent.volume.claim, sent.volume.path, sent.probe) == ("disk", "team", True)
        assert it.seen().secret == Secret()
        it.report("n0", sent)
        assert it.seen().probe.reached and not it.seen().probe.unmounted

    async def test_a_starting_agent_is_probed_immediately_while_the_claim_is_unmounted(
        self, it: Harness
    ) -> None:
        it.put_volume()
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (sent,) = it.sent("n0")
        for node in ("n0", "n1", "n0"):
            it.report(node, sent, reached=False, unmounted=True)
            assert it.seen().probe.unmounted
            it.poll(20)
        it.report("n1", sent, reached=False, unmounted=True)
        assert [one.probe for one in it.dial("n1")] == [True], "its claims are mounted as it starts"
        assert it.dial("n2") == [], "one at a time"
        it.report("n1", sent)
        assert it.seen().probe.reached and it.dial("n2") == []

    async def test_other_failures_do_not_probe_a_starting_agent(self, it: Harness) -> None:
        it.put_volume()
        it.dial("n0")
        await it.resolve()
        (sent,) = it.sent("n0")
        it.report("n0", sent, reached=False)
        assert it.dial("n1") == [] and list(it.poll(5)) == ["n1"]


class TestWhoIsTold:
    async def test_an_agent_first_receives_the_stores_of_the_jobs_on_its_node(self, it: Harness) -> None:
        await it.resolve()
        it.job("n0")
        it.job("n0", "twin")
        it.job("n1", "other", store="unknown")
        it.job("n2", "stranger", owner="somebody")
        pod_report = wire.PodReport(pod_uid="job-n0", launcher_connected=True)
        it.streams["n0"] = it.hub.streams.join(wire.Hello(node="n0", peer_address="n0:1", pods=[pod_report]))
        first = it.messages("n0")[0]
        assert first.store.name == "s3" and not first.store.probe and not first.store.conditional
        assert it.dial("n1") == [] and it.dial("n2") == []

    @pytest.mark.parametrize(("allowed", "sent"), [(("*",), 1), (("default",), 1), (("elsewhere",), 0)])
    async def test_a_store_is_sent_only_for_jobs_of_its_namespaces(
        self, it: Harness, allowed: tuple[str, ...], sent: int
    ) -> None:
        it.put(*allowed)
        await it.resolve()
        it.job("n0")
        assert len(it.dial("n0")) == sent

    async def test_a_store_is_sent_once_and_before_the_assignment(self, it: Harness) -> None:
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
    async def test_an_assignment_without_a_known_store_is_sent_alone(self, it: Harness, store: Any) -> None:
        await it.resolve()
        it.dial("n0")
        it.hub.commands.send(assignment("n0", store))
        assert [one.WhichOneof("body") for one in it.messages("n0")] == ["assignment"]

    @pytest.mark.parametrize(
        ("allowed", "node"), [("default", "n1"), ("elsewhere", "n0")], ids=["its own", "another"]
    )
    async def test_a_store_that_becomes_complete_is_sent_to_the_nodes_of_its_jobs(
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
        sent = it.poll()
        assert set(sent) == {node}, "without users, the store goes to the probing agent only"
        assert sent[node][-1].probe

    async def test_a_probe_result_is_sent_to_all_agents_with_the_store(self, it: Harness) -> None:
        await it.resolve()
        it.job("n1")
        for node in ("n0", "n1", "n2"):
            it.dial(node)
        it.job("n2")
        (probed,) = it.poll()["n1"]
        it.report("n1", probed)
        sent = it.poll()
        assert {node: [one.conditional for one in stores] for node, stores in sent.items()} == {
            "n1": [True],
            "n2": [True],
        }
        assert it.poll(10) == {}

    async def test_renewed_credentials_are_sent_to_holders_of_the_old_and_probed(self, it: Harness) -> None:
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
        sent = it.poll()
        assert set(sent) == {"n1"}
        versions = {one.version for stores in sent.values() for one in stores}
        assert len(versions) == 1 and old.version not in versions
        assert not any(one.conditional for stores in sent.values() for one in stores), (
            "unknown until the store is probed"
        )
        assert [one.probe for one in sent["n1"]] == [False, True]
        assert it.seen().probe is None and it.seen().fresh
        it.now += 31
        assert not it.seen().fresh

    async def test_a_new_stream_receives_the_store_again(self, it: Harness) -> None:
        await it.resolve()
        it.job("n0")
        assert len(it.dial("n0")) == 1
        assert len(it.dial("n0")) == 1


def test_a_save_interval_too_large_for_the_wire_is_clamped() -> None:
    given = MemoryTiers(1, 0, store=StoreUse("s3", 10**12, 2, 0))
    assert messages._memory(given, str).store.every_seconds == 2**32 - 1
    assert not messages._memory(MemoryTiers(1, 0), str).HasField("store")
