"""Probes of nodes whose agents are silent: they check if the node's pods reply and if its kubelet reports.

An agent may be silent because it is broken, or because the network between it and the hub is. So the prober
tries to connect to pods on the node, and reads the Lease that the kubelet renews every 10 s. The pods need
not listen: a refused connection also proves that the node is alive. A node without pods is probed at its
agent's own address, since new pods are only placed on living nodes.

Pods that do not reply prove something only if other pods reply: a NetworkPolicy may block all connections.
So the prober also probes pods of the same jobs on other nodes, or else other pods of the same namespaces.

The results are kept per node and dropped when its agent sends a message again. The prober decides nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

import structlog

from convoy_controllers.cached import Pod
from convoy_controllers.liveness.judge import Liveness
from convoy_controllers.liveness.node_view import NodeProbe
from convoy_controllers.liveness.timings import PROBE_SECONDS
from convoy_controllers.resources import LEASES
from convoy_controllers.views import ENDED_PHASES
from convoy_operator import errors
from convoy_operator.gateway import Object
from convoy_operator.hub.context import HubContext
from convoy_operator.limits import FairQueue, TokenBucket

log = structlog.get_logger(__name__)

Connect = Callable[[str, int], Awaitable[bool]]
"""(address, port) -> True if anything there replied. Raises OSError if this machine cannot probe."""

ABSENT = 1e9
"""Age in seconds that stands for a Lease that does not exist."""

_NAMESPACE = "kube-node-lease"
PORT = 9
"""Port at which pods are probed. Nothing listens there, so a living pod refuses at once."""
_CONNECT = 0.5
"""Timeout of one connect in seconds."""
_MAX_ADDRESSES = 3
_AT_ONCE = 64
"""Maximum number of nodes probed at the same time. At 0.5 s each, a hundred silent nodes are probed every
second; if more are silent, they take turns.
"""
_LEASE_EVERY = 2.0
_LEASE_DEADLINE = 10.0
_LEASES_PER_SECOND, _LEASES_AT_ONCE = 20.0, 8
"""Rate limit and concurrency limit of Lease reads, since many nodes may be silent at the same time."""


@dataclass(slots=True)
class Probe(NodeProbe):
    """The probes of one quiet node, and their results."""

    renewed: str = ""
    """Time of the last renewal of the kubelet's Lease, by the node's clock."""
    seen: float = 0.0
    """Time at which that renewal was first seen, by the monotonic clock here."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class NodeProber:
    """Probes every quiet node that has unfinished pods or may be given some."""

    def __init__(
        self,
        context: HubContext,
        liveness: Liveness,
        *,
        agent_address: Callable[[str], str],
        node_clock: Callable[[str], float | None],
        on_change: Callable[[str], None],
        connect: Connect | None = None,
    ) -> None:
        """`on_change` is called with every node that stops or starts replying.

        `node_clock` returns the offset from a node's Unix time to the monotonic clock here. The result is
        never too early. It is None if the node's agent never connected.
        """
        self._gateway = context.gateway
        self._cache = context.cache
        self._liveness = liveness
        self._quiet_seconds = context.settings.agent_quiet_seconds
        self._agent_address = agent_address
        self._node_clock = node_clock
        self._on_change = on_change
        self._connect = connect or reachable
        self._clock = context.clock
        self._wall = context.wall
        self._probes: dict[str, Probe] = {}
        self._probing = asyncio.Semaphore(_AT_ONCE)
        self._leases = asyncio.Semaphore(_LEASES_AT_ONCE)
        self._lease_rate = FairQueue(TokenBucket(_LEASES_PER_SECOND, _LEASES_AT_ONCE, self._clock))

    def probe(self, node: str) -> Probe | None:
        """Return the probes of a node; None while its agent sends messages."""
        return self._probes.get(node)

    def reachable(self, node: str) -> bool:
        """Return True if a node replied to the last probe, or was not probed yet."""
        probe = self._probes.get(node)
        return probe is None or probe.reachable

    def poll(self) -> None:
        """Start to probe nodes that fell quiet, and stop for nodes whose agent sent a message again."""
        quiet = {
            node: silence
            for node, silence in self._liveness.quiet(self._quiet_seconds, self._clock()).items()
            if self._matters(node)
        }
        for node in self._probes.keys() - quiet.keys():
            for task in self._probes.pop(node).tasks:
                task.cancel()
        for node in quiet.keys() - self._probes.keys():
            probe = self._probes[node] = Probe(self._wall() - quiet[node])
            probe.tasks = [
                asyncio.create_task(self._probe_loop(node, probe)),
                asyncio.create_task(self._read_lease(node, probe)),
            ]

    async def stop(self) -> None:
        """Stop all probes."""
        tasks = [task for probe in self._probes.values() for task in probe.tasks]
        self._probes.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _matters(self, node: str) -> bool:
        if not self.reachable(node):
            # Keep probing: a pod may still be placed on the node, and must see that the node is dead.
            return True
        known = self._cache.nodes.get("", node)
        return (known is not None and known.agent_ready) or bool(self._cache.pods_on(node))

    async def _probe_loop(self, node: str, probe: Probe) -> None:
        """Try to connect periodically."""
        while True:
            async with self._probing:
                began = self._clock()
                pods = self._pods(node)
                agent = _address(self._agent_address(node))
                targets = pods or ([agent] if agent else [])
                try:
                    found, credible = await asyncio.gather(
                        self._any_reachable(targets),
                        self._any_reachable(self._controls(node) if pods else []),
                    )
                except OSError as fault:
                    log.warning(
                        "this machine cannot open connections, the probe of a node is repeated",
                        node=node,
                        error=str(fault),
                    )
                else:
                    # A pod that was placed on a dead node has no address to probe, so the earlier result
                    # stays.
                    if pods:
                        probe.pods_probed = found or credible
                    if targets:
                        self._record(node, probe, found)
            await asyncio.sleep(max(0.0, began + PROBE_SECONDS - self._clock()))

    async def _any_reachable(self, targets: list[tuple[str, int]]) -> bool:
        """Return True if any of the targets replies."""
        return any(await asyncio.gather(*(self._connect(*target) for target in targets)))

    def _record(self, node: str, probe: Probe, found: bool) -> None:
        if found != probe.reachable:
            probe.reachable = found
            log.info("node replies to probes" if found else "node does not reply to probes", node=node)
            self._on_change(node)

    def _pods(self, node: str) -> list[tuple[str, int]]:
        """Return addresses of up to three of a node's pods."""
        return _addresses(pod for pod in self._cache.pods_on(node) if pod.view.phase not in ENDED_PHASES)

    def _controls(self, node: str) -> list[tuple[str, int]]:
        """Return addresses of up to three control pods: they reply under the same network policies as the
        node's pods.
        """
        pods = self._cache.pods_on(node)
        jobs, namespaces = {(pod.namespace, pod.job) for pod in pods}, {pod.namespace for pod in pods}
        siblings = (pod for job in jobs for pod in self._cache.pods.indexed(job))
        neighbours = (pod for pod in self._cache.pods if pod.namespace in namespaces)
        return _addresses(filter(self._is_control, siblings)) or _addresses(
            filter(self._is_control, neighbours)
        )

    def _is_control(self, pod: Pod) -> bool:
        """Return True if a pod runs on a node whose agent is not quiet."""
        return pod.view.phase == "Running" and bool(pod.view.node) and pod.view.node not in self._probes

    async def _read_lease(self, node: str, probe: Probe) -> None:
        """Read the Lease of the node's kubelet periodically, while the node has pods."""
        while True:
            if self._cache.pods_on(node):
                async with self._leases:
                    await self._lease_rate.acquire()
                    await self._update_lease_age(node, probe)
            await asyncio.sleep(_LEASE_EVERY)

    async def _update_lease_age(self, node: str, probe: Probe) -> None:
        requested_at = self._clock()
        try:
            async with asyncio.timeout(_LEASE_DEADLINE):
                renewed = _renewed(await self._gateway.get(LEASES, _NAMESPACE, node))
        except errors.NotFound:
            renewed = ""
        except (errors.ApiError, TimeoutError) as fault:
            log.warning("reading the Lease of a node failed, will retry", node=node, error=str(fault))
            return
        if not renewed:
            probe.lease_seconds = ABSENT
            return
        if renewed != probe.renewed:
            probe.renewed, probe.seen = renewed, self._clock()
        ahead = self._node_clock(node)
        # Use the earlier of two bounds on the renewal's time: the node's clock may be wrong.
        at = probe.seen if ahead is None else min(probe.seen, _unix(renewed) + ahead)
        probe.lease_seconds = max(0.0, requested_at - at)


def _renewed(lease: Object) -> str:
    """Return the time at which a Lease was renewed; empty if it never was."""
    return str((lease.get("spec") or {}).get("renewTime") or "")


def _unix(time: str) -> float:
    """Return the Unix seconds of an RFC 3339 time; infinity if it cannot be parsed."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return float("inf")


def _addresses(pods: Iterable[Pod]) -> list[tuple[str, int]]:
    """Return the addresses of up to three of these pods."""
    found = (pod.view.ip for pod in pods if pod.view.ip)
    return [(address, PORT) for address in islice(found, _MAX_ADDRESSES)]


async def reachable(address: str, port: int, seconds: float = _CONNECT) -> bool:
    """Return True if an IP address replies to a TCP connect in time; a refusal counts as a reply.

    Raise OSError if this machine cannot probe at all, for example without a free file descriptor.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as link:
        link.setblocking(False)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().sock_connect(link, (address, port))
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
    return True


def _address(text: str) -> tuple[str, int] | None:
    """Return the address and port in an agent's report; None unless it is an IP address and a port."""
    host, _, port = text.rpartition(":")
    try:
        return str(ipaddress.ip_address(host.strip("[]"))), int(port)
    except ValueError:
        return None
