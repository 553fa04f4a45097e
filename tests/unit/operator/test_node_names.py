"""Tests that agents can connect to one another for every allowed name of a node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from convoy_agents.channels import Identity, dial
from convoy_agents.enrol import signing_request
from convoy_agents.wire.callers import node_of
from convoy_crds.terms import agent_server_name
from convoy_operator.hub.ca import Authority, make_authority

NOW = datetime.now(UTC)
NODES = ["n", "10.example.com", "n" * 63, "n" * 64, "n" * 100 + ".z", "n" * 235, "n" * 236, "n" * 253]


def identity(authority: Authority, node: str) -> Identity:
    """Return a key and the certificate that the hub signs for a node's agent."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem, ends = authority.agent(signing_request(key, node), node, timedelta(hours=1), NOW)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(node, pem, private, authority.certificate_pem, ends.timestamp())


async def caller(request: bytes, context: Any) -> bytes:
    return node_of(context).encode()


async def call(channel: Any) -> bytes:
    found: bytes = await channel.unary_unary("/t/who")(b"", timeout=10)
    return found


async def test_agents_verify_each_other_for_node_names_of_any_length() -> None:
    authority = Authority(make_authority(NOW))
    handler: Any = grpc.unary_unary_rpc_method_handler(caller)
    for node in NODES:
        own = identity(authority, node)
        credentials = grpc.ssl_server_credentials([(own.key, own.certificate)], own.authority, True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", {"who": handler}),))
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        async with dial(f"127.0.0.1:{port}", agent_server_name(node), own.authority, own) as channel:
            assert await call(channel) == node.encode()
        await server.stop(0)


@pytest.mark.parametrize("node", NODES)
def test_the_server_name_of_an_agent_fits_a_dns_name(node: str) -> None:
    assert len(agent_server_name(node)) <= 253


async def test_a_certificate_of_another_agent_is_refused() -> None:
    authority = Authority(make_authority(NOW))
    long, other = identity(authority, "n" * 253), identity(authority, "n" * 252)
    credentials = grpc.ssl_server_credentials([(long.key, long.certificate)], long.authority, True)
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    async with dial(f"127.0.0.1:{port}", agent_server_name(other.node), other.authority, other) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(channel)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await server.stop(0)
