"""Tests of the routes below /v1/vectors, with the serving front and the engine in one process."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.workloads.aperon.served import DIMENSION, VECTORS, nearest, params, rows, served

QUERY = VECTORS[7].tolist()


async def test_records_are_found_counted_read_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path, params(tmp_path / "state")) as rank:
        assert await rank.call("upsert", rows(0, 30)) == {"upserted": 30}
        one = await rank.call("search", {"query": QUERY, "k": 5})
        assert [hit["id"] for hit in one["results"]] == nearest(QUERY, range(30), 5)
        assert one["results"][0] == {
            "id": "v7",
            "distance": 0.0,
            "metadata": {"genre": "drama", "year": 2007},
        }
        drama = {"queries": VECTORS[:2].tolist(), "k": 3, "filter": {"genre": "drama"}, "exact": True}
        many = await rank.call("search", {**drama, "include_metadata": False, "include_vectors": True})
        for at, hits in enumerate(many["results"]):
            assert [hit["id"] for hit in hits] == nearest(VECTORS[at], range(1, 30, 2), 3)
            assert all("metadata" not in hit for hit in hits)
            assert np.array_equal(
                np.array([hit["vector"] for hit in hits], np.float32),
                VECTORS[[int(hit["id"][1:]) for hit in hits]],
            )
        assert await rank.call("count", {}) == {"count": 30}
        assert await rank.call("count", {"filter": {"year": {"$gte": 2020}}}) == {"count": 10}
        got = await rank.call("get", {"ids": ["v3", "v99"], "include_vectors": True})
        assert got["records"][1] is None
        assert got["records"][0]["metadata"] == {"genre": "drama", "year": 2003}
        assert np.array_equal(np.float32(got["records"][0]["vector"]), VECTORS[3])
        assert await rank.call("delete", {"ids": ["v7", "v99"]}) == {"deleted": 1}
        assert await rank.call("delete", {"filter": {"year": {"$lt": 2005}}}) == {"deleted": 5}
        left = await rank.call("search", {"query": QUERY, "k": 30})
        assert [hit["id"] for hit in left["results"]] == [
            one for one in nearest(QUERY, range(5, 30), 25) if one != "v7"
        ]
        status, text = await rank.get("/v1/vectors/stats")
        stats = json.loads(text)
        assert status == 200 and stats["records"] == 24 and stats["settings"]["dimension"] == DIMENSION


async def test_records_base64_and_ids_of_numbers_are_other_forms_of_the_same(tmp_path: Path) -> None:
    async with served(tmp_path, params(tmp_path / "state", id_type="uint64")) as rank:
        record = {"id": 2**64 - 1, "vector": VECTORS[0].tolist(), "metadata": {"year": 1}}
        assert await rank.call("upsert", {"records": [record]}) == {"upserted": 1}
        text = base64.b64encode(VECTORS[1:3].tobytes()).decode()
        assert await rank.call("upsert", {"ids": [1, 2], "vectors": text}) == {"upserted": 2}
        query = base64.b64encode(VECTORS[2].tobytes()).decode()
        found = await rank.call("search", {"query": query, "k": 1})
        assert found["results"] == [{"id": 2, "distance": 0.0, "metadata": {}}]
        got = await rank.call("get", {"ids": [2**64 - 1]})
        assert got["records"] == [{"id": 2**64 - 1, "metadata": {"year": 1}}]


async def test_an_inference_with_binary_tensors_searches(tmp_path: Path) -> None:
    async with served(tmp_path, params(tmp_path / "state", results=4)) as rank:
        await rank.call("upsert", rows(0, 20))
        tensor: dict[str, Any] = {"name": "queries", "datatype": "FP32", "shape": [2, DIMENSION]}
        tensor["parameters"] = {"binary_data_size": 2 * DIMENSION * 4}
        head = json.dumps({"inputs": [tensor], "outputs": [{"name": "ids"}, {"name": "distances"}]}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        body = head + VECTORS[:2].tobytes()
        status, found, _ = await rank.post("/v2/models/aperon/infer", body, headers)
        assert status == 200, found
        ids, distances = found["outputs"]
        assert ids["shape"] == distances["shape"] == [2, 4]
        assert ids["data"] == nearest(VECTORS[0], range(20), 4) + nearest(VECTORS[1], range(20), 4)
        bad = {"name": "queries", "datatype": "FP32", "shape": [1, DIMENSION], "data": [1e38] * DIMENSION}
        status, found, _ = await rank.post("/v2/models/aperon/infer", {"inputs": [bad]})
        assert status == 400 and "queries[0][0]" in found["error"]["message"]


ZERO = [0.0] * DIMENSION
ONE = {"id": "a", "vector": QUERY}
REFUSALS: list[tuple[str, Any, str, str]] = [
    ("search", {}, "queries", "either"),
    ("search", {"query": QUERY[1:]}, "query[0]", "dimension 5 instead of 6"),
    ("search", {"query": ZERO}, "query[0]", "norm is zero"),
    ("search", {"queries": [[*QUERY[1:], "1"]]}, "queries[0][5]", "no number"),
    ("search", {"queries": [QUERY, [*QUERY[1:], float("nan")]]}, "queries[1][5]", "not finite"),
    ("search", {"queries": []}, "queries", "0 vectors"),
    ("search", {"queries": "AAAA"}, "queries", "3 bytes"),
    ("search", {"queries": "?"}, "queries", "no base64"),
    ("search", {"query": QUERY, "k": 0}, "k", "greater than or equal to 1"),
    ("search", {"query": QUERY, "k": 10_001}, "k", "less than or equal to 10000"),
    ("search", {"query": QUERY, "top": 1}, "top", "does not know the field"),
    ("search", {"query": QUERY, "filter": {"colour": "red"}}, "filter.colour", "genre, year"),
    ("search", {"query": QUERY, "filter": {"year": {"$near": 1}}}, "filter.year.$near", "unknown operator"),
    ("search", {"query": QUERY, "nprobe": 0}, "nprobe", "greater"),
    ("upsert", {}, "ids", "missing"),
    ("upsert", {"records": [ONE, ONE]}, "records[1].id", "also records[0].id"),
    ("upsert", {"records": [ONE, {"id": "b", "vector": ZERO}]}, "records[1].vector", "norm is zero"),
    ("upsert", {"records": [{**ONE, "metadata": {"year": "x"}}]}, "records[0].metadata.year", "no integer"),
    ("upsert", {"records": [{"id": 1, "vector": QUERY}]}, "records[0].id", "no string"),
    ("upsert", {"records": [ONE], "ids": ["a"]}, "records", "either"),
    ("upsert", {"ids": ["a", "b"], "vectors": [QUERY]}, "vectors", "1 vectors for 2 ids"),
    ("upsert", {"ids": ["a"] * 9, "vectors": [QUERY]}, "ids[1]", "send each id once"),
    ("upsert", {"ids": [str(at) for at in range(9)], "vectors": [QUERY]}, "ids", "between 1 and 8"),
    ("delete", {"ids": ["a"], "filter": {"year": 1}}, "ids", "either"),
    ("delete", {"filter": {}}, "filter", "at least one entry"),
    ("get", {"ids": []}, "ids", "between 1 and 8"),
    ("count", {"filter": {"$and": []}}, "filter.$and", "at least one filter"),
]


async def test_wrong_bodies_get_the_path_of_the_field(tmp_path: Path) -> None:
    given = params(tmp_path / "state", index={"metric": "cosine"}, max_rows=8)
    async with served(tmp_path, given) as rank:
        for name, body, field, words in REFUSALS:
            status, found, message = await rank.refused(name, body)
            assert (status, found) == (400, field) and words in message, (name, body, found, message)
        assert await rank.call("count", {}) == {"count": 0}


async def test_a_token_is_needed_and_a_short_deadline_ends_a_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    async with served(tmp_path, params(tmp_path / "state"), token_file=token) as rank:
        status, _, headers = await rank.post("/v1/vectors/count", {})
        assert status == 401 and headers["www-authenticate"] == "Bearer"
        allowed = {"Authorization": "Bearer secret", "X-Request-Id": "mine"}
        status, found, headers = await rank.post("/v1/vectors/count", {}, allowed)
        assert (status, found, headers["x-request-id"]) == (200, {"count": 0}, "mine")
        late = {**allowed, "X-Request-Timeout": "0.000001"}
        assert (await rank.post("/v1/vectors/upsert", rows(0, 1), late))[0] in (408, 504)


async def test_full_queues_and_a_full_index_refuse_more(tmp_path: Path) -> None:
    async with served(tmp_path, params(tmp_path / "state", write_queue=1, max_records=3)) as rank:
        assert await rank.call("upsert", rows(0, 3)) == {"upserted": 3}
        status, _, message = await rank.refused("upsert", rows(3, 4))
        assert status == 507 and "max_records" in message
        assert await rank.call("upsert", rows(0, 3)) == {"upserted": 3}
        writer = rank.engine.parts.writer
        held, free = asyncio.Event(), __import__("threading").Event()
        loop = asyncio.get_running_loop()
        running = writer.submit(lambda: (loop.call_soon_threadsafe(held.set), free.wait(20)))
        await held.wait()
        waiting = writer.submit(lambda: 5)
        status, found, headers = await rank.post("/v1/vectors/upsert", rows(0, 1))
        assert (
            status == 429
            and headers["retry-after"] == "1"
            and "(1 requests wait)" in found["error"]["message"]
        )
        free.set()
        assert await waiting == 5 and (await running)[1]


async def test_the_metrics_count_queries_and_writes(tmp_path: Path) -> None:
    async with served(tmp_path, params(tmp_path / "state")) as rank:
        await rank.call("upsert", rows(0, 9))
        await rank.call("delete", {"ids": ["v1"]})
        await rank.call("search", {"queries": VECTORS[:3].tolist()})
        text = (await rank.get("/metrics"))[1]
        values = {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("convoy_ann")
        }
        assert values["convoy_ann_upserts_total"] == 9 and values["convoy_ann_deletes_total"] == 1
        assert values["convoy_ann_queries_total"] == 3 and values["convoy_ann_query_seconds_count"] == 1
        assert values["convoy_ann_scanned_vectors_total"] == 24
        assert values["convoy_ann_records"] == 8 and values["convoy_ann_segments"] == 0
        assert 'part="memory"' in text


@pytest.mark.parametrize("count", [1, 5])
async def test_searches_at_the_same_time_get_their_own_results(tmp_path: Path, count: int) -> None:
    async with served(tmp_path, params(tmp_path / "state", batch_rows=count)) as rank:
        await rank.call("upsert", rows(0, 40))
        bodies = [{"query": VECTORS[at].tolist(), "k": 1 + at % 2} for at in range(12)]
        found = await asyncio.gather(*(rank.call("search", body) for body in bodies))
        for at, one in enumerate(found):
            assert [hit["id"] for hit in one["results"]] == nearest(VECTORS[at], range(40), 1 + at % 2)
