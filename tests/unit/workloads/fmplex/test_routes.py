"""Tests of the engine behind the front: a task is a model, and the admin socket changes tasks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import numpy as np
import pytest
from tests.unit.workloads.serving.harness import Rank, serving

from convoy_workloads.engines.fmplex.engine import Multiplexer

from .tasks_engine import CPU, HERE, params, pixels

TASKS: list[dict[str, Any]] = [
    {"name": "plain"},
    {"name": "a", "adapter_ref": "seed:1", "head": "classify:3", "max_queue": 4},
    {"name": "bad", "head": HERE + "crashing"},
    {"name": "photos", "backbone_ref": "image"},
]
TEXT = {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["x", "y"]}


class Served(Multiplexer):
    """The engine, which waits for the harness before it loads."""

    def __init__(self) -> None:
        super().__init__(params(TASKS), None, CPU)
        self.may_load = threading.Event()
        self.permits = threading.Semaphore()
        self.free = True

    def load(self, renew: Any) -> Any:
        while not self.may_load.wait(0.01):
            renew()
        return super().load(renew)


@contextlib.asynccontextmanager
async def served(folder: Path, wait: bool = True) -> AsyncIterator[Rank]:
    async with serving(folder, cast(Any, Served()), wait=wait) as rank:
        yield rank


async def admin(rank: Rank, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connector = aiohttp.UnixConnector(path=str(rank.admin))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, f"http://admin{path}", json=body) as response,
    ):
        return response.status, await response.json()


async def test_each_task_is_a_model(tmp_path: Path) -> None:
    async with served(tmp_path) as rank:
        status, body, _ = await rank.post("/v2/models/a/infer", {"inputs": [TEXT]})
        assert (status, body["model_name"]) == (200, "a")
        assert [(one["name"], one["shape"]) for one in body["outputs"]] == [("scores", [2, 3])]
        image = {
            "name": "image",
            "datatype": "FP32",
            "shape": [1, 3, 16, 16],
            "data": pixels(1).ravel().tolist(),
        }
        status, body, _ = await rank.post("/v2/models/photos/infer", {"inputs": [image]})
        assert (status, body["outputs"][0]["shape"]) == (200, [1, 32])
        status, body, _ = await rank.post("/v2/models/photos/infer", {"inputs": [TEXT]})
        assert (status, body["error"]["param"]) == (400, "inputs.0.datatype")
        status, text = await rank.get("/v1/models")
        assert [f'"{task["name"]}"' in text for task in TASKS] == [True] * 4
        status, body, _ = await rank.post("/v2/models/absent/infer", {"inputs": [TEXT]})
        assert (status, "lists 'a', 'bad', 'photos', 'plain'" in body["error"]["message"]) == (404, True)
        status, body, _ = await rank.post("/v2/models/bad/infer", {"inputs": [TEXT]})
        assert (status, body["error"]["code"]) == (500, "head_failed")
        sent = [rank.post("/v2/models/a/infer", {"inputs": [TEXT]}) for _ in range(40)]
        codes = Counter([status for status, _, _ in await asyncio.gather(*sent)])
        assert set(codes) <= {200, 429}
        text = (await rank.get("/metrics"))[1]
        assert f'reason="queue_full"}} {codes[429]}.0' in text
        five = {**TEXT, "shape": [5], "data": ["x"] * 5}
        status, body, _ = await rank.post("/v2/models/a/infer", {"inputs": [five]})
        assert (status, "queues at most 4" in body["error"]["message"]) == (400, True)


async def test_embeddings_have_the_form_of_openai(tmp_path: Path) -> None:
    async with served(tmp_path) as rank:

        async def embed(**body: Any) -> tuple[int, dict[str, Any]]:
            status, found, _ = await rank.post("/v1/embeddings", {"model": "plain", **body})
            return status, found

        status, whole = await embed(input=["one", "two"])
        assert status == 200
        assert [one["index"] for one in whole["data"]] == [0, 1]
        assert whole["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
        vector = np.array(whole["data"][1]["embedding"], dtype=np.float32)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
        status, coded = await embed(input="two", encoding_format="base64", dimensions=32)
        data = base64.b64decode(coded["data"][0]["embedding"])
        assert np.array_equal(np.frombuffer(data, "<f4"), vector)
        for body, field in (
            ({"input": "x", "dimensions": 8}, "dimensions"),
            ({"input": []}, "input.list[str]"),
            ({"input": "x", "model": "a"}, "model"),
            ({"input": "x", "colour": 1}, "colour"),
        ):
            status, found = await embed(**body)
            assert status == 400, body
            assert found["error"]["param"].startswith(field.split(".", maxsplit=1)[0]), found
        status, found = await embed(input="x" * 49)
        assert (status, found["error"]["param"]) == (400, "inputs.0.data.0")


async def test_tasks_are_attached_changed_and_detached_while_the_engine_serves(tmp_path: Path) -> None:
    async with served(tmp_path) as rank:
        task = {"name": "new", "head": "classify:2", "adapter_ref": "seed:9"}
        assert await admin(rank, "POST", "/tasks", task) == (201, {"attached": "new"})
        status, before, _ = await rank.post("/v2/models/new/infer", {"inputs": [TEXT]})
        assert status == 200
        assert (await admin(rank, "PATCH", "/tasks/new", {"weight": 3.0, "slo_ms": 50}))[0] == 200
        listed = {one["name"]: one for one in (await admin(rank, "GET", "/tasks"))[1]["tasks"]}
        assert (listed["new"]["weight"], listed["new"]["slo_ms"]) == (3.0, 50)
        assert listed["new"]["requests"] == {"ok": 1}
        text = (await rank.get("/metrics"))[1]
        assert 'convoy_vfm_weight{engine="scripted",job="default/job",model="echo",task="new"} 3.0' in text
        assert 'convoy_vfm_attached{engine="scripted",job="default/job",model="echo"} 5.0' in text
        sent = [
            asyncio.ensure_future(rank.post("/v2/models/new/infer", {"inputs": [TEXT]})) for _ in range(20)
        ]
        await asyncio.sleep(0)
        assert await admin(rank, "DELETE", "/tasks/new") == (200, {"detached": "new"})
        found = [(await one)[:2] for one in sent]
        assert {status for status, _ in found} <= {200, 404}
        assert all(body["outputs"] == before["outputs"] for status, body in found if status == 200)
        assert (await rank.post("/v2/models/new/infer", {"inputs": [TEXT]}))[0] == 404


WRONG: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/tasks", {"name": "plain"}, 400, "there is a task 'plain' already"),
    ("POST", "/tasks", {"name": "x", "weight": 0}, 400, "weight: Input should be greater than 0"),
    ("POST", "/tasks", {"name": "x", "backbone_ref": "no"}, 400, "there is no backbone 'no'"),
    ("POST", "/tasks", {"name": "x", "head": "python:absent:make"}, 400, "cannot be made"),
    ("POST", "/tasks", [], 400, "Input should be an object"),
    ("PATCH", "/tasks/plain", {"weight": -1}, 400, "weight: Input should be greater than 0"),
    ("PATCH", "/tasks/plain", {"head": "embed"}, 400, "head: Extra inputs are not permitted"),
    ("PATCH", "/tasks/no", {"weight": 1}, 404, "there is no task 'no'"),
    ("DELETE", "/tasks/no", None, 404, "there is no task 'no'"),
]


async def test_a_wrong_change_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as rank:
        for method, path, body, expected, words in WRONG:
            status, found = await admin(rank, method, path, body)
            assert (status, words in found["error"]) == (expected, True), found


async def test_tasks_are_unavailable_until_the_engine_has_loaded(tmp_path: Path) -> None:
    async with served(tmp_path, wait=False) as rank:
        status, found = await admin(rank, "GET", "/tasks")
        assert (status, found["error"]) == (503, "the model is loading: send the request again")
