"""Tests of the metadata clients against a real HTTP server on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from convoy_agents.spot import endpoint
from convoy_agents.spot.aws import ACTION_PATH, REBALANCE_PATH, TOKEN_PATH, Ec2Metadata
from convoy_agents.spot.azure import COMPUTE_PATH, EVENTS_PATH, MAX_OTHERS, AzureScheduledEvents
from convoy_agents.spot.endpoint import Endpoint
from convoy_agents.spot.fake import fake_source
from convoy_agents.spot.gcp import MAINTENANCE_PATH, PREEMPTED_PATH, ComputeEngineMetadata
from convoy_agents.spot.source import Finding, NoticeSource, SourceError
from convoy_agents.spot.sources import REAL, source_named
from convoy_crds.spotpool_status import NoticeKind

ACTION = b'{"action": "terminate", "time": "2026-09-18T08:22:00Z"}'
ACTION_TIME = 1789719720.0
TOKEN = ("PUT", TOKEN_PATH)
Pages = dict[tuple[str, str], bytes]


def page(body: bytes, status: str = "200 OK", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode() + body


NONE = page(b"", "404 Not Found")
GOOGLE = "Metadata-Flavor: Google\r\n"
COMPUTE = page(b'{"name": "set_3", "resourceId": "/s/virtualMachineScaleSets/set/virtualMachines/3"}')


class Server:
    """A server with fixed pages. An empty page never ends, as of a service that hangs."""

    def __init__(self, pages: Mapping[tuple[str, str], bytes]) -> None:
        self.pages = dict(pages)
        self.requests: list[str] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head)
        method, path, _ = head.split(" ", 2)
        writer.write(self.pages.get((method, path), NONE))
        if not self.pages.get((method, path), NONE):
            await reader.read()
        writer.close()


@asynccontextmanager
async def serving(pages: Pages) -> AsyncIterator[tuple[Server, Endpoint]]:
    server = Server(pages)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server, Endpoint("127.0.0.1", server.port)
    finally:
        listener.close()


async def test_ec2_without_and_with_an_interruption() -> None:
    async with serving({TOKEN: page(b"token-1")}) as (server, where):
        source = Ec2Metadata(where)
        assert await source.poll() == ()
        assert "x-aws-ec2-metadata-token-ttl-seconds: 21600" in server.requests[0].lower()
        server.pages["GET", ACTION_PATH] = page(ACTION)
        server.pages["GET", REBALANCE_PATH] = page(b'{"noticeTime": "2026-09-18T08:00:00Z"}')
        interruption, rebalance = await source.poll()
        assert interruption == Finding(NoticeKind.PREEMPTION, ACTION_TIME)
        assert rebalance == Finding(NoticeKind.REBALANCE)
        assert len([one for one in server.requests if one.startswith("PUT")]) == 1, "the token is reused"
        assert "X-aws-ec2-metadata-token: token-1" in server.requests[-1]
        server.pages["GET", ACTION_PATH] = page(b"", "401 Unauthorized")
        with pytest.raises(SourceError, match="no longer valid") as raised:
            await source.poll()
        assert raised.value.findings == (Finding(NoticeKind.REBALANCE),)
        server.pages["GET", ACTION_PATH] = page(ACTION)
        assert await source.poll(), "a new token was requested"


async def test_compute_engine() -> None:
    pages = {("GET", PREEMPTED_PATH): page(b"TRUE\n", extra=GOOGLE)}
    pages["GET", MAINTENANCE_PATH] = page(b"NONE", extra=GOOGLE)
    async with serving(pages) as (server, where):
        assert await ComputeEngineMetadata(where).poll() == (Finding(),)
        assert "Metadata-Flavor: Google" in server.requests[0]
        server.pages["GET", PREEMPTED_PATH] = page(b"FALSE", extra=GOOGLE)
        server.pages["GET", MAINTENANCE_PATH] = page(b"TERMINATE_ON_HOST_MAINTENANCE", extra=GOOGLE)
        assert await ComputeEngineMetadata(where).poll() == (Finding(NoticeKind.REMOVAL),)
        server.pages["GET", PREEMPTED_PATH] = page(b"TRUE")
        with pytest.raises(SourceError, match="another server"):
            await ComputeEngineMetadata(where).poll()


async def test_azure_reports_its_own_machine_and_others_of_the_scale_set() -> None:
    events = b"""{"Events": [
        {"EventType": "Preempt", "Resources": ["set_3"], "EventStatus": "Scheduled",
         "NotBefore": "Fri, 18 Sep 2026 08:22:00 GMT"},
        {"EventType": "Preempt", "Resources": ["set_4", "other_1"], "EventStatus": "Started",
         "NotBefore": ""},
        {"EventType": "Freeze", "Resources": ["set_3"], "EventStatus": "Scheduled", "NotBefore": ""}]}"""
    pages = {("GET", COMPUTE_PATH): COMPUTE, ("GET", EVENTS_PATH): page(events)}
    async with serving(pages) as (server, where):
        own, other = await AzureScheduledEvents(where).poll()
        assert own == Finding(NoticeKind.PREEMPTION, ACTION_TIME)
        assert other.provider_id == "azure:///s/virtualMachineScaleSets/set/virtualMachines/4"
        assert "Metadata: true" in server.requests[0]


@pytest.mark.parametrize("time", ['"soon"', '"2026-09-18 25:00"', "7", '["Fri"]'])
async def test_an_event_of_azure_whose_time_cannot_be_read_counts_as_started(time: str) -> None:
    events = f"""{{"Events": [{{"EventType": "Preempt", "Resources": ["set_3"], "EventStatus": "Scheduled",
        "NotBefore": {time}}}]}}"""
    pages = {("GET", COMPUTE_PATH): COMPUTE, ("GET", EVENTS_PATH): page(events.encode())}
    async with serving(pages) as (_, where):
        assert await AzureScheduledEvents(where).poll() == (Finding(NoticeKind.PREEMPTION),)


async def test_azure_may_evict_all_machines_of_a_placement_group_at_once() -> None:
    def event(name: str, **more: str) -> dict[str, object]:
        text = "x" * 500
        return {
            "EventType": "Preempt",
            "Resources": [name],
            "EventStatus": "Started",
            "Description": text,
            **more,
        }

    events = [event(f"set_{number}") for number in range(100, 200)]
    events += [event("set_3"), event("other_1")]
    pages = {
        ("GET", COMPUTE_PATH): COMPUTE,
        ("GET", EVENTS_PATH): page(json.dumps({"Events": events}).encode()),
    }
    async with serving(pages) as (server, where):
        source = AzureScheduledEvents(where)
        own, *others = await source.poll()
        assert own == Finding()
        assert len(others) == len({one.provider_id for one in others}) == 100
        many = event("set_3", EventId="x") | {"Resources": [f"set_{number}" for number in range(1000)]}
        server.pages["GET", EVENTS_PATH] = page(json.dumps({"Events": [many]}).encode())
        own, *others = await source.poll()
        assert own == Finding()
        assert len(others) == MAX_OTHERS


async def test_a_part_that_fails_hides_no_notice_in_another_part() -> None:
    failed = page(b"", "503 Service Unavailable")
    pages: Pages = {TOKEN: page(b"t"), ("GET", ACTION_PATH): page(ACTION), ("GET", REBALANCE_PATH): failed}
    async with serving(pages) as (_, where):
        with pytest.raises(SourceError, match="status 503") as raised:
            await Ec2Metadata(where).poll()
        assert raised.value.findings == (Finding(NoticeKind.PREEMPTION, ACTION_TIME),)
    async with serving({("GET", PREEMPTED_PATH): page(b"TRUE", extra=GOOGLE)}) as (_, where):
        with pytest.raises(SourceError, match=r"maintenance-event: status 404") as raised:
            await ComputeEngineMetadata(where).poll()
        assert raised.value.findings == (Finding(),)
    events = b"""{"Events": [
        {"EventType": "Freeze", "EventStatus": "Scheduled"},
        {"EventType": "Preempt", "Resources": ["set_3"], "EventStatus": "Scheduled",
         "NotBefore": "Fri, 18 Sep 2026 08:22:00 GMT"}]}"""
    async with serving({("GET", COMPUTE_PATH): COMPUTE, ("GET", EVENTS_PATH): page(events)}) as (_, where):
        with pytest.raises(SourceError, match="list of Resources") as raised:
            await AzureScheduledEvents(where).poll()
        assert raised.value.findings == (Finding(NoticeKind.PREEMPTION, ACTION_TIME),)


@pytest.mark.parametrize(
    "reply",
    [
        page(b"<html>"),
        page(b"[]"),
        page(b'{"action": "dance", "time": "2026-09-18T08:22:00Z"}'),
        page(b'{"action": "stop"}'),
        page(b'{"action": "stop", "time": "soon"}'),
        page(b"", "500 Internal Server Error"),
        page(b"", "302 Found", "Location: http://127.0.0.1:1/\r\n"),
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 270_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000,
    ],
)
async def test_a_wrong_reply_is_an_error_and_no_notice(reply: bytes) -> None:
    async with serving({TOKEN: page(b"t"), ("GET", ACTION_PATH): reply}) as (_, where):
        with pytest.raises(SourceError):
            await Ec2Metadata(where).poll()


async def test_a_service_that_hangs_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_SECONDS", 0.05)
    async with serving({TOKEN: b""}) as (_, where):
        with pytest.raises(SourceError, match="no complete reply"):
            await Ec2Metadata(where).poll()


async def test_a_chunked_reply_is_read() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + ACTION[:5] + b"\r\n"
    chunked += f"{len(ACTION) - 5:x}\r\n".encode() + ACTION[5:] + b"\r\n0\r\n\r\n"
    async with serving({TOKEN: page(b"t"), ("GET", ACTION_PATH): chunked}) as (_, where):
        assert (await Ec2Metadata(where).poll())[0].deadline == ACTION_TIME


async def test_the_fake_source_reads_a_file_or_the_node_s_part_of_a_server(tmp_path: Path) -> None:
    source = fake_source(f"file://{tmp_path}/notice.json", "n0")
    assert await source.poll() == ()
    (tmp_path / "notice.json").write_bytes(ACTION)
    assert await source.poll() == (Finding(NoticeKind.PREEMPTION, ACTION_TIME),)
    pages = {("PUT", f"/p/n0{TOKEN_PATH}"): page(b"t"), ("GET", f"/p/n0{ACTION_PATH}"): page(ACTION)}
    async with serving(pages) as (server, _):
        found = await fake_source(f"http://127.0.0.1:{server.port}/p", "n0").poll()
        assert found == (Finding(NoticeKind.PREEMPTION, ACTION_TIME),)


def test_services_are_known_by_name_and_on_the_machine_s_own_link() -> None:
    made: list[NoticeSource] = [make() for make in REAL.values()]
    assert all(one._endpoint.link_local for one in made)  # type: ignore[attr-defined]
    assert source_named("None", "", "n0") is None
    for metadata, fake, why in (
        ("Fake", "", "agent.notices.fake"),
        ("Fake", "https://x", "neither"),
        ("Moon", "", "Moon"),
    ):
        with pytest.raises(ValueError, match=why):
            source_named(metadata, fake, "n0")
