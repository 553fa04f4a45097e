"""Tests of `GET /v1/vectors/export`: its frames, its route, and shards."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.workloads.aperon.served import VECTORS, params, rows, served
from tests.unit.workloads.aperon.test_parts import Linked

from convoy_workloads.engines.aperon import export_route, exported
from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.exported import Encoder, ExportError
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.operations import Delete, Upsert, encode
from convoy_workloads.engines.aperon.settings import IndexSettings, Options
from convoy_workloads.engines.aperon.shard import Shard

IDS = [f"v{at}" for at in range(len(VECTORS))]
SETTINGS = IndexSettings(VECTORS.shape[1], fields={"year": "integer"})
Found = dict[str, tuple[bytes, dict[str, Any]]]


def index(folder: Path) -> VectorIndex:
    return VectorIndex.create(folder, SETTINGS, options=Options("never", kernel="twin"))


def everything(one: VectorIndex) -> Found:
    stored = [item for item in one.fetch(one.ids()) if item is not None]
    return {str(item.id): (item.vector.tobytes(), item.record) for item in stored}


def read(stream: bytes) -> Found:
    found: Found = {}
    for batch in exported.read(io.BytesIO(stream).read).batches:
        for id_, vector, record in zip(batch.ids, batch.vectors, batch.records, strict=True):
            found[str(id_)] = (vector.tobytes(), record)
    return found


def streamed(ensemble: Ensemble) -> list[bytes]:
    """Return the frames of an export."""
    opened, encoder = ensemble.open_export(), Encoder()
    frames = [encoder.settings(SETTINGS, sum(records for _, records in opened))]
    for rank, (number, _) in enumerate(opened):
        while data := ensemble.next_export(rank, number):
            frames.append(encoder.records(data))
    ensemble.close_export([number for number, _ in opened])
    return [*frames, encoder.end(sum(records for _, records in opened))]


def test_an_export_has_the_records_of_the_time_when_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported, "_ROWS", 4)
    with index(tmp_path / "one") as one:
        one.upsert(IDS[:20], VECTORS[:20], [{"year": at} for at in range(20)])
        one.flush()
        one.upsert(IDS[18:30], VECTORS[18:30])
        one.delete(["v3", "v29"])
        ensemble, before = Ensemble(Shard(one, 0, 1)), everything(one)
        ((number, records),) = ensemble.open_export()
        frames = [ensemble.next_export(0, number)]
        one.upsert(IDS[:40], VECTORS[::-1])
        one.delete(["v7"])
        one.compact()
        one.flush()
        while data := ensemble.next_export(0, number):
            frames.append(data)
        encoder = Encoder()
        frames = [encoder.settings(SETTINGS, records), *map(encoder.records, frames), encoder.end(records)]
        assert len(frames) > 7 and read(b"".join(frames)) == before
        ensemble.close_export([number])
        with pytest.raises(InvalidInput, match="there is no export"):
            ensemble.next_export(0, number)


def test_the_shards_of_a_replica_follow_each_other(tmp_path: Path) -> None:
    shards = [Shard(index(tmp_path / str(rank)), 0, 1) for rank in range(3)]
    ensemble = Ensemble(shards[0], [Linked(one) for one in shards[1:]])
    ensemble.write(Upsert(IDS, VECTORS, [{"year": at} for at in range(len(IDS))]))
    ensemble.write(Delete(["v5"]))
    found = read(b"".join(streamed(ensemble)))
    assert sorted(found) == sorted(one for one in IDS if one != "v5")
    assert all(found[f"v{at}"] == (VECTORS[at].tobytes(), {"year": at}) for at in range(5))
    for one in shards:
        one.index.close()


def test_a_stream_that_is_cut_or_changed_anywhere_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported, "_ROWS", 10)
    with index(tmp_path / "one") as one:
        one.upsert(IDS[:30], VECTORS[:30])
        frames = streamed(Ensemble(Shard(one, 0, 1)))
    stream = b"".join(frames)
    assert len(frames) == 5 and len(read(stream)) == 30
    ends = np.cumsum([len(one) for one in frames]).tolist()
    for cut in {0, 3, *ends[:-1], *(end - 1 for end in ends), *(end + 2 for end in ends[:-1])}:
        with pytest.raises(ExportError, match="before its last frame"):
            read(stream[:cut])
    rng = np.random.default_rng(0)
    for at in {*ends[:-1], *rng.choice(len(stream), 60, replace=False).tolist()}:
        changed = bytearray(stream)
        changed[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(ExportError):
            read(bytes(changed))
    for wrong in ([0, 1, 3, 4], [0, 2, 1, 3, 4], [1, 2, 3, 4], [0, 1, 2, 3, 3, 4], [0, 4]):
        with pytest.raises(ExportError):
            read(b"".join(frames[at] for at in wrong))
    encoder = Encoder()
    short = encoder.settings(SETTINGS, 2) + encoder.records(encode(Upsert(["a"], VECTORS[:1], [{}])))
    with pytest.raises(ExportError, match="1 records do not fit"):
        read(short + encoder.end(1))
    encoder = Encoder()
    with pytest.raises(ExportError, match="another kind"):
        read(encoder.settings(SETTINGS, 0) + encoder.records(encode(Delete(["a"]))) + encoder.end(0))


async def test_the_route_streams_all_records_and_refuses_a_third_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    allowed = {"Authorization": "Bearer secret"}
    async with served(tmp_path, params(tmp_path / "state"), token_file=token) as rank:
        assert (await rank.post("/v1/vectors/upsert", rows(0, 30), allowed))[0] == 200
        url = rank.base + "/v1/vectors/export"
        async with rank.session.get(url) as response:
            assert response.status == 401
        async with rank.session.get(url, headers=allowed) as response:
            assert response.status == 200 and response.content_type == export_route.MEDIA_TYPE
            found = read(await response.read())
        assert sorted(found) == sorted(IDS[:30])
        assert found["v7"] == (VECTORS[7].tobytes(), {"genre": "drama", "year": 2007})
        shard = rank.engine.parts.shard
        assert not shard.exports._cursors
        monkeypatch.setattr(export_route, "CONCURRENT", 0)
        async with rank.session.get(url, headers=allowed) as response:
            assert response.status == 503 and response.headers["retry-after"]


async def test_an_export_that_fails_has_no_end_and_keeps_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, params(tmp_path / "state")) as rank:
        await rank.call("upsert", rows(0, 30))
        shard = rank.engine.parts.shard

        def fail(_: int) -> bytes:
            raise OSError("no such disk")

        monkeypatch.setattr(shard.exports, "next", fail)
        async with rank.session.get(rank.base + "/v1/vectors/export") as response:
            parts = bytearray()
            with pytest.raises(Exception, match=r"payload|chunk|disconnected|closed"):
                while part := await response.content.readany():
                    parts += part
        with pytest.raises(ExportError, match="before its last frame"):
            read(bytes(parts))
        await rank.until(lambda: not shard.exports._cursors)
        assert await rank.call("count", {}) == {"count": 30}
