"""Tests of the replicas of an index: their files, their schedules, and two engines in one process."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import cases
from tests.unit.workloads.aperon.index_replicas import (
    FIRST_SECONDS,
    OPTIONS,
    SEEDS,
    SETTINGS,
    IndexJob,
    IndexNode,
    Writer,
    failure,
    in_virtual_time,
    random_index_job,
)
from tests.unit.workloads.aperon.served import VECTORS, params, rows, served
from tests.unit.workloads.aperon.test_parts import Linked

from convoy_workloads.engines.aperon import folder_stream, operations, replica_records, replicated_writes
from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.errors import CorruptFile, InvalidInput, NoSpace
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.knowledge import FILE, Knowledge
from convoy_workloads.engines.aperon.operations import Replicated
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.replica_records import batch, key_of, operations_of, payload_of
from convoy_workloads.engines.aperon.replica_store import INCOMPLETE, Index, ReplicaStore
from convoy_workloads.engines.aperon.replication import Replication
from convoy_workloads.engines.aperon.shard import Shard
from convoy_workloads.engines.aperon.sharding import split
from convoy_workloads.engines.aperon.storage import Storage
from convoy_workloads.serving.replication.operation import Operation, Stamp
from convoy_workloads.serving.replication.settings import Settings

SECONDS = 30.0
"""Time limit of each wait."""
ORIGINS = (b"a" * 16, b"b" * 16)


def op(key: str, number: int, *, deleted: bool = False, origin: int = 0) -> Operation:
    """Return an operation that sets or deletes a record."""
    payload = None if deleted else payload_of(np.array([number, 1], np.float32), {"n": number})
    return Operation(Stamp(number, ORIGINS[origin], number), key_of(key), payload)


def test_a_batch_has_the_effect_of_its_operations_and_keeps_their_stamps() -> None:
    made = [op("a", 1), op("b", 2), op("a", 3, deleted=True), op("c", 4, origin=1), op("b", 5)]
    found = batch(made, SETTINGS)
    assert sorted(map(str, found.upsert.ids)) == ["b", "c"] and found.delete.ids == ["a"]
    read = operations.decode(operations.encode(found))
    assert isinstance(read, Replicated) and read.stamps == found.stamps
    assert np.array_equal(read.upsert.vectors, found.upsert.vectors) and read.ids == found.ids
    again = operations_of([read])
    assert [one.stamp for one in again] == sorted(
        (one.stamp for one in made), key=lambda one: (one.origin, one.sequence)
    )
    last = {one.key: one for one in made}
    assert {one.key: one for one in sorted(again, key=lambda one: one.stamp.clock)} == last
    parts = split(found, 3)
    assert sorted(str(id_) for one in parts.values() for id_ in one.ids) == ["a", "b", "c"]
    assert all(isinstance(one, Replicated) for one in parts.values())


@pytest.mark.parametrize(
    ("key", "payload", "words"),
    [
        (b"\xff", b"", "no id of the type string"),
        (b"a", b"\1", "no record"),
        (b"a", payload_of(np.ones(3, np.float32), {}), "dimension 3, and the index has 2"),
        (b"a", payload_of(np.array([1, np.nan], np.float32), {}), "not finite"),
        (b"a", payload_of(np.ones(2, np.float32), {"colour": 1}), "no field 'colour'"),
        (b"a", payload_of(np.ones(2, np.float32), {"n": "x"}), "no integer"),
    ],
)
def test_operations_of_a_peer_must_fit_the_index(key: bytes, payload: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        replica_records.check([Operation(Stamp(1, ORIGINS[0], 1), key, payload)], SETTINGS)


def test_knowledge_survives_an_incomplete_block_but_not_a_damaged_one(tmp_path: Path) -> None:
    storage = Storage(durable=False)
    stamps = {key_of(f"k{at}"): Stamp(at, ORIGINS[0], at) for at in range(1, 4)}
    known = Knowledge(tmp_path, storage)
    known.replace({ORIGINS[0]: 3}, stamps)
    first = (tmp_path / FILE).stat().st_size
    known.append({ORIGINS[0]: 4}, {key_of("k1"): Stamp(4, ORIGINS[0], 4)})
    data = (tmp_path / FILE).read_bytes()
    for size in {*range(0, len(data), 7), first - 1, first, len(data) - 1, len(data)}:
        (tmp_path / FILE).write_bytes(data[:size])
        found = Knowledge(tmp_path, storage).read(1 << 20)
        complete = [0, 3, 4][(size >= first) + (size >= len(data))]
        assert found.vector == ({ORIGINS[0]: complete} if complete else {})
        assert found.stamp(key_of("k1")) == (
            None if not complete else Stamp([1, 4][complete > 3], ORIGINS[0], [1, 4][complete > 3])
        )
    (tmp_path / FILE).write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    with pytest.raises(CorruptFile, match="damaged"):
        Knowledge(tmp_path, storage).read(1 << 20)


def test_knowledge_survives_a_lost_page_of_its_last_block_alone(tmp_path: Path) -> None:
    """The end of that block may be there. Nothing before it may be wrong, also if it looks incomplete."""
    storage, path = Storage(durable=False), tmp_path / FILE
    sizes = [0]
    for last in (1, 2, 3):
        stamps = {key_of(f"k{last}"): Stamp(last, ORIGINS[0], last)}
        Knowledge(tmp_path, storage).append({ORIGINS[0]: last}, stamps)
        sizes.append(path.stat().st_size)
    data = path.read_bytes()
    for at in range(len(data)):
        end = min(at + 5, sizes[2] if at < sizes[2] else len(data))
        lost = (bytes(5) if at % 2 else b"\xff" * 5)[: end - at]
        path.write_bytes(data[:at] + lost + data[end:])
        if data[at:end] == lost:
            continue
        if at < sizes[2]:
            with pytest.raises(CorruptFile, match="is damaged, and was on the disk"):
                Knowledge(tmp_path, storage).read(1 << 20)
        else:
            assert Knowledge(tmp_path, storage).read(1 << 20).vector == {ORIGINS[0]: 2}
            assert path.stat().st_size == sizes[2]


async def _parts(data: bytes, sizes: list[int]) -> AsyncIterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


FOLDER = {"manifest-1.json": b"{}", "empty.seg": b"", "log-1.bin": bytes(range(200))}


def stream(folder: Path) -> bytes:
    folder.mkdir()
    for name, data in FOLDER.items():
        (folder / name).write_bytes(data)

    async def read() -> bytes:
        return b"".join([part async for part in folder_stream.sent(folder)])

    return asyncio.run(read())


def test_a_folder_arrives_as_it_was_sent_or_not_at_all(tmp_path: Path) -> None:
    data = stream(tmp_path / "from")

    source = random.Random(1)

    async def check() -> None:
        for number in range(60):
            folder = tmp_path / str(number)
            folder.mkdir()
            end = len(data) if number % 2 else source.randrange(len(data) + 2)
            sizes = [source.randrange(40) for _ in range(source.randrange(9))]
            cut = data[:end] if end <= len(data) else data + b"x"
            try:
                await folder_stream.received(folder, _parts(cut, sizes), durable=False)
                assert end == len(data)
                assert {one.name: one.read_bytes() for one in folder.iterdir()} == FOLDER
            except InvalidInput:
                assert end != len(data)

    asyncio.run(check())
    for name in (b"../up", b".", b"a/b"):
        with pytest.raises(InvalidInput, match="no name"):
            wrong = bytes([len(name)]) + name + bytes(8)
            asyncio.run(folder_stream.received(tmp_path, _parts(wrong, []), durable=False))


@pytest.mark.parametrize("first", range(2))
def test_replicas_lose_nothing_acknowledged_and_nothing_deleted_returns(tmp_path: Path, first: int) -> None:
    for seed in range(first * cases(1), (first + 1) * cases(1)):
        assert not failure(tmp_path, seed, 30.0), f"seed {seed}"


class Unsettled(IndexNode):
    """A replica that keeps what it knows before its index has it."""

    def _persist(self) -> None:
        self.store.write(self.store.block())


class Forgetful(IndexNode):
    """A replica that keeps nothing of what it knows."""

    def _persist(self) -> None:
        self.store.block()
        (self.folder / INCOMPLETE).unlink(missing_ok=True)


def quiet(folder: Path, kind: type[IndexNode] = IndexNode) -> IndexJob:
    job = random_index_job(folder, 0, kind)
    job.loss, job.repetition, job.snapshots, job.flushes = 0, 0, True, 0
    return job


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("kind", "words"), [(IndexNode, ""), (Unsettled, "not as it is known"), (Forgetful, "is not known")]
)
def test_a_replica_that_ends_after_a_flush_knows_what_its_index_has(
    tmp_path: Path, kind: type[IndexNode], words: str
) -> None:
    async def scenario() -> None:
        job = quiet(tmp_path, kind)
        one, other = job.start(), job.start()
        await until(job.opened)
        await one.replicator.append([(b"a", job.value()), (b"b", job.value())])
        await until(lambda: b"a" in other.store.values)
        index: VectorIndex = other.store._open.ensemble.own.index  # type: ignore[attr-defined]
        index.flush()
        await one.replicator.append([(b"c", job.value())])
        await until(lambda: b"c" in other.store.values)
        other.writer.seconds = 1e6  # type: ignore[attr-defined]
        await one.replicator.append([(b"a", job.value()), (b"b", None)])
        # The other replica has confirmed the operations, and its writer has not begun.
        index.flush()
        other.end()
        job.nodes.pop(other.address)
        job.start(other.disk)
        await asyncio.sleep(0)

    with contextlib.nullcontext() if not words else pytest.raises(AssertionError, match=words):
        in_virtual_time(scenario())


@pytest.mark.parametrize("retained", [300, 1 << 20])
def test_a_fresh_replica_takes_over_the_records_of_a_peer_not_those_of_another_snapshot(
    tmp_path: Path, retained: int
) -> None:
    async def scenario() -> None:
        job = quiet(tmp_path)
        job.settings = replace(job.settings, retained_bytes=retained)
        first = job.start()
        job.start()
        await until(job.opened)
        await first.replicator.append([(b"a", job.value()), (key_of(SEEDS[0]), None), (b"b", job.value())])
        await asyncio.sleep(FIRST_SECONDS)
        assert job.seeds == ["late"]
        fresh = job.start()
        await until(job.opened)
        assert fresh.store.values.keys() == {b"a", b"b", *map(key_of, SEEDS[1:])}

    in_virtual_time(scenario())


@pytest.mark.parametrize("number", [1, 9])
@pytest.mark.parametrize("moment", ["before", "while"])
def test_of_two_operations_the_later_one_wins_whichever_is_applied_first(
    tmp_path: Path, number: int, moment: str
) -> None:
    """An operation of a peer with the clock `number` comes while one with the clock 5 is logged."""
    ours, theirs = op("a", 5), op("a", number, origin=1)

    async def scenario() -> None:
        job = quiet(tmp_path)
        node = job.start()
        await until(job.opened)
        store: Any = node.store
        merged: list[Operation] = []

        def receive(one: Operation) -> None:
            merged.append(one)
            if one.stamp.clock == max(other.stamp.clock for other in merged):
                store.apply([one])

        if moment == "before" and number < 5:
            receive(theirs)
        logging = asyncio.ensure_future(store.log([ours]))
        await asyncio.sleep(0)
        if theirs not in merged:
            receive(theirs)
        await logging
        receive(ours)
        store._open.writer.run()
        newest = max(ours, theirs, key=lambda one: one.stamp.clock)
        assert store.values[b"a"] == newest.payload

    in_virtual_time(scenario())


def test_a_group_keeps_what_it_knows_with_each_write_and_sends_records_one_by_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        job = quiet(tmp_path)
        shards = [
            Shard(VectorIndex.create(tmp_path / str(rank), SETTINGS, options=OPTIONS), 0, 1)
            for rank in range(2)
        ]
        ensemble, writer = Ensemble(shards[0], [Linked(shards[1])]), Writer(job)
        storage = Storage(durable=False)
        store = ReplicaStore(tmp_path / "0", lambda: pytest.fail("opened"), durable=False)
        store.attach(Index(ensemble, writer, Knowledge(tmp_path / "0", storage)))  # type: ignore[arg-type]
        names = [f"k{at}" for at in range(1, 10)]
        ours = [op(name, at + 1) for at, name in enumerate(names)]
        theirs = Operation(Stamp(20, ORIGINS[1], 1), b"other", op("other", 20).payload)
        for batch_of in (ours[:5], ours[5:]):
            await store.log(batch_of)
            store.apply(store.known.merge(batch_of))
            store.apply(store.known.merge([theirs]))
            writer.run()
        assert all(one.index.ids() for one in shards)
        assert store.snapshot() is None
        keys = [one.key for one in (*ours, theirs)]
        reading = asyncio.ensure_future(store.payloads([*keys, b"nobody"]))
        await until(reading.done)
        assert await reading == [*(one.payload for one in (*ours, theirs)), None]
        # The operation of the peer was applied before the second batch was logged.
        again = Index(ensemble, writer, Knowledge(tmp_path / "0", storage))  # type: ignore[arg-type]
        found = Replication(Params(), {}).recover(again, tmp_path / "0")
        assert found.vector == {ORIGINS[0]: 9, ORIGINS[1]: 1}
        assert found.stamps() == {one.key: one.stamp for one in (*ours, theirs)}

    in_virtual_time(scenario())


@contextlib.asynccontextmanager
async def pair(folder: Path, *others: Any, **more: Any) -> AsyncIterator[list[Any]]:
    """Yield engines that are peers, without waiting for them."""
    async with contextlib.AsyncExitStack() as stack:
        ranks = []
        for number in range(2):
            own = folder / f"rank-{number}"
            own.mkdir()
            wanted = params(own / "state", **more)
            ranks.append(await stack.enter_async_context(served(own, wanted, wait=False)))
        for rank in ranks:
            addresses = [f"127.0.0.1:{one.port}" for one in ranks if one is not rank]
            rank.engine.set_peers(f"127.0.0.1:{rank.port}", addresses)
        for rank in ranks:
            await rank.until(lambda rank=rank: rank.process.lifecycle.ready)
        yield ranks


async def test_writes_at_one_replica_reach_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_SOCKET", "an agent")
    monkeypatch.setattr(Settings, "__init__", _quick(Settings.__init__))
    async with pair(tmp_path, flush_rows=10) as (one, other):
        assert await one.call("upsert", rows(0, 15)) == {"upserted": 15}
        assert await other.call("upsert", rows(15, 30)) == {"upserted": 15}
        assert (await other.call("delete", {"ids": ["v1", "v99"]}))["deleted"] <= 1
        assert (await one.call("delete", {"filter": {"year": 2000}}))["deleted"] == 1
        for rank in (one, other):
            await rank.until(lambda rank=rank: rank.engine.latest_facts()[0].records == 28)
        query = {"query": VECTORS[20].tolist(), "k": 5, "exact": True}
        assert await one.call("search", query) == await other.call("search", query)
        text = (await one.get("/metrics"))[1]
        values = {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(("convoy_ann_replication", "convoy_kernel"))
        }
        assert values["convoy_ann_replication_peers"] == values["convoy_ann_replication_caught_up"] == 1
        assert values["convoy_ann_replication_applied_operations_total"] >= 15
        assert values["convoy_kernel_info"] == 1
        # Without its peer, a replica acknowledges nothing until the operator reports that the peer has ended.
        other.process.leave()
        assert await other.ended() == 0
        one.engine.set_peers(f"127.0.0.1:{one.port}", ["127.0.0.1:1"])
        replicator = one.engine._replication._replicator
        replicator.settings = replace(replicator.settings, ack_seconds=0.01)
        status, found, headers = await one.post("/v1/vectors/upsert", rows(0, 1))
        assert (status, headers["retry-after"]) == (503, "1")
        assert found["error"]["code"] == "not_replicated" and "other replicas" in found["error"]["message"]
        one.engine.set_peers(f"127.0.0.1:{one.port}", [])
        replicator.settings = replace(replicator.settings, ack_seconds=SECONDS)
        assert await one.call("upsert", rows(0, 1)) == {"upserted": 1}


def _quick(init: Any) -> Any:
    def made(self: Any, *positional: Any, **more: Any) -> None:
        quick = {"sync_seconds": 0.05, "ack_seconds": SECONDS}
        init(self, *positional, **{**quick, **more})

    return made


async def test_a_replica_that_only_reads_serves_its_snapshot_and_refuses_writes(tmp_path: Path) -> None:
    for name in ("old", "new"):
        ids = [f"{name}{at}" for at in range(3)]
        made = (ids, VECTORS[:3, :2], None)
        VectorIndex.create(tmp_path / name, SETTINGS, rows=made, options=OPTIONS).close()
    wanted = params(tmp_path / "state", dimension=0, fields={"n": "integer"}, read_only=True)
    for name in ("old", "new"):
        async with served(tmp_path, wanted, tmp_path / name) as rank:
            found = await rank.call("get", {"ids": [f"{name}{at}" for at in range(3)]})
            assert None not in found["records"]
            for path, body in (
                ("upsert", {"ids": ["x"], "vectors": [[1, 2]]}),
                ("delete", {"ids": ["old0"]}),
                ("delete", {"filter": {"n": 1}}),
            ):
                status, field, message = await rank.refused(path, body)
                assert (status, field) == (403, "read_only") and "params.read_only" in message
            assert (await rank.post("/replication/pull", b""))[0] == 404
    assert len(list((tmp_path / "state").iterdir())) == 1


async def test_a_full_disk_refuses_writes_and_the_replica_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicated_writes, "FULL_SECONDS", 0)
    async with served(tmp_path, params(tmp_path / "state")) as rank:
        await rank.call("upsert", rows(0, 3))
        log = rank.engine.parts.shard.index._log

        def full(*_: Any) -> None:
            raise NoSpace(Path("log"))

        with monkeypatch.context() as patch:
            patch.setattr(log, "append", full)
            status, _, message = await rank.refused("upsert", rows(3, 6))
            assert status == 507 and "no space" in message
        assert await rank.call("count", {}) == {"count": 3}
        assert await rank.call("upsert", rows(3, 6)) == {"upserted": 3}


async def test_an_index_that_has_not_arrived_completely_is_not_used(tmp_path: Path) -> None:
    wanted = params(tmp_path / "state")
    async with served(tmp_path, wanted) as rank:
        await rank.call("upsert", rows(0, 9))
    async with served(tmp_path, wanted) as rank:
        assert await rank.call("count", {}) == {"count": 9}
    (tmp_path / "state" / "shard-0-of-1" / INCOMPLETE).touch()
    async with served(tmp_path, wanted) as rank:
        assert await rank.call("count", {}) == {"count": 0}
