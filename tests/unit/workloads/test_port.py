from __future__ import annotations

import socket

import pytest

from convoy_workloads.launcher.port import RendezvousPort


def listen(port: int) -> None:
    with socket.socket() as one:
        one.bind(("", port))
        one.listen()


def test_a_port_is_held_until_its_incarnation_starts() -> None:
    port = RendezvousPort()
    assert not port.picked
    assert port.pick(2)
    assert port.picked
    message = port.message()
    assert port.pick(2)
    assert port.message() == message
    port.release(1)
    with pytest.raises(OSError, match="in use"):
        listen(message["port"])
    port.release(2)
    listen(message["port"])


def test_the_newest_incarnation_holds_the_port() -> None:
    port = RendezvousPort()
    assert port.pick(2)
    before = port.message()["port"]
    assert port.pick(3)
    assert port.message()["incarnation"] == 3
    assert not port.pick(2)
    listen(before)
    port.release(3)
