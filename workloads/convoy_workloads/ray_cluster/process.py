"""The processes of one Ray node. They are started, watched and killed together, by their session."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping

from convoy_workloads.launcher import proc
from convoy_workloads.ray_cluster.notice import FILE as NOTICE_FILE
from convoy_workloads.ray_cluster.settings import GCS_PORT, NODE_PORTS, NodeSettings, arguments, environment

START_SECONDS = 180.0
"""Maximum number of seconds until a node listens. It takes 2 to 5 s on an idle machine, and much longer on a
busy one."""
KILL_SECONDS = 5.0
CONNECT_SECONDS = 1.0
ADDRESS_FILE = "ray_current_cluster"
"""File in which `ray start` records the address of the head."""
POLL_SECONDS = 0.05
KEPT_LOG = 4000
"""Number of characters of a node's output that an error message quotes."""


class NodeFailed(RuntimeError):
    """A Ray node did not start."""


class NodeProcess:
    """One Ray node. `start` it, then `stop` it; it may end by itself if its head is gone."""

    def __init__(self, settings: NodeSettings, base: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self._environment = environment(settings, base)
        self._log = settings.folder / "node.log"
        self._first: subprocess.Popen[bytes] | None = None

    def start(self, seconds: float = START_SECONDS) -> None:
        """Start the node and wait until it listens. Raises NodeFailed if it does not within `seconds`."""
        self._clear_sessions()
        deadline = time.monotonic() + seconds
        with self._log.open("wb") as log:
            self._first = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments(self.settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        while not self._listens():
            if not self.running() or time.monotonic() > deadline:
                why = f"does not listen after {seconds:.0f} s" if self.running() else "ended at its start"
                self.stop()
                raise NodeFailed(f"the Ray node at {self.settings.address} {why}: {self.output()}")
            time.sleep(POLL_SECONDS)

    def running(self) -> bool:
        """Return True if the node's first process runs. Ray ends it when any of the others ends."""
        return self._first is not None and self._first.poll() is None

    def members(self) -> list[int]:
        """Return the ids of the node's living processes, including descendants in sessions of their own."""
        if self._first is None:
            return []
        table, session = proc.scan(), self._first.pid
        first = [pid for pid, one in table.items() if one.session == session]
        below = [child for pid in first for child in proc.descendants(table, pid)]
        return sorted({*first, *below})

    def output(self) -> str:
        """Return the end of the node's output."""
        with contextlib.suppress(OSError):
            return self._log.read_text(errors="replace")[-KEPT_LOG:].strip() or "it printed nothing"
        return "its output cannot be read"

    def stop(self) -> None:
        """Kill all processes of the node at once. The caller has already saved whatever must be saved."""
        if self._first is None:
            return
        deadline = time.monotonic() + KILL_SECONDS
        while left := self.members():
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._first.poll()
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._first.wait(KILL_SECONDS)

    def _listens(self) -> bool:
        # The first process writes the address file after all others have started.
        port = GCS_PORT if self.settings.is_head else NODE_PORTS["node-manager-port"]
        return (self.settings.folder / ADDRESS_FILE).exists() and reachable(self.settings.address, port)

    def _clear_sessions(self) -> None:
        """Remove what earlier nodes left in the folder, so that restarts do not fill it."""
        self.settings.folder.mkdir(parents=True, exist_ok=True)
        for path in self.settings.folder.glob("session_*"):
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
        for name in (ADDRESS_FILE, NOTICE_FILE):
            (self.settings.folder / name).unlink(missing_ok=True)


def own_address(peer: str, port: int = GCS_PORT) -> str:
    """Return the address of this machine that `peer` sees. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, port))
        return str(probe.getsockname()[0])


def reachable(address: str, port: int = GCS_PORT) -> bool:
    """Return True if something listens at the address."""
    try:
        socket.create_connection((address, port), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
