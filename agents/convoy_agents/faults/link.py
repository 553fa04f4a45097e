"""LinkLimit: a token bucket filter on the interface of a pod. It limits what the pod sends.

The network namespace belongs to the pod's sandbox. So the limit stays when containers restart, and goes with
the pod. Measured magnitude: the rate while packets waited. It stays unknown if the pod never sent as fast.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from convoy_agents.faults.error import FaultError, TargetGone
from convoy_agents.faults.fault import Fault, Target
from convoy_agents.faults.netlink import QueueDiscipline, RouteSocket
from convoy_agents.faults.pod_processes import containers

HANDLE = 0xC0F00000
"""Handle of Convoy's queue disciplines, by which they differ from others."""
UNSHAPED = ("", "noqueue", "pfifo_fast", "fq_codel", "fq", "pfifo", "mq")
"""Queue disciplines that the kernel gives an interface by itself. A limit may replace them."""
INTERFACE = "eth0"
BURST_BYTES = 32 * 1024
QUEUE_SECONDS = 0.4
"""Longest time that a packet waits. Further packets are dropped, which slows the sender."""
_BURSTS_PER_SECOND = 250
"""The kernel may refill the bucket only this often, so a high rate needs a larger bucket."""


class LinkLimit(Fault):
    """A limited rate of a pod's network interface."""

    def start(self, target: Target) -> None:
        """Set the limit."""
        self._before: tuple[QueueDiscipline, float] | None = None
        self._sent = self._seconds = 0.0
        self._apply(target.pod_uid)
        self.active = True

    def keep(self, target: Target) -> None:
        """Set the limit again if the pod has another sandbox, and measure the rate."""
        with self._namespace(target.pod_uid) as route:
            index = _interface(route)
            now, root = self.around.clock(), route.root(index)
        if root is None or root.handle != HANDLE:
            self._before = None
            self._apply(target.pod_uid)
            return
        if self._before is not None:
            before, at = self._before
            # Count only times in which packets waited at both ends: the pod then sent at the full rate.
            if before.backlog_bytes and root.backlog_bytes and now > at:
                self._sent += root.sent_bytes - before.sent_bytes
                self._seconds += now - at
                self.record.achieved = self._sent * 8 / 1e6 / self._seconds
        self._before = root, now

    def undo(self) -> None:
        """Remove the limit. Do nothing if the pod is gone: the limit went with it."""
        with contextlib.suppress(TargetGone), self._namespace(self.order.pod_uid) as route:
            for index in route.interfaces().values():
                root = route.root(index)
                if root is not None and root.handle == HANDLE:
                    route.remove_root(index, HANDLE)

    def _apply(self, pod_uid: str) -> None:
        with self._namespace(pod_uid) as route:
            index = _interface(route)
            root = route.root(index)
            if root is not None and root.kind not in UNSHAPED and root.handle != HANDLE:
                raise FaultError(
                    f"the pod's interface already has the queue discipline {root.kind}, for example by the "
                    "bandwidth plugin of its network: remove that limit first"
                )
            self.save()
            rate = int(self.order.magnitude * 1e6 / 8)
            burst = max(BURST_BYTES, rate // _BURSTS_PER_SECOND)
            if root is not None and root.handle == HANDLE:
                route.remove_root(index, HANDLE)
            limit = min(2**32 - 1, int(rate * QUEUE_SECONDS) + burst)
            try:
                route.limit_rate(index, HANDLE, rate, burst, limit)
            except OSError as error:
                raise FaultError(f"the kernel sets no limit (tbf, module sch_tbf): {error}") from error

    @contextlib.contextmanager
    def _namespace(self, pod_uid: str) -> Iterator[RouteSocket]:
        """Open a socket in the network namespace of a pod. Raises TargetGone if no process of it runs."""
        namespace = self._namespace_path(pod_uid)
        try:
            route = RouteSocket(namespace)
        except FileNotFoundError as error:
            raise TargetGone(f"pod {pod_uid} has ended") from error
        try:
            yield route
        finally:
            route.close()

    def _namespace_path(self, pod_uid: str) -> Path:
        proc = self.around.node.proc
        node = {_identity(proc / pid / "ns/net") for pid in ("1", "self")}
        for one in containers(self.around.node, pod_uid):
            for pid in one.pids():
                path = proc / str(pid) / "ns/net"
                if (found := _identity(path)) is None:
                    continue
                if found in node:
                    raise FaultError("the pod uses the node's network (hostNetwork): it cannot be limited")
                return path
        raise TargetGone(f"no process of pod {pod_uid} runs, or the agent does not see it (hostPID)")


def _interface(route: RouteSocket) -> int:
    """Return the number of the pod's interface. Raises FaultError if the pod has several and none is eth0."""
    found = route.interfaces()
    if INTERFACE in found:
        return found[INTERFACE]
    if len(found) == 1:
        return next(iter(found.values()))
    raise FaultError(f"the pod has no interface {INTERFACE}, but {', '.join(sorted(found)) or 'none'}")


def _identity(namespace: Path) -> tuple[int, int] | None:
    try:
        found = namespace.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
