"""Tests of the states that serving replicas save to the memory of real agents: what survives the end of a
process, of a pod, of an agent and of a node, and who may read it.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, Pod, assignment, eventually
from tests.integration.agents.memory_job import at
from tests.ports import free_port

from convoy_agents.channels import dial
from convoy_agents.tiercheck.shares import OVERHEAD
from convoy_agents.wire import hub_pb2, hub_pb2_grpc
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.replica_state import StateUid, state_uid
from convoy_crds import terms
from convoy_workloads.runtime.replica_state import ReplicaState, SavedState

A, B, C = "aaaa-1111", "bbbb-2222", "cccc-3333"
SEARCH = Path(__file__).parents[3] / "examples" / "search.py"
SIZE = 5 * 2**20
"""Bytes of a state. The agent splits it into two chunks."""


def content(seed: int) -> bytes:
    return random.Random(seed).randbytes(SIZE)


def uid_of(replica: int, revision: str = "r1", job: str = "uid-of-job") -> StateUid:
    return state_uid(job, "server", revision, replica)


@dataclass
class Replicas:
    """A ServingJob's replicas on real agents. It sends the hub's messages for them."""

    hub: FakeHub
    folder: Path
    limit: int = 0
    launchers: dict[str, Pod] = field(default_factory=dict)

    async def start(
        self, pod: str, host: Host, incarnation: int, uid: StateUid, **places: list[Host]
    ) -> ReplicaState:
        """Form an incarnation of a replica in a pod, and return the client of its rank."""
        if pod not in self.launchers:
            await host.publish(pod)
            self.launchers[pod] = await host.launcher(pod)
            await self.hub.report(pod, lambda report: report.launcher_connected)
        self.assign(pod, host, incarnation, uid, **places)
        assert (await self.launchers[pod].receive())["incarnation"] == incarnation
        return self.client(pod, host, incarnation)

    def assign(
        self,
        pod: str,
        host: Host,
        incarnation: int,
        uid: StateUid,
        hosts: list[Host] = [],  # noqa: B006 - not changed
        holders: list[Host] = [],  # noqa: B006 - not changed
    ) -> None:
        plan = assignment("job", incarnation, 0, [(pod, host, 1)])
        plan.job_uid = f"{uid.job_uid}.server.{uid.replica}"
        plan.replica_state.CopyFrom(
            hub_pb2.ReplicaState(
                uid=uid.text,
                limit=self.limit,
                hosts=[at(one) for one in hosts],
                holders=[at(one) for one in holders],
                token=self.hub.slot_token(host.node, uid.text, incarnation, 0),
            )
        )
        self.hub.send(host.node, assignment=plan)

    def client(self, pod: str, host: Host, incarnation: int, rank: int = 0) -> ReplicaState:
        return ReplicaState(self.environment(pod, host, incarnation, rank))

    def environment(self, pod: str, host: Host, incarnation: int, rank: int = 0) -> dict[str, str]:
        """Return the environment variables that the launcher sets for a rank."""
        short = self.folder / pod[:8]
        if not short.is_symlink():
            short.symlink_to(host.target(pod))
        return {
            "CONVOY_SOCKET": str(short / "agent.sock"),
            "CONVOY_INCARNATION": str(incarnation),
            "RANK": str(rank),
            "WORLD_SIZE": str(rank + 1),
        }

    async def end(self, pod: str, host: Host) -> None:
        """End a pod, as after its deletion."""
        self.launchers.pop(pod).close()
        await host.unpublish(pod)

    async def copied(self, pod: str) -> None:
        """Wait until the pod's agent reports copies of its state."""
        await self.hub.report(pod, lambda report: "peer" in {one.tier for one in report.committed})


@pytest.fixture
def replicas(hub: FakeHub) -> Iterator[Replicas]:
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield Replicas(hub, Path(name))


async def save(client: ReplicaState, data: bytes) -> None:
    """Save a state as soon as a buffer is free."""
    for _ in range(500):
        if await asyncio.to_thread(client.save, data):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("no buffer became free")


