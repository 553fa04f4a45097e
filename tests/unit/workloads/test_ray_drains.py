"""Tests of the reports about nodes that another program drains in Ray. Nothing here needs Ray."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from convoy_workloads.ray_cluster.drain_reports import LATE_SECONDS, DrainReports, DrainWatch
from convoy_workloads.ray_cluster.private import Drain, ForeignDrains
from convoy_workloads.runtime.node_notice import MAX_DEADLINE_SECONDS, draining_message

NEVER = float("inf")
NOW = 1000.0
A, B = Drain("a", "10.0.0.1", NOW + 30), Drain("b", "10.0.0.2", NOW + 60)


@pytest.mark.parametrize(
    ("polls", "reported"),
    [
        ([[]], []),
        ([[A]], [("10.0.0.1", 30.0)]),
        ([[A], [A], [A]], [("10.0.0.1", 30.0)]),
        ([[A], [A, B]], [("10.0.0.1", 30.0), ("10.0.0.2", 60.0)]),
        ([[A], [], [A]], [("10.0.0.1", 30.0)]),  # a poll failed
        ([[A], [Drain("a", A.address, NOW + 30.5)]], [("10.0.0.1", 30.0)]),
        ([[A], [Drain("a", A.address, NOW + 10)]], [("10.0.0.1", 30.0), ("10.0.0.1", 10.0)]),
        ([[A], [Drain("again", A.address, NOW + 30)]], [("10.0.0.1", 30.0)] * 2),
        ([[Drain("a", A.address, NEVER)]] * 2, [("10.0.0.1", MAX_DEADLINE_SECONDS)]),
        ([[Drain("a", A.address, NOW + 1e9)]], [("10.0.0.1", MAX_DEADLINE_SECONDS)]),
        ([[Drain("a", A.address, NOW - 1)]], [("10.0.0.1", 0.0)]),
        ([[Drain("a", A.address, NOW - LATE_SECONDS - 1)]], []),
    ],
)
def test_each_drain_is_reported_once_and_again_if_its_deadline_changes(
    polls: list[list[Drain]], reported: list[tuple[str, float]]
) -> None:
    found: list[tuple[str, float]] = []
    reports = DrainReports(lambda node, seconds: found.append((node, seconds)), lambda: NOW)
    for drains in polls:
        reports.update(drains)
    assert found == reported
    for node, seconds in found:
        draining_message(node, seconds, "Ray")


def test_the_watch_polls_until_it_is_stopped() -> None:
    reported, found = threading.Event(), []

    def report(node: str, seconds: float) -> None:
        found.append(node)
        reported.set()

    watch = DrainWatch(lambda: [Drain("a", "10.0.0.1", NEVER)], report)
    watch.start()
    assert reported.wait(30)
    watch.stop()
    assert found == ["10.0.0.1"]
    assert "convoy-drains" not in {one.name for one in threading.enumerate()}


class Client:
    """The control service of Ray, as far as it is asked for drains."""

    def __init__(self, address: str) -> None:
        assert address == "10.0.0.9:6379"

    def get_draining_nodes(self, timeout: float) -> dict[str, int]:
        return {"aa": 5000, "bb": 0, "cc": 7000, "dd": 9000}

    def internal_kv_keys(self, prefix: bytes, namespace: bytes, timeout: float) -> list[bytes]:
        return [b"cc"]

    def get_all_node_info(self, timeout: float) -> dict[bytes, Any]:
        names = ("aa", "bb", "cc", "ee")
        return {bytes.fromhex(one): SimpleNamespace(node_manager_address=f"10.0.0.{one}") for one in names}


class Silent(Client):
    def get_all_node_info(self, timeout: float) -> dict[bytes, Any]:
        raise RuntimeError("timed out")


@pytest.mark.parametrize(
    ("client", "found"),
    [(Client, [Drain("aa", "10.0.0.aa", 5.0), Drain("bb", "10.0.0.bb", NEVER)]), (Silent, [])],
)
def test_drains_of_convoy_and_unknown_nodes_are_left_out(
    monkeypatch: pytest.MonkeyPatch, client: type[Client], found: list[Drain]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "ray._raylet", SimpleNamespace(GcsClient=client))
    assert ForeignDrains("10.0.0.9:6379").poll() == found
