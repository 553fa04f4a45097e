"""Delivers models to pods: downloads each generation once, and links its files into the pods' folders.

Pods that want the same generation share one download. A delivery that fails is retried until the pod leaves
the node. A cause that may pass soon, such as a store that does not respond, is reported only after some time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import structlog

from convoy_agents import metrics
from convoy_agents.backoff import Backoff
from convoy_agents.csi.folders import short_name
from convoy_agents.models.download import fetch
from convoy_agents.models.folders import ModelFolders
from convoy_agents.models.source import Failure, ModelError, ModelSource, ModelState, from_wire
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.stores.errors import Stopped, StoreError
from convoy_agents.tiercheck.stores.job_folders import JobFolder
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.wire import hub_pb2

PATIENCE_SECONDS = 20.0
"""Seconds for which a cause that may pass soon is not reported."""
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 120.0
"""First and longest pause between two attempts."""
DAMAGED_SECONDS = 900.0
"""Pause after an attempt that found damage, because it may have read a large part of the model."""
PROGRESS_SECONDS = 1.0
"""Seconds between two reports of progress."""
MAX_DOWNLOADS = 2
"""Maximum number of downloads at the same time. Each has several threads."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Delivery:
    """The delivery to one pod."""

    state: ModelState
    task: asyncio.Task[None] | None = None
    failing_since: float | None = None
    """Monotonic time of the first of the failures since the last success; None without one."""
    pause: Backoff = field(default_factory=lambda: Backoff(RETRY_SECONDS, MAX_RETRY_SECONDS))


