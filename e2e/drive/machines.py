"""Several machines on this one: network, process and mount namespaces, as pods have them.

Programs in them run as in a restricted pod: uid 65532, no capabilities, a read-only root, their own /dev/shm.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIFE_SECONDS = 900
"""Seconds after which a node ends by itself, if the tests did not end it."""
MOUNTS = (
    "mount -t tmpfs -o size=400m,mode=1777 tmpfs /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /mnt && "
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
    """A machine. Its programs end with it."""

    address: str
    holder: subprocess.Popen[bytes]
    pid: int
    programs: list[subprocess.Popen[Any]] = field(default_factory=list)

    def inside(self, words: Sequence[str | Path], *, restricted: bool = True) -> list[str]:
        """Return the command that runs `words` in this machine."""
        user = RESTRICTED if restricted else ()
        return [*_enter(self.pid), *user, *map(str, words)]

    def start(self, words: Sequence[str | Path], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start a program whose output goes to `log`."""
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


class Driver:
    """A Python program in a machine, spoken to in lines of JSON."""

    def __init__(self, machine: Machine, log: Path, *words: str | Path, **environment: str) -> None:
        """Start the program `words`. Its errors go to `log`."""
        self._log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                machine.inside(python(*words)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ(**environment),
                text=True,
            )
        machine.programs.append(self.process)

    def read(self) -> dict[str, Any]:
        """Return the program's next line. Raises AssertionError with its errors if it has ended."""
        assert self.process.stdout is not None
        # Ray prints lines of its own.
        line = next((one for one in self.process.stdout if one.startswith("{")), "")
        assert line, self._log.read_text()[-3000:]
        found: dict[str, Any] = json.loads(line)
        return found

    def go_on(self) -> None:
        """Let a program go on that waits for a line."""
        assert self.process.stdin is not None
        self.process.stdin.write("{}\n")
        self.process.stdin.flush()


def environ(**more: str) -> dict[str, str]:
    """Return the environment of a program: that of this process, and `more`."""
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
    """Return the command that runs this Python with arguments."""
    return [sys.executable, *map(str, words)]
