"""Tests of the optional parts of an engine: public routes, a service in the event loop, and peers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from tests.unit.workloads.serving.harness import Scripted, serving

from convoy_workloads.serving import peers
from convoy_workloads.serving.extensions import Guard


class Extended(Scripted):
    """An engine with routes, a service and peers."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []
        self.peers: list[tuple[str, list[str]]] = []
        self.may_end = asyncio.Event()
        self.error: Exception | None = None
        self.drains = True

    def routes(self, guard: Guard) -> Sequence[BaseRoute]:
        async def private(request: Request) -> Response:
            guard.authenticate(dict(request.scope["headers"]))
            return JSONResponse({"peers": self.peers})

        async def public(request: Request) -> Response:
            guard.check(dict(request.scope["headers"]))
            return JSONResponse({})

        return [Route("/own/private", private), Route("/own/public", public)]

    async def serve(self) -> None:
        self.steps.append("serves")
        try:
            await self.may_end.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.steps.append("stopped")

    async def drain(self) -> None:
        self.steps.append("drains")
        if not self.drains:
            await asyncio.Event().wait()

    def set_peers(self, own: str, others: Sequence[str]) -> None:
        assert asyncio.get_running_loop()
        self.peers.append((own, list(others)))


def endpoints(*addresses: Any) -> dict[str, Any]:
    return {"type": "endpoints", "incarnation": 1, "addresses": list(addresses)}


async def test_an_engine_gets_its_peers_in_the_event_loop_also_while_it_loads(tmp_path: Path) -> None:
    engine = Extended()
    async with serving(tmp_path, engine, wait=False) as rank:
        rank.process.receive({"type": "other"})
        agent = threading.Thread(target=rank.process.receive, args=(endpoints("a:1", "b:1"),))
        agent.start()
        await rank.until(lambda: engine.peers == [("a:1", ["b:1"])])
        rank.process.receive(endpoints("a:1"))
        await rank.until(lambda: engine.peers[1:] == [("a:1", [])])
        agent.join()


async def test_an_engine_without_peers_ignores_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        rank.process.receive(endpoints("a:1", "b:1"))
        assert (await rank.complete("abc"))[0] == 200


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (endpoints("10.0.0.1:80"), ("10.0.0.1:80",)),
        (endpoints("[fd00::1]:80", "host-1.x:8080"), ("[fd00::1]:80", "host-1.x:8080")),
        (endpoints(*[f"a:{n}" for n in range(1, 99)]), tuple(f"a:{n}" for n in range(1, 65))),
        (endpoints(), None),
        (endpoints("a:1", 7), None),
        (endpoints("a:1/b"), None),
        (endpoints("http://a:1"), None),
        (endpoints("a@b:1"), None),
        (endpoints("a:1\n"), None),
        ({**endpoints("a:1"), "addresses": "a:1"}, None),
        ({**endpoints("a:1"), "type": "trace"}, None),
    ],
)
def test_only_well_formed_addresses_are_accepted(message: Any, expected: Any) -> None:
    assert peers.addresses(message) == expected


def test_a_message_is_read_as_it_was_made() -> None:
    assert peers.addresses(peers.endpoints(3, "a:1", ["b:2"])) == ("a:1", "b:2")


async def test_own_routes_serve_peers_before_the_model_is_loaded_but_no_clients(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    good = {"Authorization": "Bearer secret"}
    async with serving(tmp_path, Extended(), wait=False, token_file=token) as rank:
        assert (await rank.get("/own/private", good))[0] == 200
        assert (await rank.get("/own/public", good))[0] == 503
        for path in ("/own/private", "/own/public"):
            code, body = await rank.get(path, {"Authorization": "Bearer wrong"})
            assert code == 401 and "invalid_token" in body
        rank.engine.may_load.set()
        await rank.until(lambda: rank.process.lifecycle.ready)
        assert (await rank.get("/own/public", good))[0] == 200
        assert (await rank.get("/own/private", {}))[0] == 401


async def test_a_service_runs_with_the_rank_drains_and_is_stopped(tmp_path: Path) -> None:
    engine = Extended()
    async with serving(tmp_path, engine, wait=False) as rank:
        await rank.until(lambda: engine.steps == ["serves"])
        engine.may_load.set()
        await rank.until(lambda: rank.process.lifecycle.ready)
        rank.process.leave()
        assert await rank.ended() == 0
    assert engine.steps == ["serves", "drains", "stopped"]


async def test_a_drain_that_does_not_end_is_cut_off(tmp_path: Path) -> None:
    engine = Extended()
    engine.drains = False
    async with serving(tmp_path, engine, drain_seconds=0.0) as rank:
        rank.process.leave()
        assert await rank.ended() == 0
    assert engine.steps == ["serves", "drains", "stopped"]


@pytest.mark.parametrize("error", [OSError("the disk is full"), None])
async def test_a_service_that_ends_by_itself_ends_the_rank(tmp_path: Path, error: Exception | None) -> None:
    engine = Extended()
    engine.error = error
    async with serving(tmp_path, engine) as rank:
        engine.may_end.set()
        assert await rank.ended() == 1
        assert (str(error) if error else "has ended") in rank.process.lifecycle.reason
    assert engine.steps == ["serves", "stopped"]
