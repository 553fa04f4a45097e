"""An in-process S3 server, and a proxy in front of it that injects faults."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

BUCKET = "checkpoints"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    """The headers by lower-case name."""
    body: bytes


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes
    sent: int | None = None
    """Number of bytes of the body that the proxy sends before it breaks the connection; None to send the
    whole body.
    """


Forward = Callable[[Request], Response]
Fault = Callable[[Request, Forward], Response | None]
"""A function that handles a request in place of the proxy. It may call `forward` to get the server's
response. It returns the response for the client, or None to break the connection.
"""


def refuse(status: int, code: str = "SlowDown", message: str = "") -> Fault:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return lambda request, forward: Response(status, {"content-type": "application/xml"}, body)


def drop(request: Request, forward: Forward) -> None:
    """Break the connection without forwarding the request to the server."""


def lose(request: Request, forward: Forward) -> None:
    """Forward the request to the server, but break the connection instead of sending the response."""
    forward(request)


def tear(request: Request, forward: Forward) -> None:
    """Mark a request that the proxy tears: it sends half of the request to the server, then breaks the
    connections to the client and the server.

    The proxy only compares a rule's fault with this function and never calls it, because it must act before
    it reads the request's body.
    """
    raise AssertionError("the proxy tears it itself")


def held(until: threading.Event) -> Fault:
    """Return a fault that forwards the request, waits for the event, at most 20 s, and breaks the connection.
    The client gets no response.
    """

    def hold(request: Request, forward: Forward) -> None:
        forward(request)
        until.wait(20)

    return hold


def duplicate(request: Request, forward: Forward) -> Response:
    forward(request)
    return forward(request)


def cut(request: Request, forward: Forward) -> Response:
    answer = forward(request)
    return replace(answer, sent=len(answer.body) // 2)


def flip(request: Request, forward: Forward) -> Response:
    answer = forward(request)
    middle = len(answer.body) // 2
    spoilt = answer.body[:middle] + bytes([answer.body[middle] ^ 16]) + answer.body[middle + 1 :]
    return replace(answer, body=spoilt)


def without(header: str, access: str = "", secret: str = "") -> Fault:
    """Return a fault that imitates a server which ignores the header `header`: it forwards the request
    without this header. If keys are given, it signs the changed request again.
    """

    def strip(request: Request, forward: Forward) -> Response:
        headers = {name: value for name, value in request.headers.items() if name != header}
        if access and header in request.headers:
            headers = _signed(replace(request, headers=headers), access, secret)
        return forward(replace(request, headers=headers))

    return strip


def _signed(request: Request, access: str, secret: str) -> dict[str, str]:
    headers = {name: value for name, value in request.headers.items() if name != "authorization"}
    url = f"http://{headers['host']}{request.path}"
    made = AWSRequest(request.method, url, headers=headers, data=request.body)
    S3SigV4Auth(Credentials(access, secret), "s3", "us-east-1").add_auth(made)
    return {name.lower(): value for name, value in made.headers.items()}


def empty_list(request: Request, forward: Forward) -> Response:
    """Imitate a server that leaves new objects out of its lists: remove all objects from a list."""
    answer = forward(request)
    start = answer.body.find(b"<Contents>")
    end = answer.body.rfind(b"</Contents>") + len(b"</Contents>")
    return answer if start < 0 else replace(answer, body=answer.body[:start] + answer.body[end:])


def check_crc32(request: Request, forward: Forward) -> Response | None:
    """Imitate a server that verifies the CRC-32 checksum of a request's body."""
    expected = request.headers.get("x-amz-checksum-crc32")
    if expected and base64.b64decode(expected) != zlib.crc32(request.body).to_bytes(4, "big"):
        return refuse(400, "BadDigest")(request, forward)
    return forward(request)


def meet(barrier: threading.Barrier) -> Fault:
    """Return a fault that holds each request until as many requests have arrived as the barrier expects,
    then forwards it.
    """

    def wait(request: Request, forward: Forward) -> Response:
        barrier.wait(20)
        return forward(request)

    return wait


@dataclass
class Rule:
    """A fault, and the requests to which the proxy applies it."""

    fault: Fault
    method: str
    path: str
    times: int
    """Number of requests to which the proxy will still apply the fault."""
    fired: int = 0


class FaultProxy:
    def __init__(self, port: int) -> None:
        self.seen: list[Request] = []
        self._port = port
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):
                    return lambda: proxy.handle(self)
                raise AttributeError(name)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def inject(self, fault: Fault, method: str = "", path: str = "", times: int = 1_000_000) -> Rule:
        """Apply a fault to the next `times` requests with this method and a path that contains `path`. If
        several rules match a request, the one that was injected last applies.
        """
        rule = Rule(fault, method, path, times)
        with self._lock:
            self._rules.insert(0, rule)
        return rule

    def heal(self) -> None:
        with self._lock:
            self._rules.clear()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        length = int(headers.get("content-length", 0))
        request = Request(handler.command, handler.path, headers, b"")
        with self._lock:
            fault = self._fault(request)
        if fault is tear:
            self._tear(handler, request, handler.rfile.read(length // 2))
            return
        request = replace(request, body=handler.rfile.read(length))
        with self._lock:
            self.seen.append(request)
        answer = fault(request, self._forward) if fault else self._forward(request)
        if answer is None:
            handler.close_connection = True
            return
        handler.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name not in {"connection", "content-length", "transfer-encoding"}:
                handler.send_header(name, value)
        length = answer.headers.get("content-length", "0") if request.method == "HEAD" else len(answer.body)
        if answer.status != 204:
            handler.send_header("content-length", str(length))
        handler.end_headers()
        handler.wfile.write(answer.body[: answer.sent])
        handler.close_connection = answer.sent is not None

    def _tear(self, handler: BaseHTTPRequestHandler, request: Request, half: bytes) -> None:
        """Send the head and half of the body to the server, then reset both connections."""
        reset = struct.pack("ii", 1, 0)
        with socket.create_connection(("127.0.0.1", self._port), timeout=20) as torn:
            connection = http.client.HTTPConnection("127.0.0.1", self._port)
            connection.sock = torn
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name not in {"expect", "connection"}:
                    connection.putheader(name, value)
            connection.endheaders(half)
            torn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        with contextlib.suppress(OSError):
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        handler.close_connection = True

    def _fault(self, request: Request) -> Fault | None:
        for rule in self._rules:
            if rule.times and rule.method in {"", request.method} and rule.path in request.path:
                rule.times -= 1
                rule.fired += 1
                return rule.fault
        return None

    def _forward(self, request: Request) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            headers = {
                name: value for name, value in request.headers.items() if name not in {"expect", "connection"}
            }
            connection.request(request.method, request.path, request.body or None, headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, found, answer.read())
        finally:
            connection.close()


@contextmanager
def s3_server() -> Iterator[int]:
    """Yield the port of a server with an empty bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        port = server.get_host_and_port()[1]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()
        yield port
    finally:
        server.stop()


def age(key: str, seconds: float) -> None:
    """Set the modification time of an object back by `seconds`."""
    _objects()[key].last_modified -= timedelta(seconds=seconds)


def spoil(key: str, data: bytes) -> None:
    """Replace an object's bytes without changing its metadata."""
    _objects()[key].value = data


def keys(prefix: str) -> set[str]:
    return {key for key in _objects() if key.startswith(prefix)}


def _objects() -> Any:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys
