"""Tests of the keys with which the ranks of one incarnation authenticate each other."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.unit.operator.hub_agents import AgentsHarness

from convoy_controllers.commands import Assign, Member, PickPort
from convoy_operator.hub.ca import KEY_BYTES, Authority, Identity, make_authority

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def identity() -> Identity:
    return make_authority(NOW)


def test_every_replica_derives_the_same_key(identity: Identity) -> None:
    key = Authority(identity).incarnation_key("u", 3)
    assert key == Authority(identity).incarnation_key("u", 3) and len(key) == KEY_BYTES


def test_no_two_incarnations_share_a_key(identity: Identity) -> None:
    first = Authority(identity)
    found = {first.incarnation_key(uid, number) for uid in ("u", "u.w.1", "u.w.2") for number in (1, 2, 11)}
    found.add(Authority(make_authority(NOW)).incarnation_key("u", 1))
    assert len(found) == 10


class TestCommands(AgentsHarness):
    async def test_all_slots_of_an_incarnation_get_its_key(self, identity: Identity) -> None:
        authority = Authority(identity)
        self.hub.tokens.start(authority)
        keys, job_keys = [], []
        for slot, node in enumerate(("n0", "n1")):
            stream = self.join(node)
            members = (Member(0, "p0", "n0", 1), Member(1, "p1", "n1", 1))
            facts = {"job_uid": "u", "job": "ns/j", "slot": slot, "rank_offset": slot, "processes": 1}
            self.hub.commands.send(
                Assign(
                    node=node, pod_uid=f"p{slot}", incarnation=3, world_size=2, master_addr="a",
                    master_port=1, hang_seconds=9, role="w", replica=slot, command=(), members=members,
                    key_uid="owner",
                    **facts,
                )  # type: ignore[arg-type]
            )  # fmt: skip
            sent = stream.outbox.get_nowait().assignment
            keys.append(sent.key)
            job_keys.append(sent.job_key)
        assert keys == [authority.incarnation_key("u", 3)] * 2
        assert job_keys == [authority.job_key("owner")] * 2 != [authority.job_key("other")] * 2
        assert authority.job_key("u") != authority.incarnation_key("u", 3)
        self.hub.commands.send(PickPort("n0", "p0", 4))
        assert not stream.outbox.qsize()
