"""Tests of the wait of the other ranks until rank 0 listens."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time

import pytest
from tests.ports import free_port

from convoy_workloads.runtime import rank_context, rendezvous


def place(rank: int) -> rank_context.RankContext:
    return dataclasses.replace(rank_context.from_environment({}), rank=rank, world=2)


@pytest.fixture
def port() -> int:
    """A TCP port on which no process listens."""
    return free_port()


def variables(port: int) -> dict[str, str]:
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def test_a_rank_waits_until_the_first_one_listens(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    tried = threading.Event()
    monkeypatch.setattr(time, "sleep", lambda seconds: tried.set())
    waits = threading.Thread(target=rendezvous.await_store, args=(place(1), variables(port)))
    waits.start()
    assert tried.wait(10), "it tries again while nobody listens"
    with socket.socket() as store:
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind(("127.0.0.1", port))
        store.listen()
        waits.join(rendezvous.LISTEN_SECONDS)
        assert not waits.is_alive()
        store.settimeout(10)
        store.accept()[0].close()


def test_the_wait_for_the_store_is_bounded(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(rendezvous, "LISTEN_SECONDS", 0.02)
    rendezvous.await_store(place(1), variables(port))


@pytest.mark.parametrize(("rank", "more"), [(0, {}), (1, {"MASTER_PORT": ""}), (1, {"MASTER_ADDR": ""})])
def test_other_ranks_and_settings_open_no_connection(
    monkeypatch: pytest.MonkeyPatch, port: int, rank: int, more: dict[str, str]
) -> None:
    monkeypatch.delattr(socket, "create_connection")
    rendezvous.await_store(place(rank), {**variables(port), **more})
