"""TCP ports of this machine.

Each worker of pytest-xdist has a range of its own, below the ports that the kernel gives to connections and
to servers that name none: a port stays free between its being found and its use.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import socket
from collections.abc import Iterator

FIRST = 12_000
"""Below are ports of well-known servers, from 30,000 on those of Kubernetes' Services."""
EACH = 1_500
WORKERS = 12


def _range() -> Iterator[int]:
    """This worker's ports, over and over. Another run on this machine begins elsewhere in the range."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    begin = random.SystemRandom().randrange(EACH)
    return itertools.cycle(FIRST + worker * EACH + (begin + number) % EACH for number in range(EACH))


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
    """So many different ones that nobody has now."""
    return list(itertools.islice(filter(_is_free, _PORTS), count))


def free_port() -> int:
    """One that nobody has now."""
    return free_ports(1)[0]
