"""The HTTP application of an activator: it checks, holds and passes on requests."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import aiohttp

from convoy_workloads.engines.activator.hold import Closed, Full, Hold, Place
from convoy_workloads.engines.activator.metrics import Metrics
from convoy_workloads.engines.activator.params import Params
from convoy_workloads.engines.activator.upstream import Broken, Call, NotAccepted, attempt
from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.asgi import CLOSE, ClientLeft, Receive, Scope, Send, read_body, respond
from convoy_workloads.serving.auth import TokenFile
from convoy_workloads.serving.errors import RequestError, not_ready
from convoy_workloads.serving.front import request_id
from convoy_workloads.serving.lifecycle import Lifecycle
from convoy_workloads.serving.metrics import CONTENT_TYPE

RETRY_SECONDS = 5.0
"""Value of Retry-After. A replica needs some seconds to start."""
PAUSE_SECONDS = (0.1, 1.0)
"""First and longest pause before another attempt. The pause doubles after each attempt."""
MAX_DOUBLINGS = 16
_JSON, _TEXT = b"application/json", b"text/plain"
_ALIVE = frozenset({"/healthz", "/v2/health/live"})
_READY = frozenset({"/readyz", "/v2/health/ready"})


class Activator:
    """The application. The paths of probes and metrics are its own: no probe may start a replica."""

    def __init__(
        self,
        params: Params,
        hold: Hold,
        lifecycle: Lifecycle,
        metrics: Metrics,
        token: TokenFile | None,
        client: aiohttp.ClientSession,
    ) -> None:
        self._params = params
        self._hold = hold
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._token = token
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        if scope["type"] != "http" or await self._respond_itself(scope, send):
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        id_ = request_id(headers)
        try:
            self._check(scope, headers)
            place = self._enter()
            try:
                await self._handle(scope, headers, id_, place, receive, send)
            finally:
                self._hold.leave(place)
        except ClientLeft:
            return
        except RequestError as error:
            common = [(b"x-request-id", id_.encode()), *error.headers, CLOSE]
            await respond(send, error.status, common, error.body(), _JSON)

    async def _respond_itself(self, scope: Scope, send: Send) -> bool:
        """Respond to a probe or a scrape. Return False for all other requests."""
        path = scope["path"]
        if path == "/metrics":
            await respond(send, 200, [], self._metrics.text(), CONTENT_TYPE.encode())
        elif path in _ALIVE or (path in _READY and self._lifecycle.ready):
            await respond(send, 200, [], b"ok\n", _TEXT)
        elif path in _READY:
            await respond(send, 503, [], f"{self._lifecycle.reason}\n".encode(), _TEXT)
        else:
            return False
        return True

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Raise RequestError if the request must not wait."""
        if not scope["raw_path"].startswith(b"/"):
            # Behind the address of a replica, such a target would name another host.
            self._metrics.refused("invalid")
            raise RequestError(400, "the path must begin with /", code="invalid_path")
        if self._token is not None and not self._token.accepts(headers.get(b"authorization", b"")):
            self._metrics.refused("unauthorized")
            why = "send the service's token in the header `Authorization: Bearer TOKEN`"
            raise RequestError(401, why, code="invalid_token")
        if not self._lifecycle.accepts:
            self._metrics.refused("not_ready")
            raise not_ready("this activator is ending")

    def _enter(self) -> Place:
        try:
            return self._hold.enter()
        except Full:
            self._metrics.refused("queue_full")
            why = (
                f"{self._hold.most} requests wait for a replica already: send the request again after the "
                "time in Retry-After"
            )
            raise RequestError(503, why, code="queue_full", retry=RETRY_SECONDS) from None

    async def _handle(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        id_: str,
        place: Place,
        receive: Receive,
        send: Send,
    ) -> None:
        """Read a request, and pass it on unless its client leaves meanwhile."""
        began = time.monotonic()
        # The engine decides which encodings it reads.
        plain = {name: value for name, value in headers.items() if name != b"content-encoding"}
        until = began + self._params.hold_seconds
        try:
            body = await read_body(plain, receive, self._params.max_body_bytes, until)
        except RequestError:
            self._metrics.refused("invalid")
            raise
        patience = _seconds(headers.get(b"x-request-timeout"))
        call = Call(
            scope["method"],
            _target(scope),
            tuple(scope["headers"]),
            body,
            id_,
            began + patience if patience else None,
        )
        passing = asyncio.ensure_future(self._pass_on(call, place, began, send))
        watching = asyncio.ensure_future(_watch(receive))
        try:
            await asyncio.wait({passing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not passing.done():
                self._metrics.failed("cancelled", time.monotonic() - began)
                raise ClientLeft
            passing.result()
        finally:
            for task in (passing, watching):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await passing

    async def _pass_on(self, call: Call, place: Place, began: float, send: Send) -> None:
        """Wait for a replica, and pass the request on. Raises RequestError if no response has begun."""
        until = began + self._params.hold_seconds
        until = until if call.deadline is None else min(until, call.deadline)
        while True:
            if time.monotonic() >= until:
                # With an address, the next step does not wait, so its time limit has no effect.
                raise self._late(call, began)
            try:
                async with asyncio.timeout_at(until):
                    address = await self._hold.address(place)
            except TimeoutError:
                raise self._late(call, began) from None
            except Closed:
                self._metrics.refused("not_ready")
                raise not_ready("this activator has ended") from None
            try:
                await self._attempt(address, call, began, send)
                return
            except NotAccepted:
                self._hold.refused(place, address)
            finally:
                self._hold.ended(address)
            left = max(0.0, until - time.monotonic())
            await self._hold.pause(place, min(_pause(place.failures), left))

    async def _attempt(self, address: str, call: Call, began: float, send: Send) -> None:
        """Pass a request on to one replica. Raises NotAccepted, and RequestError if the replica fails before
        its response begins.
        """
        waited, response = time.monotonic() - began, None
        try:
            response = await attempt(self._client, address, call)
            self._metrics.released(waited)
            await response.send(send)
        except Broken as error:
            self._metrics.failed("error", time.monotonic() - began)
            log_line(f"request {call.id}: replica {address} has failed: {error}")
            if response is None or not response.started:
                why = f"the replica has failed before its response: {error}; it may have handled the request"
                raise RequestError(502, why, code="replica_failed") from error
            # Without its end, the client sees that the response is incomplete.
        finally:
            if response is not None:
                response.close()

    def _late(self, call: Call, began: float) -> RequestError:
        """Return the error for a request that no replica has accepted in time."""
        seconds = time.monotonic() - began
        self._metrics.failed("deadline", seconds)
        if call.deadline is not None and time.monotonic() >= call.deadline:
            why = f"no replica was ready within X-Request-Timeout ({seconds:.0f} s)"
            return RequestError(504, why, code="deadline_exceeded")
        why = f"no replica was ready within {seconds:.0f} s: send it again after the time in Retry-After"
        return RequestError(503, why, code="not_ready", retry=RETRY_SECONDS)


def _target(scope: Scope) -> bytes:
    """Return path and query as the client sent them."""
    path: bytes = scope["raw_path"]
    query: bytes = scope.get("query_string", b"")
    return path + (b"?" + query if query else b"")


def _pause(failures: int) -> float:
    """Return the seconds before the next attempt. Random, so that requests do not return all at once."""
    first, most = PAUSE_SECONDS
    longest = first * 2.0 ** min(failures - 1, MAX_DOUBLINGS)
    return min(most, longest) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def _seconds(text: bytes | None) -> float:
    """Return the value of X-Request-Timeout; 0 if it is absent or malformed. The replica reports that."""
    try:
        value = float(text or b"0")
    except ValueError:
        return 0.0
    return value if 0 < value < 1e9 else 0.0


async def _watch(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
