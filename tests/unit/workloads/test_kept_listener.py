"""Tests of the listening socket that the launcher keeps for the next rank."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from convoy_crds import terms
from convoy_workloads.launcher.kept_listener import KeptListener
from convoy_workloads.serving import kept_socket
from convoy_workloads.serving.listener import bind

T = TypeVar("T")


@contextlib.asynccontextmanager
async def kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KeptListener]:
    service = KeptListener()
    service.start(str(folder / "listener"))
    monkeypatch.setenv(terms.ENV_KEPT_LISTENER, service.path)
    try:
        yield service
    finally:
        service.close()


async def as_rank(act: Callable[[], T]) -> T:
    """Run what a rank does, beside the launcher's event loop."""
    return await asyncio.to_thread(act)


def bound() -> socket.socket:
    """Return a socket like that of a rank that starts."""
    return asyncio.run(bind("127.0.0.1", 0))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


async def test_a_connection_waits_for_the_next_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with kept(tmp_path, monkeypatch):
        first = await as_rank(bound)
        port = first.getsockname()[1]
        first.close()  # The rank dies.
        with connect(port) as client:
            client.sendall(b"hello")
            following = await as_rank(lambda: asyncio.run(bind("127.0.0.1", port)))
            following.settimeout(5)
            connection, _ = following.accept()
            assert connection.recv(5) == b"hello"
            connection.close()
        following.close()


async def test_a_rank_that_ends_as_asked_refuses_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(tmp_path, monkeypatch):
        first = await as_rank(bound)
        port = first.getsockname()[1]
        await as_rank(kept_socket.drop)
        first.close()
        with pytest.raises(ConnectionRefusedError):
            connect(port)
        assert await as_rank(lambda: kept_socket.fetch("127.0.0.1", port)) is None


@pytest.mark.parametrize(("host", "more"), [("127.0.0.1", 1), ("0.0.0.0", 0)])
async def test_the_socket_of_another_address_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, more: int
) -> None:
    async with kept(tmp_path, monkeypatch):
        with await as_rank(bound) as first:
            port = first.getsockname()[1]
            assert await as_rank(lambda: kept_socket.fetch(host, port + more)) is None
            with await as_rank(lambda: kept_socket.fetch("127.0.0.1", port) or socket.socket()) as again:
                assert again.getsockname()[1] == port
                assert not again.get_inheritable()


async def test_without_a_successor_connections_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(tmp_path, monkeypatch) as service:
        first = await as_rank(bound)
        port = first.getsockname()[1]
        service.expect_successor(60)
        following = await as_rank(lambda: kept_socket.fetch("127.0.0.1", port))
        assert following is not None and service._expiry is None, "the successor has come"
        first.close()
        following.close()
        connect(port).close()
        service.expect_successor(0)
        with pytest.raises(ConnectionRefusedError):
            connect(port)


@pytest.mark.parametrize("request_", [b"", b"X", b"K"])
async def test_what_is_no_request_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    """A client that sends nothing, an unknown request, and KEEP with a descriptor that is no socket."""
    async with kept(tmp_path, monkeypatch) as service:
        first = await as_rank(bound)
        before = descriptors()

        def send() -> None:
            with socket.socket(socket.AF_UNIX) as client, (tmp_path / "file").open("w") as file:
                client.connect(service.path)
                if request_:
                    socket.send_fds(client, [request_], [file.fileno()])
                    client.recv(1)

        await as_rank(send)
        while service._clients:  # noqa: ASYNC110 - the event loop handles the client's end
            await asyncio.sleep(0.001)
        assert descriptors() == before
        with await as_rank(lambda: kept_socket.fetch(*first.getsockname()) or socket.socket()) as again:
            assert again.getsockname() == first.getsockname()
        first.close()


async def test_the_end_of_the_launcher_refuses_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(tmp_path, monkeypatch):
        first = await as_rank(bound)
        port = first.getsockname()[1]
        first.close()
    with pytest.raises(ConnectionRefusedError):
        connect(port)
    assert kept_socket.fetch("127.0.0.1", port) is None, "no launcher responds"


def test_a_rank_without_a_launcher_binds_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(terms.ENV_KEPT_LISTENER, raising=False)
    with bound() as listener:
        assert listener.getsockname()[1] > 0
