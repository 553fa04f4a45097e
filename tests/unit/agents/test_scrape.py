"""Tests of reading the metrics of serving pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from convoy_agents import metrics
from convoy_agents.pods import assignment
from convoy_agents.pods.assignment import Assignment, AssignmentError, Member, Scrape
from convoy_agents.pods.messages import RankUpdate
from convoy_agents.pods.state import PodState, RankState
from convoy_agents.traffic import fetch as fetching
from convoy_agents.traffic.buffer import TrafficBuffer
from convoy_agents.traffic.fetch import MAX_BYTES, FetchError, fetch
from convoy_agents.traffic.scrape import ScrapeError, read
from convoy_agents.traffic.scraper import Scraper
from convoy_agents.traffic.totals import MAX_COUNT
from convoy_agents.wire import hub_pb2

VLLM = """\
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting_by_priority{engine="0"} 99.0
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 10.0
vllm:request_success_total{engine="0",finished_reason="error",model_name="m"} 2.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e3
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.5",model_name="m"} 4.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="1.0",model_name="m"} 9.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 12.0
vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 12.0
process_cpu_seconds_total 7.25
"""
LONELY = Assignment(
    pod_uid="u",
    job_uid="j",
    job="default/llm",
    incarnation=3,
    slot=0,
    rank_offset=0,
    processes=1,
    world_size=1,
    master_addr="10.0.0.5",
    master_port=29500,
    hang_seconds=600,
    role="server",
    replica=0,
    command=("vllm",),
    members=(Member(0, "u", "n", "n:1", 1),),
)


def test_the_metrics_of_vllm_become_totals() -> None:
    found = read(VLLM, "u", 3)
    assert (found.pod_uid, found.incarnation) == ("u", 3)
    assert (found.queue, found.in_flight, found.requests, found.errors) == (3, 5, 12, 2)
    assert (found.tokens, found.cpu_seconds) == (1500, 7.25)
    assert (list(found.latency.bounds), list(found.latency.counts)) == ([0.5, 1.0], [4, 5, 3])
    assert not found.first_token.bounds


def test_the_own_names_are_read_too() -> None:
    found = read(VLLM.replace("vllm:", "convoy_") + "convoy_requests_refused_total 6\n", "u", 3)
    assert (found.queue, found.refused) == (3, 6)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "exports neither"),
        ("process_cpu_seconds_total 1\n", "exports neither"),
        ("<html></html>", "exports neither"),
        ('vllm:num_requests_waiting{engine="0"} three\n', "invalid metrics"),
    ],
)
def test_other_texts_are_refused(text: str, why: str) -> None:
    with pytest.raises(ScrapeError, match=why):
        read(text, "u", 1)


def test_values_that_are_no_numbers_of_requests_count_as_none() -> None:
    found = read(
        'vllm:num_requests_waiting NaN\nvllm:request_success_total{finished_reason="stop"} -4\n', "u", 1
    )
    assert (found.queue, found.requests) == (0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "convoy_num_requests_running 1e308\n" * 2 + 'convoy_num_requests_running{a="b"} 1e308\n',
        'convoy_num_requests_running{, =\te=\t}"\n',
        "convoy_num_requests_running{a=\n",
    ],
)
def test_no_text_of_a_program_ends_the_scraper(text: str) -> None:
    try:
        found = read(text, "u", 1)
    except ScrapeError:
        return
    assert found.in_flight <= MAX_COUNT


def test_a_histogram_with_too_many_buckets_is_left_out() -> None:
    name = "vllm:e2e_request_latency_seconds_bucket"
    lines = [f'{name}{{le="{bound}"}} 1' for bound in [*range(1, 66), "+Inf"]]
    assert not read("\n".join(lines) + "\n", "u", 1).latency.bounds


@asynccontextmanager
async def server(*parts: bytes, hang: bool = False) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
        if hang:
            await reader.read()
        writer.close()

    made = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with made:
        yield made.sockets[0].getsockname()[1]


OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"


async def test_a_page_is_fetched() -> None:
    async with server(OK, b"a 1\n", b"b 2\n") as port:
        assert await fetch("127.0.0.1", port, "/metrics") == "a 1\nb 2\n"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ((b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\n\r\n",), "status 302 instead of 200"),
        ((b"HTTP/1.1 500 No\r\n\r\n",), "status 500"),
        ((b"SSH-2.0\r\n",), "not HTTP"),
        ((b"",), "not HTTP"),
        ((OK, b"x" * (MAX_BYTES + 1)), "exceeds"),
    ],
)
async def test_other_responses_are_errors(parts: tuple[bytes, ...], why: str) -> None:
    async with server(*parts) as port:
        with pytest.raises(FetchError, match=why):
            await fetch("127.0.0.1", port, "/metrics")


async def test_a_slow_response_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FETCH_SECONDS", 0.05)
    async with server(OK, hang=True) as port:
        with pytest.raises(FetchError, match="no complete response"):
            await fetch("127.0.0.1", port, "/metrics")


async def test_a_closed_port_is_an_error() -> None:
    async with server() as port:
        pass
    with pytest.raises(FetchError, match="no connection"):
        await fetch("127.0.0.1", port, "/metrics")


def running(plan: Assignment, state: str = "RUNNING", **fields: Any) -> PodState:
    ranks = {0: RankState(RankUpdate(plan.incarnation, 0, state))}
    return PodState("u", assignment=plan, ranks=ranks, **{"connected": True, **fields})


async def test_only_running_pods_with_metrics_are_scraped() -> None:
    found: list[hub_pb2.PodTraffic] = []
    async with server(OK, VLLM.encode()) as port:
        plan = replace(LONELY, scrape=Scrape("127.0.0.1", port, "/metrics"))
        pods = [
            running(plan),
            running(plan, "STARTING"),
            running(plan, connected=False),
            running(LONELY),
            PodState("v"),
        ]
        await Scraper(lambda: pods, found.append).scrape_all()
    assert [(one.pod_uid, one.incarnation, one.queue) for one in found] == [("u", 3, 3)]


async def test_a_pod_that_has_left_during_its_scrape_leaves_nothing() -> None:
    found: list[hub_pb2.PodTraffic] = []
    async with server(OK, VLLM.encode()) as port:
        plan = replace(LONELY, scrape=Scrape("127.0.0.1", port, "/metrics"))
        pods = iter([[running(plan)], []])
        await Scraper(lambda: next(pods), found.append).scrape_all()
    assert found == []


async def test_a_failed_scrape_is_counted_and_stores_nothing() -> None:
    def failed() -> float:
        return metrics.REGISTRY.get_sample_value("convoy_agent_scrapes_total", {"result": "failed"}) or 0

    before, found = failed(), []  # type: ignore[var-annotated]
    async with server(OK, b"nothing\n") as port:
        plan = replace(LONELY, scrape=Scrape("127.0.0.1", port, "/metrics"))
        await Scraper(lambda: [running(plan)], found.append).scrape_all()
    assert (failed(), found) == (before + 1, [])


def test_the_reports_of_a_rank_win() -> None:
    buffer = TrafficBuffer()
    buffer.add_scraped(hub_pb2.PodTraffic(pod_uid="u", requests=1))
    buffer.add_scraped(hub_pb2.PodTraffic(pod_uid="u", requests=2))
    buffer.add(hub_pb2.PodTraffic(pod_uid="u", requests=3))
    buffer.add_scraped(hub_pb2.PodTraffic(pod_uid="u", requests=4))
    message = buffer.pop_message(0.0)
    assert message is not None and [one.requests for one in message.pods] == [3]


@pytest.mark.parametrize(
    ("address", "port", "path", "why"),
    [
        ("169.254.169.254", 80, "/", "not the address of a pod"),
        ("127.0.0.1", 80, "/", "not the address of a pod"),
        ("::1", 80, "/", "not the address of a pod"),
        ("example.com", 80, "/", "not an IP address"),
        ("10.0.0.5", 0, "/", "not a port and a path"),
        ("10.0.0.5", 80, "/a b", "not a port and a path"),
        ("10.0.0.5", 80, "/\r\nX: y", "not a port and a path"),
    ],
)
def test_a_scrape_of_anything_but_a_pod_is_refused(address: str, port: int, path: str, why: str) -> None:
    plan = replace(LONELY, scrape=Scrape(address, port, path))
    with pytest.raises(AssignmentError, match=why):
        assignment.from_json(plan.to_json())


def test_the_scrape_survives_the_wire_and_the_state_file() -> None:
    place = Scrape("10.0.0.5", 8000, "/metrics")
    stored = assignment.from_json(replace(LONELY, scrape=place).to_json())
    assert stored.scrape == place
    scrape = hub_pb2.Scrape(address="10.0.0.5", port=8000, path="/metrics")
    message = hub_pb2.Assignment(
        pod_uid="u",
        job_uid="j",
        incarnation=3,
        processes=1,
        world_size=1,
        members=[hub_pb2.Member(slot=0, pod_uid="u", node="n")],
        scrape=scrape,
    )
    assert assignment.from_wire(message).scrape == place
