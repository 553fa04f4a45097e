"""The agent process. It starts its components in order and stops them."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from convoy_agents import metrics
from convoy_agents.commit_client import CommitClient
from convoy_agents.commit_coordinator import CommitCoordinator
from convoy_agents.csi import library
from convoy_agents.csi.cleanup import clean_up
from convoy_agents.csi.folders import Folders
from convoy_agents.csi.service import CsiServers
from convoy_agents.csi.volumes import Volumes, save_state
from convoy_agents.enrol import Enrolment
from convoy_agents.faults import injector
from convoy_agents.guard.sweep.orders import SweepOrders
from convoy_agents.guard.sweep.pair_probes import PairProbes
from convoy_agents.guard.sweep.pair_responder import PairService
from convoy_agents.guard.sweep.provenance import provenance
from convoy_agents.guard.sweep.runner import Launch, Runner
from convoy_agents.guard.telemetry_buffer import TelemetryBuffer
from convoy_agents.hub_client import HubClient, HubHandlers
from convoy_agents.isolation import Isolation, boottime
from convoy_agents.models.delivery import ModelDeliveries
from convoy_agents.models.folders import ModelFolders
from convoy_agents.outbox import Outbox
from convoy_agents.peer import PeerClient, PeerServer, PeerService, PeerServices
from convoy_agents.peer_attestation import PeerAttestation
from convoy_agents.pods import tally
from convoy_agents.pods.registry import Pods
from convoy_agents.pods.session import Hooks
from convoy_agents.pods.state import PodState
from convoy_agents.settings import Settings
from convoy_agents.spot.assembly import Spot
from convoy_agents.states import assembly as states
from convoy_agents.tiercheck.committer import Committer
from convoy_agents.tiercheck.deciding import Decisions
from convoy_agents.tiercheck.ledger import MemoryLedger
from convoy_agents.tiercheck.link import Encoders, Links
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.memory_use import MemoryUse
from convoy_agents.tiercheck.peer_transfer import PeerTransfer
from convoy_agents.tiercheck.rank_server import RankServer
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.restoring import Restores, ShardSources
from convoy_agents.tiercheck.scrubbing import Scrubber
from convoy_agents.tiercheck.service import ShardService
from convoy_agents.tiercheck.slot_token_check import SlotTokenCheck
from convoy_agents.tiercheck.surveying import Surveys
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_agents.tracing.server import TraceServer
from convoy_agents.traffic.buffer import TrafficBuffer
from convoy_agents.traffic.scraper import Scraper
from convoy_agents.wire import http, hub_pb2
from convoy_crds import terms

LEAVE_SECONDS = 8.0
"""Maximum seconds from SIGTERM to the agent's exit. It must be less than the DaemonSet's
terminationGracePeriodSeconds.
"""
MAX_ENCODERS = 4
"""Maximum number of encoder threads. The agent starts at most one thread per four cores, so that training
keeps the other cores.
"""

log = structlog.get_logger()


def version() -> str:
    """Return the version of the installed distribution; `0+unknown` if the agent runs from a checkout."""
    try:
        return importlib.metadata.version("convoy-operator")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


class Agent:
    """The agent with all its components. `run` returns after `leave`, or raises the error of a failed
    component.
    """

    def __init__(
        self, settings: Settings, find_sources: Callable[[], library.Sources] = library.installed
    ) -> None:
        self.settings = settings
        self._find_sources = find_sources
        self._leaving = asyncio.Event()
        self._reason = ""
        self._recovered = False
        self.peer_port = 0
        self.health_port = 0
        self.enrolment = Enrolment(settings.node, settings.hub, settings.token_file, settings.ca_file)
        self.pods = Pods(Outbox())
        self.memory_manager = MemoryManager(
            settings.run_dir / "memory", settings.checkpoint_memory, self._held_jobs_changed
        )
        encoders = Encoders(max(1, min(MAX_ENCODERS, (os.cpu_count() or 1) // 4)))
        self.remotes = Remotes(self._report_store, settings.stores_dir, encoders, settings.copy_rate)
        self.model_folders = ModelFolders(
            settings.models_dir, settings.model_limit, settings.model_reserve, settings.model_reserve_percent
        )
        self._models = ModelDeliveries(self.model_folders, self.remotes, self.pods.set_model)
        troubles = TroubleReporter(self.pods.set_troubles)
        self._ledger = MemoryLedger(self.memory_manager, self.remotes, troubles)
        self.commit_coordinator = CommitCoordinator(self._ledger)
        self._peers = PeerClient(self.enrolment)
        commits = CommitClient(settings.node, self.commit_coordinator, self._peers, self.pods.assignment)
        links = Links(encoders, partial(metrics.travelled, "peer"))
        peer_transfer = PeerTransfer(self._peers, links, settings.copy_rate)
        self._surveys = Surveys(self.memory_manager, lambda: self.pods)
        self.scrubber = Scrubber(
            settings.node, self.memory_manager, peer_transfer, lambda: self.pods, settings.scrub_seconds
        )
        decisions = Decisions(settings.node, self._surveys, peer_transfer, self.remotes)
        sources = ShardSources(peer_transfer, self.remotes)
        restores = Restores(settings.node, self.memory_manager, self._surveys, sources, troubles, decisions)
        self._committer = Committer(
            self.memory_manager, peer_transfer, self.remotes, troubles, commits, self.pods
        )
        self._ranks = RankServer(
            self.memory_manager,
            restores,
            self._committer,
            lambda: self.pods,
            troubles,
            MemoryUse(self.pods.set_memory_use),
        )
        self._traces = TraceServer(self.remotes.put_trace, self.pods.set_trace)
        self._states = states.assemble(settings.node, self.memory_manager, self.pods, peer_transfer, troubles)
        self._telemetry, self._traffic = TelemetryBuffer(), TrafficBuffer()
        self._scraper = Scraper(lambda: self.pods, self._traffic.add_scraped)
        pair_probes = PairProbes(self._peers.pairs)
        runner = Runner(Launch(settings.probe_dir, settings.probe_python))
        self.sweeps = SweepOrders(
            settings.node, runner, pair_probes, partial(provenance, version()), self._wake_hub
        )
        self.faults = injector.assemble(settings, lambda: self.pods, self._wake_hub)
        self.spot = Spot(settings, self.pods, self._wake_hub)
        self._background: set[asyncio.Task[None]] = set()
        attestation = PeerAttestation(lambda: self.pods, boottime)
        self._isolation = Isolation(
            settings.node,
            (settings.api_host, settings.api_port),
            lambda: self.pods,
            self.pods.stop,
            self._peers.request_attestation,
        )
        handlers = HubHandlers(
            self.pods.outbox,
            self.pods.report,
            self.pods.reports,
            self.pods.command,
            attestation.recent,
            self._isolation.reached_hub,
            lambda: self.memory_manager.slot_tokens,
            self._drop_job,
            self.remotes.apply,
            self._telemetry.pop_message,
            self._traffic.pop_message,
            self.sweeps.handle,
            self.sweeps.reports,
            self._deliver_model,
            self.faults.handle,
            self.faults.reports,
            self.spot.apply,
            self.spot.notices.pop_message,
        )
        self.hub = HubClient(settings.node, settings.session_address, self.enrolment, handlers, version())
        self.pods.wake = self.hub.wake
        self.pods.on_removed = self._pod_removed
        slot_tokens = SlotTokenCheck(self.enrolment)
        services = PeerServices(
            PeerService(self.commit_coordinator, attestation, slot_tokens),
            ShardService(
                self.memory_manager, self._surveys, decisions, links, slot_tokens, self._states.hosted
            ),
            PairService(pair_probes.responder),
        )
        self._peer_server = PeerServer(services, self.enrolment, settings.peer_port)
        metrics.BUILD.labels(version()).set(1)
        for state in tally.STATES:
            metrics.RANKS.labels(state).set_function(partial(self.pods.ranks, state))
        self._health = http.HttpServer(
            {
                "/metrics": http.metrics(metrics.REGISTRY),
                "/healthz": http.healthy,
                "/readyz": http.ready(self.not_ready),
            }
        )

    def leave(self, reason: str) -> None:
        """Start a planned exit. `run` then stops all components and returns."""
        self._reason = reason
        if reason == signal.SIGTERM.name:
            self.spot.notices.stopping()
        self._leaving.set()

    async def run(self) -> None:
        """Recover the state of earlier pods, serve until `leave`, and stop. Raises OSError or LibraryError
        if the node lacks a prerequisite.
        """
        settings = self.settings
        self.health_port = await self._health.start(settings.metrics_port)
        settings.run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        shelf = await asyncio.to_thread(library.prepare, settings.run_dir, self._find_sources())
        folders = Folders(settings.run_dir, shelf, self.model_folders)
        hooks = Hooks(
            save=partial(save_state, folders),
            changed=self.pods.changed,
            advanced=self._advanced,
            memory=partial(states.serve, self._ranks, self._states.server),
            trace=self._traces.serve,
            telemetry=self._telemetry.add,
            traffic=self._add_traffic,
            draining=self.spot.notices.report,
        )
        self.spot.pods.write = folders.write_notice
        volumes = Volumes(settings.kubelet_dir, folders, self.pods, hooks)
        # Recover the memory first. Ranks that started under an earlier agent are still running and will soon
        # request it.
        await self.memory_manager.recover()
        # Open the pods' sockets before the other servers, because pods that started under an earlier agent
        # are already reconnecting.
        await volumes.recover()
        await self._resume()
        await self.faults.recover()
        csi = CsiServers(settings.kubelet_dir, settings.node, version(), volumes)
        await csi.start()
        self._recovered = True
        log.info("agent up", node=settings.node, version=version(), library=shelf.name)
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self.enrolment.run(), name="enrolment"),
            asyncio.create_task(self._serve_hub(), name="hub"),
            asyncio.create_task(self._isolation.run(), name="isolation"),
            asyncio.create_task(self._remove_stale_folders(volumes), name="stale folders"),
            asyncio.create_task(self.scrubber.run(), name="scrub"),
            asyncio.create_task(self._models.run(settings.garbage_seconds), name="models"),
            asyncio.create_task(self._scraper.run(), name="scrape"),
            asyncio.create_task(self.faults.run(), name="faults"),
            asyncio.create_task(self.spot.watcher.run(), name="notices"),
            asyncio.create_task(self._leaving.wait(), name="leaving"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._leave(csi, tasks)

    async def _resume(self) -> None:
        for state in self.pods:
            self._states.copies.start(state.uid)
            try:
                await self._committer.resume(state.uid)
            except OSError as error:
                # Continue with the other pods, because they still need this agent. The ranks of this pod get
                # the error on their next request.
                log.error("saves and uploads in progress not resumed", pod_uid=state.uid, why=str(error))

    async def _serve_hub(self) -> None:
        """Start the Peer server, then keep the hub session open. The order matters because the Hello
        message contains the server's port.
        """
        self.peer_port = await self._peer_server.start()
        host = self.settings.pod_ip
        self.hub.peer_address = f"[{host}]:{self.peer_port}" if ":" in host else f"{host}:{self.peer_port}"
        await self.hub.run()

    async def _leave(self, csi: CsiServers, tasks: list[asyncio.Task[Any]]) -> None:
        log.info("leaving", reason=self._reason or "a part failed")
        connected = self.hub.leave(self._reason or "failure")
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                if connected:
                    await asyncio.wait([task for task in tasks if task.get_name() == "hub"], timeout=3.0)
                # Cancel all tasks before any component stops, because a task could otherwise restart a
                # stopped component.
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self.faults.close()
                await self.sweeps.close()
                await self._committer.close()
                await self._states.copies.close()
                await self._models.close()
                await self.remotes.close()
                await self._peer_server.stop()
                await self._peers.close()
                alone = not csi.superseded()
                await csi.stop()
                await self.pods.close_all()
                if alone and not any(True for _ in self.pods) and not self.memory_manager.jobs:
                    await asyncio.to_thread(self.model_folders.clear)
                    await asyncio.to_thread(self.faults.clear)
                    left = await asyncio.to_thread(clean_up, self.settings.run_dir, csi.folder)
                    log.info("node cleared", left=left)
                await self._health.stop()
        except TimeoutError:
            log.warning("exit before all components were closed", waited_seconds=LEAVE_SECONDS)

    async def _remove_stale_folders(self, volumes: Volumes) -> None:
        while True:
            await asyncio.sleep(self.settings.garbage_seconds)
            try:
                await volumes.remove_stale()
            except OSError as error:
                log.warning("stale pod folders not removed", why=str(error))

    def not_ready(self) -> str:
        """Return the reason why the agent cannot serve pods; an empty text if it can."""
        # An unreachable hub does not make the agent unready, because pods start, train and commit without the
        # hub.
        return "" if self._recovered else "recovering the pods of an earlier agent"

    def _advanced(self, pod: PodState) -> None:
        self.commit_coordinator.update(pod)
        job_memory = self.memory_manager.get(pod.assignment.job_uid) if pod.assignment else None
        if job_memory is not None and pod.seen > job_memory.seen:
            self._spawn(job_memory.record_seen(pod.seen))
        if job_memory is not None:
            self._spawn(self._surveys.renew_slot_token(job_memory))
        self._spawn(self._states.advanced(pod))

    def _add_traffic(self, totals: hub_pb2.PodTraffic) -> None:
        plan = self.pods.assignment(totals.pod_uid)
        if self._traffic.add(totals) and plan is not None and plan.role == terms.ROLE_ACTIVATOR:
            # A held request waits for a replica, which the operator starts when it learns of the request.
            self.hub.send_traffic()

    def _pod_removed(self, uid: str) -> None:
        self.commit_coordinator.drop_pod(uid)
        self._committer.drop_pod(uid)
        self._models.drop_pod(uid)
        self._ranks.drop_pod(uid)
        self._states.copies.drop_pod(uid)
        self._traces.drop_pod(uid)
        self._telemetry.drop_pod(uid)
        self._traffic.drop_pod(uid)
        self.faults.drop_pod(uid)
        self.spot.notices.drop_pod(uid)

    def _deliver_model(self, message: hub_pb2.DeliverModel) -> None:
        if self.pods.get(message.pod_uid) is not None:
            self._models.deliver(message)

    def _report_store(self, report: hub_pb2.StoreReport) -> None:
        self.hub.report_store(report)

    def _held_jobs_changed(self) -> None:
        self.hub.held_jobs_changed()

    def _wake_hub(self) -> None:
        self.hub.wake()

    def _drop_job(self, job_uid: str) -> None:
        self._spawn(self._finish_job(job_uid))

    async def _finish_job(self, job_uid: str) -> None:
        await self.memory_manager.drop_job(job_uid)
        # If the memory could not be freed, keep the job's records. The hub sends DropJob again until this
        # agent stops reporting the job.
        if self.memory_manager.get(job_uid) is None:
            self._ledger.drop_job(job_uid)
            self._ranks.drop_job(job_uid)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
