"""Tests of builds from a running service, which is a rank of aperon in this process."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.workloads.aperon.served import params as served_params
from tests.unit.workloads.aperon.served import rows, served

from convoy_workloads.engines.aperon import exported
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.settings import Options
from convoy_workloads.engines.aperon_index import build as building
from convoy_workloads.engines.aperon_index.build import Built, build_with_retries
from convoy_workloads.engines.aperon_index.params import Params
from convoy_workloads.engines.aperon_index.source import SourceAway, SourceError


def params(url: str, token_file: Path | None = None, **more: Any) -> Params:
    service = {"url": url, "attempts": 3, "token_file": str(token_file or "")}
    return Params.model_validate({"kernel": "twin", "service": service, **more})


async def built(folder: Path, given: Params) -> Built:
    return await asyncio.to_thread(build_with_retries, given, 1, folder / "built", lambda _: None)


async def test_a_service_becomes_an_index_with_the_same_bits(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    given = served_params(tmp_path / "state", index={"metric": "cosine"})
    async with served(tmp_path, given, token_file=token) as rank:
        allowed = {"Authorization": "Bearer secret"}
        assert (await rank.post("/v1/vectors/upsert", rows(0, 30), allowed))[0] == 200
        await asyncio.to_thread(rank.engine.parts.shard.index.flush)
        assert (await rank.post("/v1/vectors/upsert", rows(20, 40), allowed))[0] == 200
        assert (await rank.post("/v1/vectors/delete", {"ids": ["v3"]}, allowed))[0] == 200
        theirs = rank.engine.parts.shard.index
        made = await built(tmp_path, params(rank.base, token))
        with VectorIndex(made.folder, options=Options(kernel="twin")) as index:
            assert made.records == 39 and index.settings == theirs.settings
            pairs = zip(index.fetch(index.ids()), theirs.fetch(index.ids()), strict=True)
            for one, other in pairs:
                assert one is not None and other is not None
                assert np.array_equal(one.vector, other.vector) and one.record == other.record
        for more, words in (
            ({"dimension": 5}, "dimension: 5, but the service has 6"),
            ({"index": {"metric": "l2"}}, 'index.metric: "l2", but the service has "cosine": leave it out'),
            ({"id_type": "uint64"}, 'id_type: "uint64"'),
            ({"fields": {}}, "fields: {}"),
        ):
            with pytest.raises(SourceError, match=words):
                await built(tmp_path, params(rank.base, token, **more))
        with pytest.raises(SourceError, match="status 401"):
            await built(tmp_path, params(rank.base))
        with pytest.raises(SourceError, match=r"token_file: .* No such file"):
            await built(tmp_path, params(rank.base, tmp_path / "absent"))


async def test_a_cut_export_is_read_again_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(building.time, "sleep", pauses.append)
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    monkeypatch.setattr(exported, "_ROWS", 8)
    async with served(tmp_path, served_params(tmp_path / "state")) as rank:
        await rank.call("upsert", rows(0, 40))
        exports = rank.engine.parts.shard.exports
        whole, calls = exports.next, 0

        def cut(number: int) -> bytes:
            nonlocal calls
            calls += 1
            if calls in (3, 4):
                raise OSError("the disk is away")
            return bytes(whole(number))

        exports.next = cut
        made = await built(tmp_path, params(rank.base))
        assert made.records == 40 and pauses == [1.0, 2.0]
        calls, pauses = -1000, []
        exports.next = lambda _: b""
        with pytest.raises(SourceAway, match="0 records do not fit its last frame"):
            await built(tmp_path, params(rank.base))
        url = rank.base
    with pytest.raises(SourceAway, match="refused"):
        await built(tmp_path, params(url))
