"""Serves a search for similar documents. Building its index takes half a minute of processor time. So each
replica saves the index to the memory of its node, and a restarted replica restores it at once.

GET /?text=... returns the most similar document. GET /ready is the readiness probe.
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import convoy

DOCUMENTS = int(os.environ.get("DOCUMENTS", "120000"))
PORT = int(os.environ.get("CONVOY_SERVING_PORT", "8000"))
HASHES = 16
"""Number of values in a signature. The share of equal values estimates how similar two texts are."""

Signature = tuple[int, ...]


def text_of(number: int) -> str:
    """Return the words of a document."""
    words = random.Random(number)  # noqa: S311 - the same words each time, no secret
    return " ".join(f"word{words.randrange(5000)}" for _ in range(24))


def signature(text: str) -> Signature:
    """Return the MinHash signature of a text: of each hash function, a part of the lowest hash of a word."""
    words = {word.encode() for word in text.split()} or {b""}
    return tuple(
        min(hashlib.blake2b(word, digest_size=8, salt=bytes([number])).digest() for word in words)[-1]
        for number in range(HASHES)
    )


def build() -> bytes:
    """Return the index: the signatures of all documents, one after another."""
    index = array.array("B")
    for number in range(DOCUMENTS):
        index.extend(signature(text_of(number)))
    return index.tobytes()


def most_similar(index: bytes, text: str) -> int:
    """Return the number of the document whose signature shares the most values with that of a text."""
    wanted = signature(text)

    def shared(at: int) -> int:
        return sum(one == other for one, other in zip(wanted, index[at : at + HASHES], strict=True))

    return max(range(0, len(index), HASHES), key=shared) // HASHES


def load() -> tuple[bytes, str]:
    """Return the index and its origin. An index of another size is built again."""
    state = convoy.ReplicaState()
    began = time.monotonic()
    saved = state.restore()
    if saved is not None and len(saved.data) == DOCUMENTS * HASHES:
        return saved.data, f"restored in {time.monotonic() - began:.2f} s from replica {saved.replica}"
    index = build()
    kept = "saved" if state.save(index) else "not saved"
    return index, f"built in {time.monotonic() - began:.2f} s, {kept}"


def main() -> None:
    """Load the index, and serve until SIGTERM."""
    index, origin = load()
    print(f"index {origin}", file=sys.stderr, flush=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            body: dict[str, Any] = {"index": origin}
            if url.path != "/ready":
                body["document"] = most_similar(index, parse_qs(url.query).get("text", [""])[0])
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log no requests."""

    server = ThreadingHTTPServer(("", PORT), Handler)
    server.daemon_threads = False
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    server.server_close()  # waits for the requests in flight


if __name__ == "__main__":
    main()
