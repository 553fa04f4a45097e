"""Probes that measure the network between two nodes. They use the agents' own gRPC channel with mutual TLS.

A result describes a single connection between two agents. If the network is faster than TLS encryption, the
result is the speed of encryption.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import grpc

from convoy_agents.channels import ChannelClosed, detect_close
from convoy_agents.enrol import describe
from convoy_agents.guard.sweep.finding import Finding, Outcome
from convoy_agents.guard.sweep.pair_responder import PairResponder
from convoy_agents.guard.sweep.probe import MAX_SAMPLES, Probe, sample_numbers
from convoy_agents.guard.sweep.runner import PairProbe
from convoy_agents.wire import hub_pb2, hub_pb2_grpc

LATENCY, BANDWIDTH = "pair-latency", "pair-bandwidth"

PIECE_BYTES = 2**20
TRANSFER_BYTES = 32 * PIECE_BYTES
"""Bytes of one bandwidth sample. This is a hundred times the data in flight on a fast network."""
WARM_UP = 20
"""Number of latency calls before the first sample."""
RETRY_SECONDS = 0.2
"""Seconds between retries of a call to the partner. Retries are needed because the partner may receive its
order later than this node, and because a closed channel must reconnect.
"""
CALL_SECONDS = 20.0
_NOT_READY = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED}

Dial = Callable[[hub_pb2.NodeAddress], Awaitable[hub_pb2_grpc.PairsStub]]


class PairProbes:
    """Runs pair probes as the measuring side, and owns the responder for the other side."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self.responder = PairResponder()

    def pair_probe(self, name: str, partner: hub_pb2.NodeAddress) -> PairProbe:
        """Return a function that runs a probe of the sweep `name` with this partner."""
        return partial(self._measure, name, partner)

    async def respond(self, name: str, partner: hub_pb2.NodeAddress, seconds: float) -> None:
        """Let the partner measure this node for at most `seconds`. Return earlier after the partner's last
        request, or if the partner's next request does not arrive in time.
        """
        await self.responder.serve(name, partner.node, seconds)

    async def release(self, name: str, partner: hub_pb2.NodeAddress) -> None:
        """Notify the partner that this node sends no more requests. If the call fails, return; the partner
        then stops after its timeout.
        """
        try:
            with detect_close():
                stub = await self._dial(partner)
                await stub.Echo(hub_pb2.EchoRequest(sweep=name, last=True), timeout=RETRY_SECONDS * 5)
        except (grpc.aio.AioRpcError, ChannelClosed, TimeoutError):
            return

    async def _measure(
        self, name: str, partner: hub_pb2.NodeAddress, probe: Probe, seconds: float
    ) -> Finding:
        try:
            async with asyncio.timeout(seconds):
                samples = await self._samples(name, partner, probe)
        except TimeoutError:
            return Finding(Outcome.TIMED_OUT, f"partner node {partner.node} did not respond in time")
        except grpc.aio.AioRpcError as error:
            return Finding(
                Outcome.FAILED, f"partner node {partner.node} at {partner.peer_address}: {describe(error)}"
            )
        return Finding(Outcome.MEASURED, samples=tuple(samples[:MAX_SAMPLES]))

    async def _samples(self, name: str, partner: hub_pb2.NodeAddress, probe: Probe) -> list[float]:
        """Return samples that were all measured on one connection. If the connection is closed, discard its
        samples and start again. The caller limits the time.
        """
        measure = {LATENCY: _latency, BANDWIDTH: _bandwidth}[probe.name]
        while True:
            try:
                with detect_close():
                    stub = await self._dial(partner)
                    await _wait_for_partner(stub, name)
                    return await measure(stub, name, probe.seconds)
            except ChannelClosed:
                await asyncio.sleep(RETRY_SECONDS)


async def _wait_for_partner(stub: hub_pb2_grpc.PairsStub, name: str) -> None:
    """Wait until the partner accepts calls for the sweep `name`."""
    while True:
        try:
            await stub.Echo(hub_pb2.EchoRequest(sweep=name), timeout=CALL_SECONDS)
            return
        except grpc.aio.AioRpcError as error:
            if error.code() not in _NOT_READY:
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def _latency(stub: hub_pb2_grpc.PairsStub, name: str, seconds: float) -> list[float]:
    """Return samples of the round-trip time in microseconds."""
    request = hub_pb2.EchoRequest(sweep=name)
    for _ in range(WARM_UP):
        await stub.Echo(request, timeout=CALL_SECONDS)
    samples = []
    for _ in sample_numbers(seconds):
        began = time.perf_counter()
        await stub.Echo(request, timeout=CALL_SECONDS)
        samples.append((time.perf_counter() - began) * 1e6)
    return samples


async def _bandwidth(stub: hub_pb2_grpc.PairsStub, name: str, seconds: float) -> list[float]:
    """Return samples of the rate of transfers to the partner in MB/s."""
    piece = hub_pb2.TransferPiece(sweep=name, data=bytes(PIECE_BYTES))

    async def pieces() -> AsyncIterator[hub_pb2.TransferPiece]:
        for _ in range(TRANSFER_BYTES // PIECE_BYTES):
            yield piece

    samples = []
    for count in sample_numbers(seconds, minimum=4):
        began = time.perf_counter()
        reply: hub_pb2.TransferReply = await stub.Transfer(pieces(), timeout=CALL_SECONDS)
        # Skip the first transfer, because it only warms up the connection.
        if count and reply.bytes == TRANSFER_BYTES:
            samples.append(TRANSFER_BYTES / (time.perf_counter() - began) / 1e6)
    return samples