class ModelDeliveries:
    """The deliveries to the pods of one node."""

    def __init__(
        self, folders: ModelFolders, remotes: Remotes, report: Callable[[str, ModelState], None]
    ) -> None:
        """`report`: called with the uid of a pod and the state of its delivery, at each change."""
        self._folders = folders
        self._remotes = remotes
        self._report = report
        self._deliveries: dict[str, _Delivery] = {}
        """Deliveries by pod uid. A delivery stays until the pod leaves the node."""
        self._downloads: dict[str, asyncio.Task[None]] = {}
        """Running downloads, by key of the generation."""
        self._turns = asyncio.Semaphore(MAX_DOWNLOADS)

    def deliver(self, message: hub_pb2.DeliverModel) -> None:
        """Start a delivery to a pod, unless the same one runs or has succeeded. A delivery of another
        generation to the same pod is cancelled.
        """
        uid, source = message.pod_uid, from_wire(message.source)
        known = self._deliveries.get(uid)
        if known is not None and known.state.source == source:
            self._report(uid, known.state)  # The hub may have missed the report.
            return
        self.drop_pod(uid)
        delivery = self._deliveries[uid] = _Delivery(ModelState(source))
        self._report(uid, delivery.state)
        delivery.task = asyncio.create_task(self._run(uid, delivery))

    def drop_pod(self, uid: str) -> None:
        """Cancel the delivery to a pod that left the node, and a download that no other pod wants."""
        delivery = self._deliveries.pop(uid, None)
        if delivery is None or delivery.task is None:
            return
        delivery.task.cancel()
        key = delivery.state.source.key
        if all(one.state.source.key != key for one in self._deliveries.values()) and key in self._downloads:
            self._downloads[key].cancel()

    async def close(self) -> None:
        """Cancel all deliveries and downloads."""
        tasks = [one.task for one in self._deliveries.values() if one.task] + list(self._downloads.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self, seconds: float) -> None:
        """Remove unused generations every `seconds`, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self._folders.remove_unused)
                metrics.MODEL_BYTES.set(await asyncio.to_thread(lambda: self._folders.used_bytes))
            except OSError as error:
                log.warning("unused models not removed", why=str(error))
            await asyncio.sleep(seconds)

    async def _run(self, uid: str, delivery: _Delivery) -> None:
        source = delivery.state.source
        while True:
            try:
                if await self._delivered(uid, source):
                    self._set(uid, delivery, ModelState(source, ready=True))
                    log.info("model delivered", pod_uid=uid, step=source.step, key=source.key)
                    return
            except ModelError as error:
                self._failed(uid, delivery, error)
            except StoreError as error:
                why = ModelError(Failure.STORE_UNREACHABLE, str(error), transient=error.retriable)
                self._failed(uid, delivery, why)
            except OSError as error:
                self._failed(uid, delivery, ModelError(Failure.NOT_STORED, f"the node's disk: {error}"))
            except ValueError as error:
                # The order's namespace or uid is no folder of a store.
                self._failed(uid, delivery, ModelError(Failure.NOT_FOUND, str(error)))
            except Stopped:
                pass  # The settings of the store have changed, or another pod's end cancelled the download.
            except Exception as error:
                # A delivery must never end without a result, because the pod would wait for ever.
                log.exception("delivery failed", pod_uid=uid)
                message = f"an error of the agent, see its log: {type(error).__name__}: {error}"
                self._failed(uid, delivery, ModelError(Failure.NOT_STORED, message))
            damaged = delivery.state.failure is Failure.DIGEST_MISMATCH
            await asyncio.sleep(DAMAGED_SECONDS if damaged else delivery.pause.next())

    async def _delivered(self, uid: str, source: ModelSource) -> bool:
        """Download the generation if it is not on this node, and link it into the pod's folder. Return False
        if the kubelet has not requested the pod's volume yet.
        """
        short = short_name(uid)
        if await asyncio.to_thread(self._folders.handed_over, short):
            return True
        if not await asyncio.to_thread(self._folders.has, source.key):
            await self._download(source)
        return await asyncio.to_thread(self._folders.hand_over, source.key, short)

    async def _download(self, source: ModelSource) -> None:
        """Wait for the download of a generation, which several pods may share."""
        task = self._downloads.get(source.key)
        if task is None:
            task = asyncio.create_task(self._fetch(source))
            self._downloads[source.key] = task
            task.add_done_callback(partial(self._ended, source.key))
        await asyncio.wait({task})
        if task.cancelled():
            raise Stopped
        task.result()

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        if self._downloads.get(key) is task:
            del self._downloads[key]
        if not task.cancelled():
            task.exception()  # Mark it as retrieved: the pods that waited may be gone.

    async def _fetch(self, source: ModelSource) -> None:
        loop, started, last = asyncio.get_running_loop(), time.monotonic(), 0.0

        def progress() -> None:
            nonlocal last
            if (now := time.monotonic()) - last >= PROGRESS_SECONDS:
                last = now
                with suppress(RuntimeError):  # The event loop is closed.
                    loop.call_soon_threadsafe(self._progressed, source)

        def do(store: Store, stop: threading.Event) -> None:
            fetch(store, source, self._folders, stop, progress)

        try:
            async with self._turns:
                await self._remotes.read(source.store, JobFolder(source.namespace, source.job_uid), do)
        except Exception:
            metrics.MODEL_DOWNLOADS.labels("failed").inc()
            raise
        metrics.MODEL_DOWNLOADS.labels("done").inc()
        log.info(
            "model downloaded",
            store=source.store,
            step=source.step,
            key=source.key,
            seconds=round(time.monotonic() - started, 2),
        )

    def _progressed(self, source: ModelSource) -> None:
        now = int(time.time() * 1000)
        for uid, delivery in self._deliveries.items():
            state = delivery.state
            if state.source.key == source.key and not state.ready and state.failure is Failure.NONE:
                self._set(uid, delivery, ModelState(source, progress_ms=now))

    def _failed(self, uid: str, delivery: _Delivery, error: ModelError) -> None:
        log.warning("model not delivered", pod_uid=uid, why=str(error), cause=error.failure.value)
        now = time.monotonic()
        delivery.failing_since = now if delivery.failing_since is None else delivery.failing_since
        if error.transient and now - delivery.failing_since < PATIENCE_SECONDS:
            return
        state = ModelState(delivery.state.source, failure=error.failure, message=str(error))
        self._set(uid, delivery, state)

    def _set(self, uid: str, delivery: _Delivery, state: ModelState) -> None:
        if state != delivery.state and self._deliveries.get(uid) is delivery:
            delivery.state = state
            self._report(uid, state)