async def restore(client: ReplicaState) -> SavedState | None:
    return await asyncio.to_thread(client.restore)


async def restored(client: ReplicaState) -> bytes | None:
    found = await restore(client)
    return found.data if found else None


async def held(host: Host, uid: StateUid) -> list[Generation]:
    """Return the generations of a replica's states in a node's memory."""
    memory = host.agent.memory_manager.get(uid.text)
    assert memory is not None
    return await memory.inspect(lambda store: [one.generation for one in store.manifests.values()])


async def test_the_state_survives_the_process_and_the_agent(
    make_host: HostMaker, hub: FakeHub, replicas: Replicas
) -> None:
    one = await make_host("one")
    client = await replicas.start(A, one, 3, uid_of(0))
    assert await restore(client) is None
    await save(client, content(1))
    await save(client, content(2))
    report = await hub.report(A, lambda report: bool(report.committed))
    assert {commit.tier for commit in report.committed} == {"local"}
    again = await replicas.start(A, one, 4, uid_of(0))  # in place: the same pod, another process
    found = await restore(again)
    assert found is not None and (found.data, found.replica) == (content(2), 0)
    assert found.saved_at == pytest.approx(report.committed[0].time_unix_ms / 1000, abs=30)
    await one.crash()
    await one.start()
    await hub.report(A, lambda report: report.incarnation == 4, len(hub.messages))
    replicas.launchers[A].close()
    replicas.launchers[A] = await one.launcher(A, 4)
    assert await restored(await replicas.start(A, one, 5, uid_of(0))) == content(2)
    assert len(await held(one, uid_of(0))) == 1


async def test_a_replica_without_a_state_gets_the_newest_of_its_revision(
    make_host: HostMaker, replicas: Replicas
) -> None:
    one = await make_host("one")
    client = await replicas.start(A, one, 1, uid_of(0))
    await save(client, content(1))
    await save(await replicas.start(B, one, 2, uid_of(1)), content(2))
    await replicas.end(A, one)
    fresh = await replicas.start(C, one, 3, uid_of(2))
    found = await restore(fresh)
    assert found is not None and (found.data, found.replica) == (content(2), 1)
    # The restored state stays until the replica's own first state replaces it.
    assert await restored(await replicas.start(C, one, 4, uid_of(2))) == content(2)
    last = await replicas.start(C, one, 5, uid_of(2))
    await save(last, content(3))
    assert await restored(last) == content(3)
    assert await restored(await replicas.start(B, one, 6, uid_of(1))) == content(2)


