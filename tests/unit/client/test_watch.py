"""Tests that a job is listed, watched and listed again until a deadline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from convoy.client import awaited
from convoy.client.errors import ApiError, Forbidden, Unreachable, WaitTimeout
from convoy.client.training_jobs import TrainingJobs
from convoy.client.watch import WATCH_SECONDS, watch_object


class Server:
    """An API server with scripted rounds. In each round the client lists and then watches. Both requests
    may raise an error.
    """

    namespace = "team"

    def __init__(self, *rounds: tuple[Any, list[Any]]) -> None:
        self.rounds = list(rounds)
        self.now = 0.0
        self.timeouts: list[float] = []
        self.paused: list[float] = []
        self.custom = SimpleNamespace(list_namespaced_custom_object=None)

    def call(self, *_: Any, **__: Any) -> Any:
        listed, _ = self.rounds[0]
        if isinstance(listed, Exception):
            self.rounds.pop(0)
            raise listed
        return {"items": [listed] if listed else [], "metadata": {"resourceVersion": "7"}}

    def lines(self, *_: Any, timeout_seconds: int, **__: Any) -> Iterator[bytes]:
        self.timeouts.append(timeout_seconds)
        _, events = self.rounds.pop(0)
        for one in events:
            if isinstance(one, Exception):
                raise one
            if isinstance(one, float):
                self.now += one
                continue
            kind, body = one
            yield json.dumps({"type": kind, "object": body}).encode()

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.now += seconds

    def watch(self, seconds: float) -> list[Any]:
        api: Any = self
        return list(
            watch_object(api, "trainingjobs", "job", seconds, clock=lambda: self.now, pause=self.pause)
        )


def test_an_ended_watch_is_restarted_until_the_deadline() -> None:
    server = Server((1, [("MODIFIED", 2), 240.0]), (3, [("DELETED", 3), 240.0]), (None, [20.0]))
    assert server.watch(500) == [1, 2, 3, None, None]
    assert server.timeouts == [WATCH_SECONDS, WATCH_SECONDS, 20]
    assert server.paused == []


def test_an_interrupted_or_expired_watch_is_listed_again() -> None:
    expired = ("ERROR", {"code": 410, "message": "too old"})
    server = Server((1, [0.4, Unreachable("cut")]), (2, [expired]), (3, [10.0]))
    assert server.watch(10) == [1, 2, 3]
    assert server.paused == [pytest.approx(0.6), 1.0], "a short watch is followed by a pause"


def test_an_error_in_a_watch_is_final() -> None:
    server = Server((1, [("ERROR", {"code": 403, "message": "no more"})]))
    with pytest.raises(Forbidden, match="no more"):
        server.watch(10)


def test_requests_are_retried_with_pauses_until_the_deadline() -> None:
    server = Server(*[(Unreachable("away"), [])] * 9)
    with pytest.raises(Unreachable, match="away"):
        server.watch(12)
    assert server.paused == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, pytest.approx(3.2)]


def test_a_timeout_names_the_last_state_and_the_last_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = {"roles": [{"name": "w", "replicas": 1}]}
    body = {"metadata": {"name": "job", "uid": "u"}, "spec": spec, "status": {"phase": "Running"}}

    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(awaited, "time", clock)

    def going(*_: Any) -> Iterator[Any]:
        yield body
        clock.monotonic = lambda: 6.0
        raise Unreachable("away")

    monkeypatch.setattr(awaited, "watch_object", going)
    api: Any = Server()
    with pytest.raises(WaitTimeout, match="job is not Complete after 5 s: it is Running; last error: away"):
        TrainingJobs(api).wait("job", timeout=5)


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_must_be_positive(timeout: float) -> None:
    api: Any = Server()
    with pytest.raises(ValueError, match="timeout must be above 0"):
        TrainingJobs(api).wait("job", timeout=timeout)


def test_a_watch_resumes_after_the_server_recovers() -> None:
    server = Server((ApiError("busy", 503), []), (1, [("MODIFIED", 2), 10.0]))
    assert server.watch(10) == [1, 2]


@pytest.mark.parametrize("refused", [Forbidden("no", 403), ApiError("what?", 400)])
def test_a_refusal_is_final(refused: Exception) -> None:
    server = Server((refused, []))
    with pytest.raises(type(refused)):
        server.watch(10)
    assert server.paused == []


def test_a_stream_of_changes_does_not_outlast_the_deadline() -> None:
    server = Server((1, [("MODIFIED", 2), 10.0, ("MODIFIED", 3), ("MODIFIED", 4)]))
    assert server.watch(10) == [1, 2, 3]
