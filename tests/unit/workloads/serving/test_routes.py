"""Tests of the other routes: KServe V2, metrics, authentication, and the admin socket."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.workloads.serving.harness import Scripted, serving

from convoy_crds import terms
from convoy_workloads.runtime.errors import ParamsError
from convoy_workloads.serving import settings
from convoy_workloads.serving.auth import TokenFile
from convoy_workloads.serving.lifecycle import State
from convoy_workloads.serving.protocol import ModelError

INPUT = {"name": "text_input", "shape": [2], "datatype": "BYTES", "data": ["ab", "x"]}


async def test_texts_are_continued_by_the_open_inference_protocol(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        for path in ("/v2/models/echo/infer", "/v2/models/echo/versions/1/infer"):
            body = {
                "id": "mine",
                "inputs": [INPUT],
                "parameters": {"max_tokens": 3, "seed": 4, "stop": ["x"]},
            }
            code, found, headers = await rank.post(path, body)
            assert (code, headers["x-request-id"]) == (200, "mine")
            output = {"name": "text_output", "datatype": "BYTES", "shape": [2], "data": ["aba", ""]}
            assert found == {"model_name": "echo", "model_version": "1", "id": "mine", "outputs": [output]}
        assert [one.sampling.seed for one in rank.engine.admitted] == [4] * 4


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"id": "é"}, 400, "id"),
        ({"inputs": []}, 400, "inputs"),
        ({"inputs": [{**INPUT, "name": "other"}]}, 400, "inputs.0.name"),
        ({"inputs": [{**INPUT, "datatype": "FP32"}]}, 400, "inputs.0.datatype"),
        ({"inputs": [{**INPUT, "shape": [3]}]}, 400, "inputs.0.shape"),
        ({"inputs": [{**INPUT, "data": ["x" * 70, "x"]}]}, 400, "inputs.0.data.0"),
        ({"parameters": {"max_tokens": 99}}, 400, "max_tokens"),
        ({"parameters": {"min_tokens": 9}}, 400, "parameters.min_tokens"),
        ({"other": 1}, 400, "other"),
    ],
)
async def test_a_bad_inference_request_names_its_field(
    change: dict[str, Any], status: int, field: str, tmp_path: Path
) -> None:
    async with serving(tmp_path) as rank:
        code, body, _ = await rank.post("/v2/models/echo/infer", {"inputs": [INPUT], **change})
        assert (code, body["error"]["param"]) == (status, field)


async def test_a_field_that_is_null_counts_as_absent(tmp_path: Path) -> None:
    body = {"id": None, "outputs": None, "inputs": [{**INPUT, "parameters": None}]}
    async with serving(tmp_path) as rank:
        for parameters in (None, {"max_tokens": None, "stop": None}):
            code, found, _ = await rank.post("/v2/models/echo/infer", {**body, "parameters": parameters})
            assert code == 200 and found["outputs"][0]["data"] == ["ab" * 8, "x" * 16]


async def test_the_model_is_described_by_the_open_inference_protocol(tmp_path: Path) -> None:
    async with serving(tmp_path, wait=False) as rank:
        assert (await rank.get("/v2/health/live"))[0] == 200
        for path in ("/v2/health/ready", "/v2/models/echo/ready", "/v2/models/echo"):
            assert (await rank.get(path))[0] == 503
        rank.engine.may_load.set()
        await rank.until(lambda: rank.process.lifecycle.ready)
        for path in ("/v2", "/v2/health/ready", "/v2/models/echo/ready"):
            assert (await rank.get(path))[0] == 200
        body = json.loads((await rank.get("/v2/models/echo"))[1])
        assert body["inputs"] == [{"name": "text_input", "datatype": "BYTES", "shape": [-1]}]
        for path in ("/v2/models/other", "/v2/models/echo/versions/2", "/v2/models/other/ready"):
            assert (await rank.get(path))[0] == 404


async def test_an_inference_stops_when_the_client_leaves(tmp_path: Path) -> None:
    engine = Scripted(free=False)
    async with serving(tmp_path, engine) as rank:
        waiting = asyncio.create_task(rank.post("/v2/models/echo/infer", {"inputs": [INPUT]}))
        await rank.until(lambda: len(engine.running) == 2)
        waiting.cancel()
        await rank.until(lambda: rank.process.front.in_flight == 0)
        engine.permits.release()
        await rank.until(lambda: not engine.running)


async def test_requests_need_the_token_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with serving(tmp_path, token_file=file) as rank:

        async def status(path: str, header: str | None) -> int:
            headers = {} if header is None else {"Authorization": header}
            if path.endswith(("completions", "infer")):
                body = {"inputs": [INPUT]} if path.endswith("infer") else {"prompt": "a", "max_tokens": 1}
                return (await rank.post(path, body, headers))[0]
            return (await rank.get(path, headers))[0]

        guarded = [
            "/v1/completions",
            "/v1/models",
            "/v1/models/echo",
            "/v2/models/echo",
            "/v2/models/echo/infer",
        ]
        for path in guarded:
            for header in (
                None,
                "",
                "Bearer",
                "Bearer second",
                "Basic first",
                "Bearer first2",
                "Bearer firs",
            ):
                assert await status(path, header) == 401
            assert await status(path, "Bearer first") == 200
            assert await status(path, "bearer first") == 200
        for path in ("/healthz", "/readyz", "/metrics", "/v2/health/ready"):
            assert await status(path, None) == 200
        # The kubelet replaces the file of a Secret.
        other = tmp_path / "other"
        other.write_text("second")
        other.replace(file)
        assert await status("/v1/completions", "Bearer first") == 401
        assert await status("/v1/completions", "Bearer second") == 200
        # A file that is absent or empty for a moment changes nothing.
        file.unlink()
        assert await status("/v1/completions", "Bearer second") == 200
        file.write_text("")
        assert await status("/v1/completions", "Bearer second") == 200
        assert await status("/v1/completions", "Bearer ") == 401


@pytest.mark.parametrize("content", [None, b"", b" \n", b"x" * 5000])
def test_an_unusable_token_file_is_refused(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ParamsError, match="the token file"):
        TokenFile(file)


def values(text: str) -> dict[str, float]:
    """Return the samples without buckets, by name and the last label if it is a reason."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["engine"] == "scripted" and sample.labels["model"] == "echo"
            assert sample.labels["job"] == "default/job"
            reason = sample.labels.get("finished_reason") or sample.labels.get("reason")
            if "le" not in sample.labels:
                found[f"{sample.name} {reason}" if reason else sample.name] = sample.value
    return found


