"""Starts a server as a child process and waits until it is ready."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence

START_SECONDS = 120.0
END_SECONDS = 20.0


class ServerError(Exception):
    """Raised if the server does not start. The message has the end of its output."""


@contextlib.contextmanager
def serving(
    command: Sequence[str], port: int, environment: Mapping[str, str], core: int | None = None
) -> Iterator[None]:
    """Run the server until the end of the context. `core`: the only core that the server may use."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        _wait_until_ready(process, port)
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"the server has ended with exit code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise ServerError(f"the server was not ready within {START_SECONDS:.0f} s")
