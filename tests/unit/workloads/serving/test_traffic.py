"""Tests of the totals that a serving rank reports to its agent."""

from __future__ import annotations

import asyncio
import itertools
import queue
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workloads.serving.harness import Scripted, serving

from convoy_workloads.runtime import link
from convoy_workloads.runtime.frames import MAX_FRAME, Decoder, encode
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.serving import traffic
from convoy_workloads.serving.traffic import BOUNDS, Latencies, Reporter, Totals


async def test_every_request_is_counted_once(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted()) as rank:
        assert (await rank.complete("abc", 4))[0] == 200
        assert (await rank.complete("abc", 3))[0] == 200
        assert (await rank.complete("abc", max_tokens=-1))[0] == 400
        message = rank.process.traffic()
    assert (message["queue"], message["inFlight"]) == (0, 0)
    assert (message["requests"], message["errors"], message["refused"]) == (2, 0, 1)
    assert message["tokens"] == 7
    assert sum(message["latency"]["counts"]) == sum(message["firstToken"]["counts"]) == 2
    assert message["computeSeconds"] > 0


async def test_running_requests_are_in_flight_and_others_wait(tmp_path: Path) -> None:
    engine = Scripted(room=1, free=False)
    async with serving(tmp_path, engine) as rank:
        several = [asyncio.create_task(rank.complete("abc", 1)) for _ in range(3)]
        await rank.until(lambda: rank.process.compute.waiting == 2)
        message = rank.process.traffic()
        assert (message["queue"], message["inFlight"]) == (2, 1)
        engine.free = True
        engine.permits.release(10)
        await asyncio.gather(*several)


def test_a_cancelled_request_has_no_latency_and_a_late_one_is_an_error() -> None:
    totals = Totals()
    for reason in ("stop", "length", "cancelled", "deadline", "error"):
        totals.ended(reason, 1.0)
    message = totals.message(0, 0)
    assert (message["requests"], message["errors"]) == (5, 2)
    assert sum(message["latency"]["counts"]) == 4


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.0011, 1.0, BOUNDS[-1], 1e6])
def test_a_latency_is_counted_below_its_upper_bound(seconds: float) -> None:
    latencies = Latencies()
    latencies.observe(seconds)
    place = latencies.counts.index(1)
    assert place == len(BOUNDS) or seconds <= BOUNDS[place]
    assert place == 0 or seconds > BOUNDS[place - 1]


def test_the_message_is_small() -> None:
    assert len(encode(Totals().message(0, 0))) < 4096 < MAX_FRAME


def test_a_rank_reports_its_load_then_its_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "PROGRESS_SECONDS", 0.05)
    heartbeat = HeartbeatWriter("")
    heartbeat.start()
    path = str(tmp_path / "agent")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(30)
        reporter = Reporter(RankContext(rank=0, incarnation=3, socket=path), heartbeat)
        reporter.traffic = lambda: {"type": "traffic", "thread": threading.current_thread().name}
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            decoder = Decoder()
            found: list[dict[str, Any]] = []

            def next_of(kind: str) -> dict[str, Any]:
                while True:
                    while found:
                        one = found.pop(0)
                        if one["type"] == kind:
                            return one
                    found.extend(decoder.feed(connection.recv(65536)))

            assert next_of("hello")["incarnation"] == 3
            assert abs(next_of("loading")["timeMs"] / 1000 - time.time()) < 30
            heartbeat.serve()
            assert next_of("traffic")["thread"] == "convoy-link"


def test_an_urgent_report_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "PROGRESS_SECONDS", 1000.0)
    monkeypatch.setattr(traffic, "URGENT_SECONDS", 1000.0)
    heartbeat = HeartbeatWriter("")
    heartbeat.start()
    heartbeat.serve()
    path = str(tmp_path / "agent")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(30)
        heard: queue.Queue[Any] = queue.Queue()
        reporter = Reporter(RankContext(incarnation=3, socket=path), heartbeat, heard.put)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            connection.sendall(encode({"type": "endpoints"}))
            assert heard.get(timeout=30) == {"type": "endpoints"}
            numbers = itertools.count()
            reporter.traffic = lambda: {"type": "traffic", "number": next(numbers)}
            reporter.report_now()
            reporter.report_now()
            decoder, found = Decoder(), []
            while {"type": "traffic", "number": 0} not in found:
                found.extend(decoder.feed(connection.recv(65536)))
            assert next(numbers) == 1, "two urgent reports in a row are one"


def test_an_engine_that_cannot_report_keeps_the_connection(capfd: pytest.CaptureFixture[str]) -> None:
    heartbeat = HeartbeatWriter("")
    reporter = Reporter(RankContext(), heartbeat)

    def broken() -> dict[str, Any]:
        raise RuntimeError("no usage")

    reporter.traffic = broken
    assert reporter.message() is None, "nothing is known before the load"
    heartbeat.serve()
    assert reporter.message() is None and reporter.message() is None
    assert capfd.readouterr().err.count("no usage") == 1