async def test_requests_are_counted(tmp_path: Path) -> None:
    engine = Scripted(room=1)
    async with serving(tmp_path, engine) as rank:
        await rank.complete("abc", 5)
        await rank.complete("abc", 5, stop="c")
        await rank.complete("abc", 0)
        engine.free = False
        running = asyncio.create_task(rank.complete("abc", 2))
        await rank.until(lambda: len(engine.admitted) == 3)
        waiting = asyncio.create_task(rank.complete("abc", 2))
        await rank.until(lambda: rank.process.compute.waiting == 1)
        busy = values((await rank.get("/metrics"))[1])
        engine.free = True
        engine.permits.release()
        await asyncio.gather(running, waiting)
        found = values((await rank.get("/metrics"))[1])
    assert busy["convoy_num_requests_running"] == busy["convoy_num_requests_waiting"] == 1
    assert busy["convoy_inference_pending_requests"] == 2 and busy["convoy_kv_cache_usage_perc"] == 1
    assert found["convoy_request_success_total length"] == 3
    assert found["convoy_request_success_total stop"] == 1
    assert found["convoy_requests_refused_total invalid"] == 1
    assert found["convoy_prompt_tokens_total"] == 12
    assert found["convoy_generation_tokens_total"] == 5 + 3 + 2 + 2
    assert found["convoy_prefix_cache_hit_tokens_total"] == 12
    for name, count in (
        ("convoy_time_to_first_token_seconds", 4),
        ("convoy_e2e_request_latency_seconds", 4),
        ("convoy_request_queue_time_seconds", 4),
        ("convoy_inter_token_latency_seconds", 8),
    ):
        assert found[f"{name}_count"] == count
    assert found["convoy_inference_compute_seconds_total"] > 0
    assert found["convoy_num_requests_running"] == found["convoy_inference_pending_requests"] == 0


