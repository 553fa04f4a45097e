"""Free TCP ports of this machine.

Each worker of pytest-xdist has its own range. The ranges are below the kernel's ephemeral ports, so a free
port stays free until the test uses it.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import socket
from collections.abc import Iterator

FIRST = 12_000
"""First port of the ranges. Ports of well-known servers are below it. The ranges end at 30,000, where the
ports of Kubernetes' Services begin.
"""
EACH = 1_500
WORKERS = 12


def _range() -> Iterator[int]:
    """Yield this worker's ports endlessly. Each run on this machine starts at another port of the range."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    start = random.SystemRandom().randrange(EACH)
    return itertools.cycle(FIRST + worker * EACH + (start + number) % EACH for number in range(EACH))


_PORTS = _range()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return this many different free ports."""
    return list(itertools.islice(filter(_is_free, _PORTS), count))


def free_port() -> int:
    """Return a free port."""
    return free_ports(1)[0]
