"""Tests of inference on tensors by the Open Inference Protocol."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.workloads.serving.harness import Rank, Scripted, serving

from convoy_workloads.serving.datatypes import DataError, from_bytes, from_json, to_bytes, to_json
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.kserve_tensors import LENGTH, TensorRequest, parse, render
from convoy_workloads.serving.protocol import Inference, ModelCard, Prediction, TensorSpec, Usage

TABLE = ModelCard(
    "table",
    0,
    "a test",
    inputs=(TensorSpec("x", "FP64", (-1, 2)), TensorSpec("word", "BYTES", (-1,))),
    outputs=(TensorSpec("sum", "FP64", (-1,)), TensorSpec("words", "BYTES", (-1,))),
)
ONE = ModelCard(
    "one", 0, "a test", inputs=(TensorSpec("x", "INT8", (-1,)),), outputs=(TensorSpec("y", "INT8", (-1,)),)
)
X = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2.5, 3, 4]}
WORD = {"name": "word", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}


BINARY = {"binary_data_size": 16}


class Adder(Scripted):
    """An engine that adds the numbers of each row, and repeats the words."""

    def __init__(self, **more: Any) -> None:
        super().__init__(tokenizer=None, **more)
        self.batch: list[Inference] = []
        self.sizes: list[int] = []

    def load(self, renew: Callable[[], None]) -> ModelCard:
        super().load(renew)
        return TABLE

    def admit(self, inference: Any) -> bool:
        if len(self.batch) >= self.room:
            return False
        self.batch.append(inference)
        return True

    def step(self) -> list[Any]:
        if not self.free:
            self.permits.acquire()
        self.sizes.append(len(self.batch))
        found = [self._result(one) for one in self.batch]
        return found

    def _result(self, one: Inference) -> Prediction:
        word = one.inputs["word"][0]
        if word in ("bad", "broken"):
            status = 400 if word == "bad" else 503
            return Prediction(one.id, error=RequestError(status, f"the word {word}"))
        made = {"sum": one.inputs["x"].sum(axis=1), "words": one.inputs["word"]}
        return Prediction(one.id, {name: made[name] for name in one.outputs})

    def cancel(self, sequence: int) -> None:
        self.cancelled.append(sequence)
        self.batch = [one for one in self.batch if one.id != sequence]

    def usage(self) -> Usage:
        return Usage(len(self.batch))


def body(**change: Any) -> dict[str, Any]:
    return {"inputs": [X, WORD], **change}


async def infer(rank: Rank, content: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    code, found, _ = await rank.post("/v2/models/table/infer", content, headers)
    return code, found


async def test_outputs_are_computed_from_json(tmp_path: Path) -> None:
    async with serving(tmp_path, Adder()) as rank:
        code, found = await infer(rank, body(id="mine"))
        output = {"name": "sum", "datatype": "FP64", "shape": [2], "data": [3.5, 7.0]}
        assert (code, found) == (
            200,
            {"model_name": "table", "model_version": "1", "id": "mine", "outputs": [output]},
        )
        # The values may be nested, and a column may be a table with one column.
        nested = {**X, "data": [[1, 2.5], [3, 4]]}
        column = {**WORD, "shape": [2, 1], "data": [["a"], ["b"]]}
        wanted = [{"name": "words"}, {"name": "sum"}]
        _, found = await infer(rank, {"inputs": [column, nested], "outputs": wanted})
        assert [one["data"] for one in found["outputs"]] == [["a", "b"], [3.5, 7.0]]
        described = json.loads((await rank.get("/v2/models/table"))[1])
        assert described["inputs"][0] == {"name": "x", "datatype": "FP64", "shape": [-1, 2]}
        assert [one["name"] for one in described["outputs"]] == ["sum", "words"]
        assert "max_model_len" not in (await rank.get("/v1/models"))[1]
        text = (await rank.get("/metrics"))[1]
        assert 'convoy_inference_rows_total{engine="scripted",job="default/job",model="echo"} 4.0' in text


async def test_tensors_may_be_bytes(tmp_path: Path) -> None:
    parts = [
        np.array([[1, 2.5], [3, 4]], dtype="<f4").tobytes(),
        b"\x01\0\0\0a" + b"\x02\0\0\0" + "é".encode(),
    ]
    inputs = [
        {
            "name": one["name"],
            "datatype": one["datatype"],
            "shape": one["shape"],
            "parameters": {"binary_data_size": len(part)},
        }
        for one, part in zip((X, WORD), parts, strict=True)
    ]
    outputs = [{"name": "words", "parameters": {"binary_data": True}}, {"name": "sum"}]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    async with serving(tmp_path, Adder()) as rank:
        url = f"{rank.base}/v2/models/table/infer"
        async with rank.session.post(url, data=head + b"".join(parts), headers=headers) as response:
            data, length = await response.read(), int(response.headers["Inference-Header-Content-Length"])
            assert (response.status, response.content_type) == (200, "application/octet-stream")
    found = json.loads(data[:length])
    assert data[length:] == parts[1]
    assert found["outputs"][0]["parameters"] == {"binary_data_size": len(parts[1])}
    assert found["outputs"][1]["data"] == [3.5, 7.0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": "a\nb"}, "id"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [X]}, "inputs"),
        ({"inputs": [X, WORD, WORD]}, "inputs.2.name"),
        ({"inputs": [{**X, "name": "y"}, WORD]}, "inputs.0.name"),
        ({"inputs": [{**X, "datatype": "FLOAT"}, WORD]}, "inputs.0.datatype"),
        ({"inputs": [{**X, "datatype": "BYTES"}, WORD]}, "inputs.0.datatype"),
        ({"inputs": [X, {**WORD, "datatype": "INT64"}]}, "inputs.1.datatype"),
        ({"inputs": [{**X, "shape": [4]}, WORD]}, "inputs.0.shape"),
        ({"inputs": [{**X, "shape": [1, 4]}, WORD]}, "inputs.0.shape"),
        ({"inputs": [{**X, "shape": [3, 2]}, WORD]}, "inputs.0.data"),
        ({"inputs": [{**X, "shape": [-1, 2]}, WORD]}, "inputs.0.shape.0"),
        ({"inputs": [{**X, "shape": [0, 2], "data": []}, WORD]}, "inputs.0.shape"),
        ({"inputs": [{**X, "data": ["1", 2, 3, 4]}, WORD]}, "inputs.0.data"),
        ({"inputs": [{**X, "data": [[1, 2], [3]]}, WORD]}, "inputs.0.data"),
        ({"inputs": [{**X, "data": None}, WORD]}, "inputs.0.data"),
        ({"inputs": [X, {**WORD, "data": ["a", 0]}]}, "inputs.1.data"),
        ({"inputs": [{**X, "shape": [1, 2], "data": [1, 2]}, WORD]}, "inputs"),
        ({"inputs": [{**X, "parameters": BINARY}, WORD]}, "inputs.0.parameters.binary_data_size"),
        ({"inputs": [{**X, "other": 1}, WORD]}, "inputs.0.other"),
        ({"outputs": [{"name": "other"}]}, "outputs.0.name"),
        ({"outputs": [{"name": "sum"}, {"name": "sum"}]}, "outputs.1.name"),
        ({"parameters": {"max_tokens": 4}}, "parameters.max_tokens"),
        (
            {"inputs": [X, {**WORD, "parameters": {"content_type": "base64"}}]},
            "inputs.1.parameters.content_type",
        ),
    ],
)  # fmt: skip
def test_a_bad_request_names_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as found:
        parse(json.dumps(body(**change)).encode(), {}, TABLE)
    assert (found.value.status, found.value.field) == (400, field)
    assert found.value.message.startswith(f"{field}: ")


def test_a_field_that_is_null_counts_as_absent() -> None:
    body = {"id": None, "inputs": [{**X, "parameters": None}, WORD], "parameters": None, "outputs": None}
    found = parse(json.dumps(body).encode(), {}, TABLE)
    assert (found.rows, found.outputs) == (2, ("sum",))


@pytest.mark.parametrize("length", ["x", "-1", "999"])
def test_a_bad_length_of_the_json_part_is_refused(length: str) -> None:
    with pytest.raises(RequestError, match="Inference-Header-Content-Length: must be"):
        parse(json.dumps(body()).encode(), {LENGTH: length.encode()}, TABLE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(body(inputs=[{**X, "data": [1, 2, 3, math.nan]}, WORD])).encode(), "write null for NaN"),
        (
            json.dumps(body(inputs=[{**WORD, "parameters": BINARY}])).encode() + b"\x01\0",
            "need the header Inference-Header-Content-Length",
        ),
        (json.dumps(body(inputs=[X, {**WORD, "data": ["a", None]}])).encode(), "needs texts, not null"),
        (json.dumps(body(inputs=[{**X, "data": ["1", "2", "3", "4"]}, WORD])).encode(), 'numbers, not "1"'),
    ],
)
def test_the_cause_of_a_bad_body_is_named(text: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        parse(text, {}, TABLE)


def test_bytes_that_belong_to_no_tensor_are_refused() -> None:
    text = json.dumps(body()).encode()
    with pytest.raises(RequestError, match="body: has 3 bytes after the last binary tensor"):
        parse(text + b"abc", {LENGTH: str(len(text)).encode()}, TABLE)


def test_the_only_input_may_have_any_name_and_its_numbers_must_fit() -> None:
    given = {"name": "input-0", "datatype": "INT64", "shape": [2], "data": [1, -128]}
    found = parse(json.dumps({"inputs": [given]}).encode(), {}, ONE)
    assert found.inputs["x"].tolist() == [1, -128] and found.inputs["x"].dtype == np.int8
    with pytest.raises(RequestError, match=r"inputs\.0\.data: datatype INT8 holds integers from -128 to 127"):
        parse(json.dumps({"inputs": [{**given, "data": [1, 128]}]}).encode(), {}, ONE)


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [True, False]),
        ("UINT64", [0, 2**64 - 1]),
        ("INT64", [-(2**63), 2**63 - 1]),
        ("FP16", [0.5, -2.0]),
        ("FP64", [1e300, None]),
        ("BYTES", ["", "ü"]),
    ],
)
def test_tensors_keep_their_values_as_json_and_as_bytes(datatype: str, values: list[Any]) -> None:
    array = from_json(values, datatype, (2,))
    assert str(to_json(array)) == str([math.nan if one is None else one for one in values])
    again = from_bytes(to_bytes(array), datatype, (2,))
    assert again.dtype == array.dtype and to_bytes(again) == to_bytes(array)


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [1, 0]),
        ("UINT8", [256, 0]),
        ("UINT8", [-1, 0]),
        ("INT64", [2**63, 0]),
        ("INT64", [1.0, 2]),
        ("INT64", [None, 2]),
        ("FP16", [1e5, 0]),
        ("FP64", [{}, 1]),
        ("FP64", [True, False]),
        ("BYTES", ["a", None]),
        ("BYTES", [["a"], "b"]),
    ],
)
def test_values_that_do_not_fit_their_datatype_are_refused(datatype: str, values: list[Any]) -> None:
    with pytest.raises(DataError):
        from_json(values, datatype, (2,))


@pytest.mark.parametrize(
    ("datatype", "data"), [("FP64", b"1234567"), ("BYTES", b"\x05\0\0\0ab"), ("BYTES", b"\1\0\0\0\xff")]
)
def test_incomplete_bytes_are_refused(datatype: str, data: bytes) -> None:
    with pytest.raises(DataError):
        from_bytes(data, datatype, (1,))


def test_numbers_that_json_has_not_become_null() -> None:
    wanted = TensorRequest(None, {}, ("sum",), frozenset(), 2)
    text, _ = render({}, wanted, TABLE, {"sum": np.array([np.nan, np.inf])})
    assert json.loads(text)["outputs"][0]["data"] == [None, None]


async def test_requests_that_wait_together_are_computed_together(tmp_path: Path) -> None:
    engine = Adder(free=False)
    async with serving(tmp_path, engine) as rank:
        first = asyncio.create_task(infer(rank, body()))
        await rank.until(lambda: len(engine.batch) == 1)
        others = [asyncio.create_task(infer(rank, body())) for _ in range(3)]
        await rank.until(lambda: rank.process.compute.waiting == 3)
        engine.permits.release(2)
        assert {code for code, _ in await asyncio.gather(first, *others)} == {200}
        assert engine.sizes == [1, 3]


async def test_an_error_of_one_inference_leaves_the_others(tmp_path: Path) -> None:
    async with serving(tmp_path, Adder()) as rank:
        found = await asyncio.gather(
            *(infer(rank, body(inputs=[X, {**WORD, "data": [word, "b"]}])) for word in ("bad", "broken", "a"))
        )
        assert [code for code, _ in found] == [400, 503, 200]
        assert found[0][1]["error"]["message"] == "the word bad"
        text = (await rank.get("/metrics"))[1]
        for reason in ("invalid", "error", "stop"):
            assert f'finished_reason="{reason}",job="default/job",model="echo"}} 1.0' in text
        assert 'convoy_inference_rows_total{engine="scripted",job="default/job",model="echo"} 2.0' in text
        assert rank.process.lifecycle.ready


async def test_an_inference_is_dropped_when_the_client_leaves(tmp_path: Path) -> None:
    engine = Adder(free=False)
    async with serving(tmp_path, engine) as rank:
        waiting = asyncio.create_task(infer(rank, body()))
        await rank.until(lambda: len(engine.batch) == 1)
        waiting.cancel()
        await rank.until(lambda: rank.process.front.in_flight == 0)
        engine.permits.release()
        await rank.until(lambda: not engine.batch)


async def test_routes_for_text_say_where_tensors_go(tmp_path: Path) -> None:
    async with serving(tmp_path, Adder()) as rank:
        code, found, _ = await rank.complete("a")
        assert code == 404 and "POST /v2/models/NAME/infer" in found["error"]["message"]


@pytest.mark.parametrize("shape", [(0, 2**63), (0, 2**62, 2**62)])
def test_a_huge_shape_without_values_is_an_error_of_the_client(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="too large"):
        from_json([], "FP64", shape)
