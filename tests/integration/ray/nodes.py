"""Two or three machines on this one: network, process and mount namespaces, as pods have them.

Programs in them run as in a restricted pod: uid 65532, no capabilities, a read-only root, their own /dev/shm.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIFE_SECONDS = 900
"""Seconds after which a node ends by itself, if the tests did not end it."""
MOUNTS = (
    "mount -t tmpfs -o size=160m,mode=1777 tmpfs /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /mnt && "
    "mount -o remount,bind,ro /"
)
RESTRICTED = (
    "setpriv", "--reuid", "65532", "--regid", "65532", "--clear-groups", "--bounding-set", "-all",
    "--inh-caps", "-all", "--no-new-privs",
)  # fmt: skip
FOLDER = Path("/mnt/ray")
"""Folder that programs in a node may write to."""


def allowed() -> bool:
    """Return True if this process may create namespaces."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--net", "true"], check=False).returncode == 0


@dataclass
class Machine:
    address: str
    holder: subprocess.Popen[bytes]
    pid: int
    programs: list[subprocess.Popen[Any]] = field(default_factory=list)

    def inside(self, words: Sequence[str | Path], *, restricted: bool = True) -> list[str]:
        user = RESTRICTED if restricted else ()
        return [*_enter(self.pid), *user, *map(str, words)]

    def start(self, words: Sequence[str | Path], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            program = subprocess.Popen(
                self.inside(words),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environ(**environment),
                start_new_session=True,
            )
        self.programs.append(program)
        return program

    def kill(self) -> None:
        """End the whole machine at once, without notice, as a lost node does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.holder.wait(10)
        for one in self.programs:
            one.wait(10)


def environ(**more: str) -> dict[str, str]:
    return {**os.environ, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", **more}


@contextlib.contextmanager
def network(count: int) -> Iterator[list[Machine]]:
    """Yield `count` machines that reach each other. The first one has the bridge."""
    made: list[Machine] = []
    try:
        for number in range(count):
            made.append(_machine(f"10.77.0.{number + 1}"))
            _connect(made[0], made[number], number)
        yield made
    finally:
        for one in made:
            one.kill()


def _machine(address: str) -> Machine:
    holder = subprocess.Popen(
        [
            *("unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"),
            *("sh", "-c", f"{MOUNTS} && ip link set lo up && echo ready && exec sleep {LIFE_SECONDS}"),
        ],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
    child = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
    return Machine(address, holder, int(child[0]))


def _connect(hub: Machine, machine: Machine, number: int) -> None:
    if machine is hub:
        _run(
            hub, "ip link add br0 type bridge", f"ip addr add {hub.address}/24 dev br0", "ip link set br0 up"
        )
        _run(hub, "ip route add default dev br0")
        return
    subprocess.run(
        [
            *("ip", "link", "add", f"port{number}", "netns", str(hub.pid), "type", "veth"),
            *("peer", "name", "eth0", "netns", str(machine.pid)),
        ],
        check=True,
    )
    _run(hub, f"ip link set port{number} master br0 up")
    _run(machine, f"ip addr add {machine.address}/24 dev eth0", "ip link set eth0 up")
    _run(machine, f"ip route add default via {hub.address}")


def _run(machine: Machine, *commands: str) -> None:
    words = ["nsenter", "-t", str(machine.pid), "-n", "sh", "-ec", "; ".join(commands)]
    subprocess.run(words, check=True)


def _enter(pid: int) -> list[str]:
    return ["nsenter", "-t", str(pid), "--net", "--mount", "--pid", "--ipc", "--wdns=/"]


def python(*words: str | Path) -> list[str]:
    return [sys.executable, *map(str, words)]


def wait_until(check: object, seconds: float, what: str) -> None:
    assert callable(check)
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)
