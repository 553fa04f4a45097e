"""The program of a spot pod: a Ray worker node that belongs to the job's head.

    python -m convoy_workloads.ray_cluster.worker --folder /tmp/ray --slots 1

The program reads the head's address from the file with the job's members, starts a node, and starts another
whenever the node ends, because the head has restarted or moved. At SIGTERM (a notice, or the end of the job)
the node drains. The program ends at the deadline, or as soon as no actor is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from convoy_workloads.launcher import proc
from convoy_workloads.ray_cluster import notice, private, token
from convoy_workloads.ray_cluster.process import NodeFailed, NodeProcess, own_address, reachable
from convoy_workloads.ray_cluster.settings import MIN_STORE_BYTES, NodeSettings, default_folder, environment
from convoy_workloads.runtime.log import log_line

MEMBERS_FILE = "CONVOY_MEMBERS_FILE"
POLL_SECONDS = 0.2
BACK_OFF_SECONDS = (0.5, 15.0)
"""First and longest pause before the next try to join a head."""
DRAIN_SECONDS = 5.0
"""Seconds from SIGTERM until the program ends, if CONVOY_GRACE_SECONDS is not shorter."""


class NoHead(RuntimeError):
    """The address of the head is not known."""


@dataclass(frozen=True)
class HeadPlace:
    """The pod that runs the head: that of the job's rank 0."""

    address: str
    incarnation: int = 0
    """Incarnation of the job. Each one has a head of its own, so workers leave the head of the previous
    incarnation.
    """


def head_place(environment: Mapping[str, str]) -> HeadPlace:
    """Return the place of the head. Raises NoHead if it is not known yet."""
    path = environment.get(MEMBERS_FILE, "")
    if not path:
        raise NoHead(
            f"{MEMBERS_FILE} is not set: run this program in a pod of a role with membership Independent, or "
            "give --head"
        )
    try:
        found = json.loads(Path(path).read_text())
        address = next(str(one["address"]) for one in found["members"] if one["rank"] == 0)
        return HeadPlace(address, int(found["incarnation"]))
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise NoHead(f"{path} does not name the pod of rank 0 ({type(error).__name__})") from None


@dataclass(frozen=True)
class Options:
    """The options of the program."""

    head: str
    """Address of the head; empty to read it from the members file."""
    folder: Path
    slots: int
    store_bytes: int
    key: bytes


class Worker:
    """The loop of the program."""

    def __init__(self, options: Options, environment: Mapping[str, str] = os.environ) -> None:
        self._options = options
        self._environment = environment
        self._stop = threading.Event()
        self._since = time.time()  # The program starts with its pod, and outlives the heads that it joins.
        self._failures = 0
        self._node: NodeProcess | None = None

    def terminate(self) -> None:
        """Ask the loop to drain the node and to end."""
        self._stop.set()

    def run(self) -> None:
        """Keep a node in the head's cluster until `terminate` is called."""
        while not self._stop.is_set():
            try:
                self._join(self._place())
            except (NodeFailed, NoHead) as error:
                log_line(f"ray worker: {error}")
                self._failures += 1
            if not self._stop.is_set():
                self._stop.wait(self._pause())

    def _pause(self) -> float:
        first, longest = BACK_OFF_SECONDS
        return float(min(longest, first * 2 ** min(self._failures, 6))) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter

    def _place(self) -> HeadPlace:
        given = self._options.head
        return HeadPlace(given) if given else head_place(self._environment)

    def _moved(self, place: HeadPlace) -> bool:
        """Return True if the job has another head."""
        try:
            return self._place() != place
        except NoHead:
            return False

    def _join(self, place: HeadPlace) -> None:
        """Run one node until it ends, the head is another one, or the program must end."""
        head = place.address
        if not reachable(head):
            raise NoHead(f"the head at {head} does not listen yet")
        options = self._options
        settings = NodeSettings(
            own_address(head),
            head,
            options.folder,
            token.write(options.folder, options.key),
            options.store_bytes,
            options.slots,
            self._since,
        )
        # Ray's client in this process needs the same settings. It reads them when it is imported, in `drain`.
        os.environ.update(environment(settings, {}))
        node = NodeProcess(settings, self._environment)
        node.start()
        self._failures = 0
        log_line(f"ray worker: joined the head at {head} as {settings.address}")
        try:
            while node.running() and not self._moved(place) and not self._stop.wait(POLL_SECONDS):
                pass
            if self._stop.is_set():
                drain(node, self._grace())
            elif node.running():
                log_line("ray worker: the job has another head, so the node ends")
            else:
                log_line(f"ray worker: the node has ended: {node.output()[-300:]}")
        finally:
            node.stop()

    def _grace(self) -> float:
        grace = float(self._environment.get("CONVOY_GRACE_SECONDS") or 25)
        return min(DRAIN_SECONDS, max(0.0, grace - 1))


def drain(node: NodeProcess, seconds: float) -> None:
    """Mark the node as draining and wait until it has no actor, at most `seconds`.

    Actors read the notice, commit and end by themselves. Ray would neither move nor end them.
    """
    deadline = time.time() + seconds
    notice.write(node.settings.folder, deadline)
    node_id = private.node_id(map(proc.arguments, node.members()))
    if node_id is not None:
        private.start_drain(node.settings.gcs, node_id, deadline, "the pod is ending")
    while time.time() < deadline and any(map(private.is_actor, map(proc.arguments, node.members()))):
        time.sleep(POLL_SECONDS)


def serve(options: Options) -> None:
    """Keep a node in the cluster until SIGTERM."""
    private.check_version()
    worker = Worker(options)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.terminate())
    worker.run()


def main() -> None:
    """Read the options and run the loop."""
    parser = argparse.ArgumentParser(prog="convoy_workloads.ray_cluster.worker", description=__doc__)
    parser.add_argument("--head", default="", help="address of the head; default: the job's rank 0")
    parser.add_argument("--folder", type=Path, help="folder for Ray's files; default: $CONVOY_HOME/ray")
    parser.add_argument("--slots", type=int, default=1, help="actors with one CPU each on this node")
    parser.add_argument("--store-bytes", type=int, default=MIN_STORE_BYTES, help="size of the object store")
    given = parser.parse_args()
    folder = given.folder or default_folder()
    serve(Options(given.head, folder, given.slots, given.store_bytes, token.job_key(os.environ)))


if __name__ == "__main__":
    main()
