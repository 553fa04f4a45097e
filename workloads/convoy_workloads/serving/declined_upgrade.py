"""A parser that goes on with HTTP/1.1 when a client offers another protocol.

Java's HTTP client offers HTTP/2 (`Upgrade: h2c`) in each request without TLS. A server may ignore the offer
(RFC 9110, section 7.8). httptools stops after the headers of such a request instead, and would lose its body.
"""

from __future__ import annotations

from typing import Any

import httptools

_FRAMING = (b"content-length", b"transfer-encoding")
"""Headers that define where a body ends."""


class DecliningParser:
    """The parser of one connection, in place of `httptools.HttpRequestParser`.

    After the headers of a request with an offer, a second parser reads the body. It first gets a request line
    and the headers in `_FRAMING`. The protocol must ignore the callbacks about these (`replaying`), and the
    end of the message of a parser that is about to stop (`should_upgrade`).
    """

    def __init__(self, protocol: Any) -> None:
        """`protocol`: uvicorn's protocol, which gets the callbacks."""
        self._protocol = protocol
        self._parser = _parser(protocol)
        self.replaying = False
        """True while the protocol must ignore callbacks other than `on_message_complete`."""

    def feed_data(self, data: bytes) -> None:
        """Parse bytes of the client."""
        rest = memoryview(data)
        while True:
            try:
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as stop:
                rest = rest[stop.args[0] :]
            self._decline()

    def _decline(self) -> None:
        """Replace the parser by one that expects the body of the present request."""
        framing = [
            b"%b: %b\r\n" % (name, value) for name, value in self._protocol.headers if name in _FRAMING
        ]
        self._parser = _parser(self._protocol)
        self.replaying = True
        try:
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n")
        finally:
            self.replaying = False

    def should_upgrade(self) -> bool:
        """Return True while the parser is about to stop after the headers of a request with an offer."""
        return bool(self._parser.should_upgrade())

    def should_keep_alive(self) -> bool:
        """Return True if the client can send a further request."""
        return bool(self._parser.should_keep_alive())

    def get_http_version(self) -> str:
        """Return the version of the present request, such as `1.1`."""
        return str(self._parser.get_http_version())

    def get_method(self) -> bytes:
        """Return the method of the present request."""
        return bytes(self._parser.get_method())


def _parser(protocol: Any) -> httptools.HttpRequestParser:
    """Return a parser with uvicorn's settings."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