@pytest.mark.parametrize(
    "uid", [uid_of(1, "r2"), uid_of(1, job="another-job"), state_uid("uid-of-job", "front", "r1", 1)]
)
async def test_no_other_revision_role_or_job_reads_a_state(
    make_host: HostMaker, hub: FakeHub, replicas: Replicas, uid: StateUid
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await save(await replicas.start(A, one, 1, uid_of(0)), content(1))
    assert await restore(await replicas.start(B, one, 2, uid)) is None
    assert await restore(await replicas.start(C, two, 3, uid, holders=[one])) is None
    token = hub.slot_token("two", uid.text, 3, 0)
    name = terms.agent_server_name("one")
    async with dial(one.peer_address, name, hub.authority.pem, hub.authority.identity("two")) as wire:
        stub = hub_pb2_grpc.ShardsStub(wire)
        for call in (
            stub.Fetch(hub_pb2.FetchRequest(job_uid=uid_of(0).text, id="x", slot_token=token)),
            stub.ListStates(hub_pb2.ListStatesRequest(uid=uid_of(0).text, slot_token=token)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await anext(aiter(call))
            assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_copy_survives_the_node(make_host: HostMaker, hub: FakeHub, replicas: Replicas) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    await replicas.start(B, two, 1, uid_of(1))
    client = await replicas.start(A, one, 2, uid_of(0), hosts=[two])
    for seed in (1, 2, 3):
        await save(client, content(seed))
    await replicas.copied(A)
    await eventually(lambda: two.agent.memory_manager.get(uid_of(0).text) is not None)
    await until_newest(two, uid_of(0), await newest_of(one, uid_of(0)))
    await one.stop()
    fresh = await replicas.start(C, three, 3, uid_of(2), holders=[one, two], hosts=[two])
    found = await restore(fresh)
    assert found is not None and (found.data, found.replica) == (content(3), 0)
    # The restored state is copied again, although no save follows.
    await until_newest(two, uid_of(2), found.saved_at * 1000)


async def newest_of(host: Host, uid: StateUid) -> int:
    return max(one.step for one in await held(host, uid))


async def until_newest(host: Host, uid: StateUid, step: float) -> None:
    """Wait until a node holds exactly one state of a replica, saved at this time."""
    await eventually(lambda: host.agent.memory_manager.get(uid.text) is not None)
    memory = host.agent.memory_manager.get(uid.text)
    assert memory is not None

    def there(store: Any) -> bool | None:
        return [one.generation.step for one in store.manifests.values()] == [round(step)] or None

    assert await memory.wait_until(there, 30.0)


async def test_a_node_keeps_copies_of_its_own_roles_and_revisions_only(
    make_host: HostMaker, hub: FakeHub, replicas: Replicas
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await replicas.start(B, two, 1, uid_of(1, "r2"))
    await save(await replicas.start(A, one, 2, uid_of(0), hosts=[two]), content(1))
    await eventually(lambda: two.agent.memory_manager.jobs == [])
    await replicas.start(C, two, 3, uid_of(1))
    await replicas.copied(A)
    assert await newest_of(two, uid_of(0)) == await newest_of(one, uid_of(0))


async def test_the_example_builds_its_index_only_once(make_host: HostMaker, replicas: Replicas) -> None:
    one = await make_host("one")
    said = []
    for incarnation in (1, 2):
        await replicas.start(A, one, incarnation, uid_of(0))
        async with search(replicas.environment(A, one, incarnation)) as line:
            said.append(line)
    assert said[0].startswith("index built in") and said[0].endswith(", saved")
    assert said[1].startswith("index restored in") and said[1].endswith("from replica 0")


@asynccontextmanager
async def search(environment: dict[str, str]) -> AsyncIterator[str]:
    """Run examples/search.py until the end of the block, and kill it. Yield its first line."""
    more = {"DOCUMENTS": "200", "CONVOY_SERVING_PORT": str(free_port())}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SEARCH),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment, **more},
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            yield (await process.stderr.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def test_the_limit_bounds_all_states_of_the_job_on_a_node(
    make_host: HostMaker, hub: FakeHub, replicas: Replicas
) -> None:
    one = await make_host("one")
    replicas.limit = 2 * SIZE + 2 * OVERHEAD
    first = await replicas.start(A, one, 1, uid_of(0))
    await save(first, content(1))
    second = await replicas.start(B, one, 2, uid_of(1))
    assert not await asyncio.to_thread(second.save, content(2))
    why = await hub.trouble(B, "NO_MEMORY")
    assert "the job's limit (spec.checkpoint.tiers.local.memory)" in why
    await save(first, content(3))
    assert await restored(first) == content(3)


async def test_a_pod_without_tiers_and_other_ranks_save_nothing(
    make_host: HostMaker, replicas: Replicas
) -> None:
    one = await make_host("one")
    await replicas.start(A, one, 1, uid_of(0))
    other = replicas.client(A, one, 1, rank=1)
    assert not other.available and not other.save(b"x") and other.restore() is None
    plan = assignment("job", 2, 0, [(A, one, 1)])
    replicas.hub.send("one", assignment=plan)
    assert (await replicas.launchers[A].receive())["incarnation"] == 2
    without = replicas.client(A, one, 2)
    assert await restore(without) is None and not await asyncio.to_thread(without.save, b"x")