async def test_admin_routes_are_only_on_the_socket_of_the_pod(tmp_path: Path) -> None:
    engine = Scripted(free=False)
    async with serving(tmp_path, engine) as rank:
        mode = rank.admin.stat().st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
        for path in ("/status", "/drain", "/reload", "/cancel/mine"):
            assert (await rank.get(path))[0] == 404 and (await rank.post(path, {}))[0] == 404
        headers = {"X-Request-Id": "mine"}
        running = asyncio.create_task(rank.post("/v1/completions", {"prompt": "abc"}, headers))
        await rank.until(lambda: bool(engine.running))
        code, found = await rank.admin_call("GET", "/status")
        assert (code, found["state"], found["requests"], found["running"]) == (200, "serving", 1, 1)
        assert await rank.admin_call("POST", "/cancel/other") == (404, {"cancelled": 0})
        assert await rank.admin_call("POST", "/cancel/mine") == (200, {"cancelled": 1})
        engine.permits.release()
        code, body, _ = await running
        assert (code, body["error"]["code"]) == (503, "cancelled")


async def test_a_reload_waits_for_the_running_requests(tmp_path: Path) -> None:
    engine = Scripted(free=False)
    async with serving(tmp_path, engine) as rank:
        running = asyncio.create_task(rank.complete("abc", 2))
        await rank.until(lambda: bool(engine.running))
        reload = asyncio.create_task(rank.admin_call("POST", "/reload"))
        await rank.until(lambda: bool(rank.process.compute._reload))
        waiting = asyncio.create_task(rank.complete("x", 1))
        await rank.until(lambda: rank.process.compute.waiting == 1)
        engine.free = True
        engine.permits.release()
        assert (await running)[0] == 200
        assert await reload == (200, {"model": "echo", "source": "load 2"})
        assert (await waiting)[0] == 200
        assert engine.loaded == 2 and len(engine.admitted) == 2


async def test_a_failed_reload_ends_the_process(tmp_path: Path) -> None:
    engine = Scripted()
    async with serving(tmp_path, engine) as rank:
        engine.loads = [ModelError("no model")]
        code, found = await rank.admin_call("POST", "/reload")
        assert (code, found) == (500, {"error": "no model"})
        assert await rank.ended() == 1


async def test_a_drain_can_be_started_by_an_administrator(tmp_path: Path) -> None:
    async with serving(tmp_path, endpoint_lag_seconds=3600.0) as rank:
        assert await rank.admin_call("POST", "/drain") == (200, {"state": "leaving"})
        assert (await rank.admin_call("POST", "/reload"))[0] == 409
        assert rank.process.lifecycle.state is State.LEAVING


def test_settings_come_from_the_environment() -> None:
    found = settings.from_environment(
        {
            terms.ENV_SERVING_PORT: "9000",
            terms.ENV_SERVING_HOST: "::1",
            terms.ENV_DRAIN_SECONDS: "5",
            terms.ENV_ENDPOINT_LAG_SECONDS: "0.5",
            terms.ENV_MODEL_PATH: "/model",
            terms.ENV_AUTH_TOKEN_FILE: "/token",
            terms.ENV_ADMIN_SOCKET: "/admin",
        }
    )
    assert found == settings.Settings(9000, "::1", 5.0, 0.5, Path("/model"), Path("/token"), Path("/admin"))
    assert settings.from_environment({}) == settings.Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (terms.ENV_SERVING_PORT, "0"),
        (terms.ENV_SERVING_PORT, "70000"),
        (terms.ENV_SERVING_PORT, "http"),
        (terms.ENV_SERVING_PORT, "80.5"),
        (terms.ENV_DRAIN_SECONDS, "-1"),
        (terms.ENV_ENDPOINT_LAG_SECONDS, "nan"),
    ],
)
def test_a_malformed_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ParamsError, match=name):
        settings.from_environment({name: value})
