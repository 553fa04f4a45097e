"""Tests of the engine's parts: the writer, the opening, the shards of several ranks, and the self-test."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.workloads.aperon.served import VECTORS, params, rows, served

from convoy_workloads.engines.aperon import remote, self_test
from convoy_workloads.engines.aperon.admin_routes import make_snapshot
from convoy_workloads.engines.aperon.batch import FEWEST_COMMANDS, STEP_BYTES, Batch
from convoy_workloads.engines.aperon.bodies import MOST_NUMBERS
from convoy_workloads.engines.aperon.commands import Count, Fetch, Hits, Query, Search, Stored
from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.errors import InvalidInput, NoSpace
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.manifest import manifest_files
from convoy_workloads.engines.aperon.opening import open_index
from convoy_workloads.engines.aperon.operations import Delete, Upsert
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.shard import Shard
from convoy_workloads.engines.aperon.sharding import owner
from convoy_workloads.engines.aperon.upkeep_thread import UpkeepThread
from convoy_workloads.engines.aperon.writer import Writer, WriteRefused, WriterEnded, WritesFull
from convoy_workloads.kernels.hntl_arrays import Floats
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.protocol import ModelError, SelfTestFailed

IDS = [f"v{at}" for at in range(len(VECTORS))]
RECORDS = [{"genre": "drama", "year": at} for at in range(len(VECTORS))]


def opened(given: Params, path: Path | None = None, group: Group | None = None) -> VectorIndex:
    return open_index(given, path, Path(given.state), group or Group(), lambda: None).index


class Disk:
    """A target whose flushes the test holds and counts."""

    def __init__(self) -> None:
        self.flushes = 0
        self.may = threading.Semaphore(0)
        self.error: Exception | None = None

    def sync(self) -> None:
        assert self.may.acquire(timeout=20)
        self.flushes += 1
        if self.error is not None:
            raise self.error


async def test_writes_that_wait_share_a_flush_and_none_is_acknowledged_before_it() -> None:
    disk = Disk()
    writer = Writer(disk, 3, sync=True)
    done: list[int] = []
    first = writer.submit(lambda: done.append(0))
    while not done:  # noqa: ASYNC110 - the thread changes it
        await asyncio.sleep(0)
    rest = [writer.submit(partial(done.append, at)) for at in (1, 2, 3)]
    with pytest.raises(WritesFull):
        writer.submit(lambda: None)
    assert not first.done() and done == [0] and writer.pending == 4
    disk.may.release(2)
    await asyncio.gather(first, *rest)
    assert done == [0, 1, 2, 3] and disk.flushes == 2
    writer.close()


async def test_a_wrong_write_fails_alone_and_a_failed_flush_ends_the_writer() -> None:
    disk = Disk()
    writer = Writer(disk, 3, sync=True)

    def wrong() -> None:
        raise InvalidInput("ids", "wrong")

    results = [writer.submit(wrong), writer.submit(full), writer.submit(lambda: 7)]
    disk.may.release(3)
    with pytest.raises(InvalidInput):
        await results[0]
    with pytest.raises(WriteRefused, match="no space for log"):
        await results[1]
    assert await results[2] == 7
    disk.error = OSError("no space")
    disk.may.release(9)
    with pytest.raises(WriterEnded, match="no space"):
        await writer.submit(lambda: 8)
    with pytest.raises(WriterEnded):
        writer.submit(lambda: 9)
    assert isinstance(writer.error, OSError)


class Greedy:
    """An ensemble without memory for many results, and its metrics."""

    def searched(self, *_: object) -> None:
        pass

    def query_bytes(self, _: Query) -> int:
        return 1

    def search(self, queries: Floats, query: Query) -> Hits:
        if query.results > 1:
            raise MemoryError("ask for fewer candidates")
        return Hits([["v1"]] * len(queries), [np.zeros(1, np.float32)] * len(queries), 1, 0)


def test_a_search_without_memory_fails_alone() -> None:
    batch = Batch(8)
    for id_, results in enumerate((1, 500, 1)):
        assert batch.admit(Search(id_, VECTORS[:1], Query(results)))
    found = {one.sequence: one for one in batch.run(Greedy(), Greedy())}  # type: ignore[arg-type]
    assert [found[at].error is None for at in range(3)] == [True, False, True]
    assert found[1].error is not None and found[1].error.status == 503
    assert "too much memory: ask for fewer candidates" in found[1].error.message


class Slow:
    """An ensemble that does few queries in an iteration, and its metrics. An id is the first component."""

    dimension = 2

    def __init__(self, together: int) -> None:
        self.size = STEP_BYTES // together
        self.steps: list[list[float]] = []

    def searched(self, *_: object) -> None:
        pass

    def query_bytes(self, _: Query) -> int:
        return self.size

    def search(self, queries: Floats, query: Query) -> Hits:
        firsts = queries[:, 0].tolist()
        self.steps.append(firsts)
        records = [[{"year": one}] for one in firsts] if query.metadata else None
        distances = [row[1:] for row in queries]
        return Hits([[str(one)] for one in firsts], distances, len(queries), len(self.steps), records)


def test_long_searches_are_done_in_parts_and_take_turns_with_others() -> None:
    ensemble: Any = Slow(3)
    batch = Batch(8)
    queries = np.arange(20, dtype=np.float32).reshape(10, 2)
    for one in (Search(1, queries[:7], Query(1)), Search(2, queries[7:], Query(1)), Count(3, None)):
        assert batch.admit(one)
    ensemble.count = lambda _: 5
    answers = [batch.run(ensemble, ensemble), batch.run(ensemble, ensemble)]
    assert batch.admit(Search(4, queries[9:], Query(1)))
    answers += [batch.run(ensemble, ensemble), batch.run(ensemble, ensemble)]
    assert [[one.sequence for one in step] for step in answers] == [[3], [2], [], [4, 1]]
    assert ensemble.steps == [[0, 2, 4], [14, 16, 18], [6, 8, 10], [18, 12]]
    last = answers[-1][1]
    hits: Any = last.value
    assert hits.ids == [[str(one)] for one in queries[:7, 0].tolist()]
    assert np.concatenate(hits.distances).tolist() == queries[:7, 1].tolist()
    assert hits.records == [[{"year": one}] for one in queries[:7, 0].tolist()]
    assert (hits.scanned, hits.sequence, hits.vectors, len(batch)) == (7, 1, None, 0)


@pytest.mark.parametrize(("together", "steps"), [(0.25, [1, 1, 1, 1]), (100, [2, 2])])
def test_an_iteration_does_one_query_at_least_and_no_more_than_allowed(
    together: float, steps: list[int]
) -> None:
    ensemble: Any = Slow(1)
    ensemble.size = int(STEP_BYTES / together)
    batch = Batch(2)
    assert batch.admit(Search(1, VECTORS[:4], Query(1)))
    while len(batch):
        batch.run(ensemble, ensemble)
    assert [len(one) for one in ensemble.steps] == steps


def test_a_search_that_is_cancelled_between_its_parts_ends() -> None:
    ensemble: Any = Slow(1)
    batch = Batch(2)
    assert batch.admit(Search(1, VECTORS[:4], Query(1))) and batch.run(ensemble, ensemble) == []
    batch.cancel(1)
    assert not len(batch) and batch.run(ensemble, ensemble) == []
    for id_ in range(FEWEST_COMMANDS):
        assert batch.admit(Search(id_, VECTORS[:4], Query(1)))
    assert not batch.admit(Search(1000, VECTORS[:4], Query(1)))


def test_vectors_that_nobody_wants_are_read_in_parts_and_dropped() -> None:
    reads: list[int] = []

    class Reads:
        dimension = MOST_NUMBERS // 2

        def fetch(self, ids: list[str]) -> list[Stored | None]:
            reads.append(len(ids))
            return [Stored(one, np.ones(3, np.float32), {}) if one else None for one in ids]

    ensemble: Any = Reads()
    for vectors in (False, True):
        batch = Batch(8)
        assert batch.admit(Fetch(1, ["a", "", "c"], vectors))
        (answer,) = batch.run(ensemble, ensemble)
        found: Any = answer.value
        assert [one and (one.id, len(one.vector)) for one in found] == [
            ("a", 3 * vectors),
            None,
            ("c", 3 * vectors),
        ]
    assert reads == [2, 1] * 2


def test_the_cost_of_a_query_follows_what_it_reads(tmp_path: Path) -> None:
    with opened(params(tmp_path, index={"grains": 4, "dims": 4})) as index:
        shard = Shard(index, 0, 1)
        assert shard.query_bytes(Query(10)) == 1
        index.upsert(IDS, VECTORS, RECORDS)
        vectors = VECTORS.nbytes
        assert shard.query_bytes(Query(10)) == vectors  # Rows in memory are compared exactly.
        index.flush()
        assert shard.query_bytes(Query(10, exact=True)) == vectors
        codes, row = len(IDS) * 8, vectors // len(IDS)
        assert shard.query_bytes(Query(10, nprobe=1, candidates=10)) == codes // 4 + 10 * row
        assert shard.query_bytes(Query(10, nprobe=9, candidates=5)) == codes + 10 * row
        assert shard.query_bytes(Query(10, nprobe=1, candidates=10**6)) == codes // 4 + vectors
        assert shard.query_bytes(Query(10, {"year": 1}, nprobe=1, candidates=10)) == codes + 10 * row


def test_an_index_is_opened_again_and_must_fit_the_parameters(tmp_path: Path) -> None:
    given = params(tmp_path, index={"target_recall": 0, "nprobe": 3})
    with opened(given) as index:
        assert index.search_settings.nprobe == 3
        index.upsert(IDS, VECTORS, RECORDS)
    with opened(params(tmp_path, dimension=0, index={"target_recall": 0, "nprobe": 5})) as index:
        assert len(index) == len(IDS) and index.search_settings.nprobe == 5
        with pytest.raises(ModelError, match="already open"):
            opened(given)
    for more, words in (
        ({"dimension": 7}, r"params.dimension: 7, but .* has 6"),
        ({"index": {"metric": "ip"}}, 'params.index.metric: "ip"'),
        ({"fields": {}}, "params.fields"),
        ({"id_type": "uint64"}, "params.id_type"),
    ):
        with pytest.raises(ModelError, match=words):
            opened(params(tmp_path, **more))
    with pytest.raises(ModelError, match="there is no snapshot"):
        opened(params(tmp_path / "other", dimension=0))


def snapshot(folder: Path) -> Path:
    given = params(folder / "source")
    with opened(given) as index:
        index.upsert(IDS[:20], VECTORS[:20], RECORDS[:20])
        index.flush()
        index.upsert(IDS[20:], VECTORS[20:], RECORDS[20:])
        index.delete(["v0"])
        assert make_snapshot(index, folder / "source" / "shard-0-of-1", folder / "snapshot") == 3
    return folder / "snapshot"


def test_a_replica_starts_from_a_snapshot_and_refuses_a_damaged_one(tmp_path: Path) -> None:
    made = snapshot(tmp_path)
    with opened(params(tmp_path / "a"), made) as index:
        assert sorted(index.ids()) == sorted(IDS[1:])
        index.delete(["v1"])
    with opened(params(tmp_path / "a"), made) as index:
        assert len(index) == len(IDS) - 2
    with pytest.raises(ModelError, match="no manifest of an index"):
        opened(params(tmp_path / "b"), tmp_path)
    (segment,) = made.glob("*.seg")
    segment.write_bytes(segment.read_bytes()[:-9])
    with pytest.raises(ModelError, match=segment.name):
        opened(params(tmp_path / "b"), made)
    with opened(params(tmp_path / "b")) as index:
        assert len(index) == 0


class Linked:
    """A shard of another rank whose messages pass through bytes."""

    def __init__(self, shard: Shard) -> None:
        self.lock = threading.Lock()
        self._shard = shard
        self._calls: deque[tuple[str, bytes]] = deque()
        self.signs: list[str] = []

    def start(self, name: str, *arguments: Any) -> None:
        assert self.lock.locked()
        self._calls.append((name, remote.call_message(name, arguments)))

    def finish(self) -> Any:
        name, message = self._calls.popleft()
        return remote.result_of(name, remote.perform(self._shard, message))

    def idle(self) -> None:
        self.signs.append("idle")

    def end(self) -> None:
        self.signs.append("end")
        raise RuntimeError("lost")


def full(*ignored: Any) -> None:
    raise NoSpace(Path("log"))


def test_several_shards_answer_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = snapshot(tmp_path)
    world = 3
    shards = [
        Shard(opened(params(tmp_path / "ranks"), made, Group(rank, world)), 0, 1) for rank in range(world)
    ]
    for rank, one in enumerate(shards):
        assert one.index.ids() and all(owner(id_, world) == rank for id_ in one.index.ids())
    others = [Linked(one) for one in shards[1:]]
    many, alone = Ensemble(shards[0], others), Ensemble(Shard(opened(params(tmp_path / "one"), made), 0, 1))
    for ensemble in (many, alone):
        assert ensemble.write(Upsert(["new", "v3"], VECTORS[:2], [{}, {"year": -1}])) == 2
        assert ensemble.write(Delete(["v5", "nobody"])) == 1
        ensemble.sync()
    for where in (None, {"year": {"$gte": 10}}):
        query = Query(7, where, exact=True, vectors=True)
        left, right = many.search(VECTORS[:4], query), alone.search(VECTORS[:4], query)
        assert left.ids == right.ids and left.records == right.records
        assert all(np.array_equal(a, b) for a, b in zip(left.distances, right.distances, strict=True))
        assert all(np.array_equal(a, b) for a, b in zip(left.vectors or [], right.vectors or [], strict=True))
        assert many.count(where) == alone.count(where)
        if where:
            assert sorted(map(str, many.chosen(where))) == sorted(map(str, alone.chosen(where)))
    plain = many.search(VECTORS[:2], Query(5, metadata=False))
    assert plain.records is None and plain.vectors is None
    asked = ["v3", "v5", "v8", "new"]
    for left_one, right_one in zip(many.fetch(asked), alone.fetch(asked), strict=True):
        assert (left_one is None) is (right_one is None)
        if left_one and right_one:
            assert left_one.record == right_one.record
            assert np.array_equal(left_one.vector, right_one.vector)
    assert sum(found.records for found in many.facts()) == alone.facts()[0].records
    with pytest.raises(InvalidInput):
        many.count({"colour": 1})
    with monkeypatch.context() as patch:
        patch.setattr(shards[1], "write", full)
        owned = next(id_ for id_ in map(str, range(99)) if owner(id_, world) == 1)
        with pytest.raises(NoSpace, match="no space for log: delete files"):
            many.write(Upsert([owned], VECTORS[:1], [{}]))
    # No result of the refused call is left.
    assert many.count(None) == alone.count(None)
    many.idle()
    many.end()
    assert [other.signs for other in others] == [["idle", "end"]] * 2
    for shard in (*shards, alone.own):
        shard.index.close()


def test_upkeep_makes_segments_and_tunes_the_search(tmp_path: Path) -> None:
    given = params(tmp_path, flush_rows=30, recall_share=1, recall_budget=1, index={"target_recall": 0.9})
    with opened(given) as index:
        shard = Shard(index, 1, 1)
        flushed: list[int] = []
        upkeep = UpkeepThread(shard, given, lambda: flushed.append(index.sequence))
        assert not upkeep.step()
        index.upsert(IDS, VECTORS, RECORDS)
        assert upkeep.step() and flushed == [1] and shard.facts().segments == 1
        rng = np.random.default_rng(0)
        for _ in range(25):
            shard.search(rng.standard_normal((1, VECTORS.shape[1])).astype(np.float32), Query(10))
        while upkeep.step():
            pass
        assert index.search_settings.candidates != given.index.candidates


async def test_writes_survive_a_restart_and_drain_waits_for_them(tmp_path: Path) -> None:
    given = params(tmp_path / "state", flush_rows=10)
    async with served(tmp_path, given) as rank:
        await rank.call("upsert", rows(0, 40))
        may = threading.Event()
        rank.engine.parts.writer.submit(lambda: may.wait(20))
        late = asyncio.create_task(rank.call("delete", {"ids": ["v1"]}))
        await rank.until(lambda: not rank.engine._routes.written.is_set())
        rank.process.leave()
        await rank.until(lambda: rank.process.lifecycle.state == "draining")
        may.set()
        assert await late == {"deleted": 1}
        assert await rank.ended() == 0
    folder = tmp_path / "state" / "shard-0-of-1"
    assert manifest_files(folder)
    async with served(tmp_path, given) as rank:
        assert await rank.call("count", {}) == {"count": 39}


def test_the_self_test_passes_and_notices_a_wrong_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    for metric in ("l2", "ip", "cosine"):
        self_test.run(metric, "twin")
    exact = self_test.distances
    monkeypatch.setattr(self_test, "distances", lambda *given: exact(*given) + 1)
    with pytest.raises(SelfTestFailed):
        self_test.run("l2", "twin")
