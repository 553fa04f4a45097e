"""Detects that this node is isolated, and then stops the node's Strict jobs.

`convoy_controllers.liveness.fence` decides when a job must stop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import structlog

from convoy_agents import metrics
from convoy_agents.pods.assignment import Member
from convoy_agents.pods.state import PodState, Shutdown
from convoy_agents.strict_jobs import strict_jobs
from convoy_controllers.liveness import fence
from convoy_controllers.liveness.fence import Contacts, StrictJob

CHECK_SECONDS = 0.25
"""Seconds between two checks whether a job must stop. A job therefore stops at most this long after the
time at which `fence` requires the stop.
"""
PROBE_SECONDS = 2.0
"""Seconds between two probes of the API server."""
PROBE_TIMEOUT = 1.5
"""Timeout of one probe in seconds. The kernel retransmits a lost SYN after one second, so one loss does not
fail the probe.
"""
ATTEST_SECONDS = 1.0
"""Seconds between two rounds of attestation requests. It is also the timeout of each request."""
EXIT_CODE = 75
"""Exit code of a launcher whose ranks were stopped because of isolation. The code marks a stop that no rank
caused.
"""

Attest = Callable[[Member, str, float], Awaitable[bool]]
"""Returns True if the peer attests this node within the time limit. The arguments are the peer, the job's
uid, and the time limit in seconds.
"""

log = structlog.get_logger()


def boottime() -> float:
    """Return the seconds of CLOCK_BOOTTIME. This clock counts time in suspend and ignores changes of the
    wall clock.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def reachable(host: str, port: int, seconds: float) -> bool:
    """Return True if the address accepts or refuses a TCP connection within `seconds`. A refusal proves
    that the host is reachable.
    """
    if not host:
        return False
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


class Isolation:
    """Records the last contacts with the hub, the API server and the peers.

    It sends probes and attestation requests only while the hub is silent and this node has a Strict job.
    """

    def __init__(
        self,
        node: str,
        api: tuple[str, int],
        pods: Callable[[], Iterable[PodState]],
        stop: Callable[[str, Shutdown], None],
        attest: Attest,
        clock: Callable[[], float] = boottime,
    ) -> None:
        """Take the current time as the time of the last contact with the hub.

        `api` is the API server's host and port. `stop` shuts down the launcher of the pod with the given
        uid.
        """
        self._node = node
        self._api = api
        self._pods = pods
        self._stop = stop
        self._attest = attest
        self._clock = clock
        self._contacts = Contacts(hub=clock())
        self._requested: dict[fence.Peer, float] = {}
        self._probed = fence.NEVER
        """Start time of the newest completed probe of the API server."""
        self._cut_off = False

    def reached_hub(self, sent: float) -> None:
        """Record that the hub answered a heartbeat. `sent` is the send time of the heartbeat."""
        self._contacts = replace(self._contacts, hub=max(sent, self._contacts.hub))

    async def run(self) -> None:
        """Check, probe and request attestations until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stop_jobs())
            group.create_task(self._probe_api())
            group.create_task(self._request_attestations())

    async def _stop_jobs(self) -> None:
        while True:
            now = self._clock()
            for job in fence.must_stop(self._jobs(), self._contacts, now):
                reason = fence.stop_reason(job, self._contacts, now)
                log.error(
                    "STRICT JOB STOPPED", job=job.name, incarnation=job.incarnation, pods=job.pods, why=reason
                )
                metrics.FENCED.inc()
                for uid in job.pods:
                    self._stop(uid, Shutdown(EXIT_CODE, reason, immediate=True))
            await asyncio.sleep(CHECK_SECONDS)

    async def _probe_api(self) -> None:
        while True:
            began = self._clock()
            if self._quiet(began) and self._jobs():
                if await reachable(*self._api, PROBE_TIMEOUT):
                    self._contacts = replace(self._contacts, api=began)
                self._probed = began
                await asyncio.sleep(max(0.0, began + PROBE_SECONDS - self._clock()))
            else:
                await asyncio.sleep(CHECK_SECONDS)

    async def _request_attestations(self) -> None:
        while True:
            began = self._clock()
            jobs = {job.uid: job for job in self._jobs()}
            peers: list[fence.Peer] = []
            # Attestations are needed only if the API server is unreachable too. So wait for the result of a
            # probe that started after the last contact with the hub.
            if self._probed > self._contacts.hub:
                peers = fence.peers_to_contact(jobs.values(), self._contacts, self._requested, began)
            self._log_cut_off(bool(peers))
            known = {(job.uid, node) for job in jobs.values() for node in job.peers}
            self._requested = {peer: at for peer, at in self._requested.items() if peer in known}
            self._requested.update(dict.fromkeys(peers, began))
            replies = await asyncio.gather(*(self._request(jobs[uid], node) for uid, node in peers))
            attested = {peer: began for peer, reply in zip(peers, replies, strict=True) if reply}
            kept = {peer: at for peer, at in self._contacts.peers.items() if peer in known}
            self._contacts = replace(self._contacts, peers={**kept, **attested})
            pause = began + ATTEST_SECONDS - self._clock() if peers else CHECK_SECONDS
            await asyncio.sleep(max(0.0, pause))

    async def _request(self, job: StrictJob[Member], node: str) -> bool:
        return await self._attest(job.peers[node], job.uid, ATTEST_SECONDS)

    def _jobs(self) -> list[StrictJob[Member]]:
        return strict_jobs(self._pods(), self._node)

    def _quiet(self, now: float) -> bool:
        return now - self._contacts.hub >= fence.QUIET_SECONDS

    def _log_cut_off(self, cut_off: bool) -> None:
        if cut_off is self._cut_off:
            return
        self._cut_off = cut_off
        if cut_off:
            log.warning(
                "hub and API server unreachable: Strict jobs now need attestations from their other nodes"
            )
        else:
            log.info("attestations no longer needed: hub or API server reachable, or no Strict job left")
