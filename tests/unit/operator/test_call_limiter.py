"""Tests of the limits of anonymous calls on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import hub_pb2_grpc
from convoy_operator.hub.call_limiter import MAX_CALLS_PER_ADDRESS, AnonymousCallLimiter

ENROL = "/convoy.wire.Enrolment/Enrol"


class Desk(hub_pb2_grpc.EnrolmentServicer):  # type: ignore[misc]  # generated without types
    async def Enrol(self, request: wire.EnrolRequest, context: Any) -> wire.EnrolReply:
        return wire.EnrolReply(node=request.token)


class Hub:
    """A server on TCP and on a local socket. It counts the calls that it refuses."""

    def __init__(self, folder: Path) -> None:
        self.refused = 0
        self.port = 0
        self.path = f"unix:{folder}/hub"

    def refuse(self) -> None:
        self.refused += 1

    @property
    def tcp(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def hub(folder: Path, seconds: float) -> AsyncIterator[Hub]:
    found = Hub(folder)
    server = grpc.aio.server(interceptors=[AnonymousCallLimiter(found.refuse, seconds)])
    hub_pb2_grpc.add_EnrolmentServicer_to_server(Desk(), server)
    found.port = server.add_insecure_port("127.0.0.1:0")
    server.add_insecure_port(found.path)
    await server.start()
    try:
        yield found
    finally:
        await server.stop(0)


async def enrol(where: str) -> str:
    async with grpc.aio.insecure_channel(where) as channel:
        stub = hub_pb2_grpc.EnrolmentStub(channel)
        try:
            reply = await stub.Enrol(wire.EnrolRequest(token="n"), timeout=10)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return str(reply.node)


def silent(channel: grpc.aio.Channel) -> Any:
    """Start a call that never sends its request, and return the call."""
    return channel.stream_unary(ENROL, wire.EnrolRequest.SerializeToString)(timeout=30)


async def test_idle_calls_of_one_address_do_not_block_other_addresses(tmp_path: Path) -> None:
    async with hub(tmp_path, 60) as found, grpc.aio.insecure_channel(found.tcp) as channel:
        calls = [silent(channel) for _ in range(MAX_CALLS_PER_ADDRESS)]
        for call in calls:
            await call.wait_for_connection()
        async with asyncio.timeout(10):
            while await enrol(found.tcp) != "RESOURCE_EXHAUSTED":
                pass  # some calls have not arrived yet
        assert await enrol(found.path) == "n"
        for call in calls:
            call.cancel()
        async with asyncio.timeout(10):
            while await enrol(found.tcp) != "n":
                pass  # some calls have not ended yet


async def test_a_call_without_a_request_times_out(tmp_path: Path) -> None:
    async with hub(tmp_path, 0.2) as found, grpc.aio.insecure_channel(found.tcp) as channel:
        call = silent(channel)
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert found.refused == 1
        assert await enrol(found.tcp) == "n"
        assert found.refused == 1
