"""Probes of nodes whose agents are silent. They check if the node's pods reply and if its kubelet still
reports.

An agent may be silent because it is broken, or because the network between the agent and the hub is broken.
So the prober tries to connect to pods on the node, and reads the Lease that the kubelet renews every 10 s.
The pods need not listen on the port: a refused connection also proves that the node is alive. If the node
has no pods, the prober connects to the agent's own address. Such a node must be probed too, because jobs
may place new pods on it only if it is alive.

If no pod on the node replies, a NetworkPolicy may block all connections. So the prober also connects to
pods of the same jobs on other nodes. If there are none, it connects to other pods of the same namespaces. A
missing reply counts against the node only if one of these other pods replies.

The results are kept per node. They are dropped when the node's agent sends a message again. Plans decide if
the node is lost, not the prober.
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
from convoy_controllers.workers.network import PROBE_PORT
from convoy_operator import errors
from convoy_operator.gateway import Object
from convoy_operator.hub.context import HubContext
from convoy_operator.limits import FairQueue, TokenBucket

log = structlog.get_logger(__name__)

Connect = Callable[[str, int], Awaitable[bool]]
"""Function that takes an address and a port, and returns True if anything at the address replied. It raises
OSError if this machine cannot open connections.
"""

ABSENT = 1e9
"""Age in seconds that is reported for a Lease that does not exist."""

_NAMESPACE = "kube-node-lease"
PORT = PROBE_PORT
_CONNECT = 0.5
"""Timeout in seconds of one attempt to connect."""
_MAX_ADDRESSES = 3
_AT_ONCE = 64
"""Maximum number of nodes that are probed at the same time. A probe of a node that does not reply takes 0.5
s, so more than a hundred such nodes can be probed each second. If there are more, each waits for its
turn.
"""
_LEASE_EVERY = 2.0
_LEASE_DEADLINE = 10.0
_LEASES_PER_SECOND, _LEASES_AT_ONCE = 20.0, 8
"""Rate limit and concurrency limit of Lease reads, since many nodes may be silent at the same time."""


@dataclass(slots=True)
class Probe(NodeProbe):
    """The results of probing one node, and the tasks that probe it."""

    renewed: str = ""
    """Time of the newest renewal of the kubelet's Lease, as an RFC 3339 text by the node's clock."""
    seen: float = 0.0
    """Monotonic time in seconds when the prober first read the renewal in `renewed`."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class NodeProber:
    """Probes each node that has unfinished pods or may get new pods, while its agent is silent."""

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
        """`on_change` is called with the name of a node that stops or starts to reply.

        `node_clock` returns the offset in seconds from a node's Unix time to this process's monotonic
        clock, or None if the node's agent never connected. A time that is converted by this offset may be
        too late, but never too early.
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
        """Return the probe results of a node; None if the node is not probed because its agent sends
        messages.
        """
        return self._probes.get(node)

    def reachable(self, node: str) -> bool:
        """Return True if a node replied to the last probe, or if it was not probed yet."""
        probe = self._probes.get(node)
        return probe is None or probe.reachable

    def poll(self) -> None:
        """Start probing each node whose agent became silent. Stop probing each node whose agent has sent a
        message again.
        """
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
            # Keep probing a node that does not reply, even if it has no pods: a pod may still be placed
            # there. The plan of that pod's job can learn only from the probe that the node does not reply.
            return True
        known = self._cache.nodes.get("", node)
        return (known is not None and known.agent_ready) or bool(self._cache.pods_on(node))

    async def _probe_loop(self, node: str, probe: Probe) -> None:
        """Try periodically to connect to the node's pods or its agent, until cancelled."""
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
                    # If there is no target, keep the earlier result. On a dead node this is the usual case: a
                    # pod that is placed there never gets an address.
                    if pods:
                        probe.pods_probed = found or credible
                    if targets:
                        self._record(node, probe, found)
            await asyncio.sleep(max(0.0, began + PROBE_SECONDS - self._clock()))

    async def _any_reachable(self, targets: list[tuple[str, int]]) -> bool:
        """Return True if at least one of the targets replies."""
        return any(await asyncio.gather(*(self._connect(*target) for target in targets)))

    def _record(self, node: str, probe: Probe, found: bool) -> None:
        if found != probe.reachable:
            probe.reachable = found
            log.info("node replies to probes" if found else "node does not reply to probes", node=node)
            self._on_change(node)

    def _pods(self, node: str) -> list[tuple[str, int]]:
        """Return the addresses of at most three of the node's pods."""
        return _addresses(pod for pod in self._cache.pods_on(node) if pod.view.phase not in ENDED_PHASES)

    def _controls(self, node: str) -> list[tuple[str, int]]:
        """Return the addresses of at most three control pods. The same network policies apply to them and
        to the node's pods, so their replies show if connections are allowed.
        """
        pods = self._cache.pods_on(node)
        jobs, namespaces = {(pod.namespace, pod.job) for pod in pods}, {pod.namespace for pod in pods}
        siblings = (pod for job in jobs for pod in self._cache.pods.indexed(job))
        neighbours = (pod for pod in self._cache.pods if pod.namespace in namespaces)
        return _addresses(filter(self._is_control, siblings)) or _addresses(
            filter(self._is_control, neighbours)
        )

    def _is_control(self, pod: Pod) -> bool:
        """Return True for a running pod on a node that is not probed, because the node's agent sends
        messages.
        """
        return pod.view.phase == "Running" and bool(pod.view.node) and pod.view.node not in self._probes

    async def _read_lease(self, node: str, probe: Probe) -> None:
        """Read the Lease of the node's kubelet periodically while the node has pods, until cancelled."""
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
        # The kubelet renewed the Lease at the latest when the prober first read the renewal. The time in the
        # Lease may be wrong, because the node's clock may be wrong. Use the earlier of the two times.
        at = probe.seen if ahead is None else min(probe.seen, _unix(renewed) + ahead)
        probe.lease_seconds = max(0.0, requested_at - at)


def _renewed(lease: Object) -> str:
    """Return the RFC 3339 time of a Lease's last renewal; empty if it was never renewed."""
    return str((lease.get("spec") or {}).get("renewTime") or "")


def _unix(time: str) -> float:
    """Convert an RFC 3339 time to Unix seconds. Return infinity for an invalid text."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return float("inf")


def _addresses(pods: Iterable[Pod]) -> list[tuple[str, int]]:
    """Return the addresses of at most three of these pods."""
    found = (pod.view.ip for pod in pods if pod.view.ip)
    return [(address, PORT) for address in islice(found, _MAX_ADDRESSES)]


async def reachable(address: str, port: int, seconds: float = _CONNECT) -> bool:
    """Return True if an IP address accepts or refuses a TCP connection within `seconds`. Both prove that
    the machine is alive.

    Raises OSError if this machine cannot open connections at all, for example without a free file
    descriptor.
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
    """Parse the address and port that an agent reported. Return None if the text is not an IP address and a
    port.
    """
    host, _, port = text.rpartition(":")
    try:
        return str(ipaddress.ip_address(host.strip("[]"))), int(port)
    except ValueError:
        return None
