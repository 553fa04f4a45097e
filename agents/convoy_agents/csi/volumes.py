"""Publishes and unpublishes the pods' volumes. To publish is to make the pod's folder, listen on its socket
and mount the folder.

If the agent crashes between two of these steps, `Volumes.recover` of the next agent completes them.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Mapping
from pathlib import Path

import structlog

from convoy_agents import metrics
from convoy_agents.csi.folders import Folders, PodRecord
from convoy_agents.pods import state_file
from convoy_agents.pods.registry import Pods
from convoy_agents.pods.session import Hooks
from convoy_agents.pods.state import PodState
from convoy_crds.terms import MODEL_CONTENT, VOLUME_CONTENT

POD = "csi.storage.k8s.io/pod."
"""Prefix of the keys of pod fields in a volume's context. The kubelet adds these fields if the CSIDriver
has podInfoOnMount. A pod cannot set them.
"""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.ENFILE, errno.EMFILE)
RECOVER_SECONDS = 60.0

log = structlog.get_logger()


class InvalidVolume(ValueError):
    """A request of the kubelet lacks a field, or its fields contradict each other. The message names the
    field.
    """


class NoSpace(Exception):
    """The node has no space, memory or file descriptors left for a pod's folder."""


def save_state(folders: Folders, state: PodState) -> None:
    """Write the pod's keys, the addresses of its process group, and the pod's state for the agent that starts
    after this one. If a file cannot be written, log an error and continue.
    """
    plan = state.assignment
    try:
        # An assignment that an earlier agent saved has no key. Its file is still there.
        if plan is not None and plan.key:
            folders.write_key(state.uid, plan.key)
        if plan is not None and plan.job_key:
            folders.write_job_key(state.uid, plan.job_key)
    except OSError as error:
        log.error("key not written: the pod's ranks may fail", pod_uid=state.uid, why=str(error))
    try:
        if state.members is not None:
            folders.write_members(state.uid, state.members.to_json())
    except OSError as error:
        log.error("addresses of the process group not written", pod_uid=state.uid, why=str(error))
    try:
        # Write in this thread: one small file on a tmpfs takes less time than a thread switch. The file must
        # be complete before anyone is notified of the state.
        folders.save_session(state.uid, state_file.dump(state))
    except OSError as error:
        log.error("pod state not written: the next agent will not know it", pod_uid=state.uid, why=str(error))


class Volumes:
    """The volumes of this node. Requests are handled one at a time, since each takes only milliseconds."""

    def __init__(self, kubelet_dir: Path, folders: Folders, pods: Pods, hooks: Hooks) -> None:
        self._pods_dir = kubelet_dir / "pods"
        self._folders = folders
        self._pods = pods
        self._hooks = hooks
        self._turn = asyncio.Lock()

    async def publish(self, volume_id: str, target_path: str, context: Mapping[str, str]) -> None:
        """Mount the pod's folder at `target_path`. Idempotent. Raises InvalidVolume, NoSpace or OSError."""
        record = self._read(volume_id, target_path, context)
        async with self._turn:
            # A restarted kubelet publishes the volumes of running pods again. If such a call fails, the
            # folder of the running pod must stay. So clean up only for a volume that has no record yet.
            fresh = self._folders.of_volume(volume_id) is None
            try:
                record = await asyncio.to_thread(self._folders.prepare, record)
                await self._pods.open(PodState(record.uid), self._folders.socket(record), self._hooks)
                await asyncio.to_thread(self._folders.mount, record, volume_id)
            except OSError as error:
                log.error("publish failed", pod=f"{record.namespace}/{record.name}", why=str(error))
                if fresh:
                    await self._undo(volume_id, Path(target_path))
                if error.errno in FULL:
                    raise NoSpace(f"no space for the folder of pod {record.name}: {error}") from error
                raise
        log.info("published", pod=f"{record.namespace}/{record.name}", pod_uid=record.uid)

    async def unpublish(self, volume_id: str, target_path: str) -> None:
        """Unmount a volume. After a pod's last volume, also close the pod's session and remove its folder.

        Idempotent. Raises InvalidVolume for a request with invalid fields, or OSError if the unmount fails.
        """
        target = self._target(target_path)
        async with self._turn:
            record = await asyncio.to_thread(self._folders.unmount, volume_id, target)
            if record:
                await self._close_pod(record)
                log.info("unpublished", pod=f"{record.namespace}/{record.name}", pod_uid=record.uid)

    async def recover(self) -> None:
        """Recover the pods of an earlier agent: listen on their sockets again, and remove the folders of
        pods whose mounts are gone.
        """
        async with asyncio.timeout(RECOVER_SECONDS), self._turn:
            await asyncio.to_thread(self._folders.recover)
            await self._remove_stale()
            for record in self._folders.records():
                # If the earlier agent crashed while it made this folder, `prepare` completes the folder.
                await asyncio.to_thread(self._folders.prepare, record)
                state = self._load_state(record)
                await self._pods.open(state, self._folders.socket(record), self._hooks)
                self._hooks.advanced(state)
        log.info("recovered", pods=len(self._folders.records()))

    async def remove_stale(self) -> None:
        """Remove the folders of pods whose mounts are gone."""
        async with self._turn:
            await self._remove_stale()

    def _load_state(self, record: PodRecord) -> PodState:
        data = self._folders.read_session(record)
        try:
            return state_file.load(record.uid, data)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            log.error(
                "pod state not readable: starting from an empty one",
                pod_uid=record.uid,
                why=f"{type(error).__name__}: {error}",
            )
            return PodState(record.uid)

    async def _remove_stale(self) -> None:
        for record in await asyncio.to_thread(self._folders.stale):
            metrics.STALE_FOLDERS.inc()
            log.info("stale pod folder removed", pod=f"{record.namespace}/{record.name}", pod_uid=record.uid)
            await self._close_pod(record)

    async def _undo(self, volume_id: str, target: Path) -> None:
        try:
            if record := await asyncio.to_thread(self._folders.unmount, volume_id, target):
                await self._close_pod(record)
        except OSError as error:
            log.error("pod folder not removed", volume_id=volume_id, why=str(error))

    async def _close_pod(self, record: PodRecord) -> None:
        await self._pods.close(record.uid)
        await asyncio.to_thread(self._folders.remove, record)

    def _read(self, volume_id: str, target_path: str, context: Mapping[str, str]) -> PodRecord:
        if not volume_id or len(volume_id) > 256:
            raise InvalidVolume("volume_id: must have 1 to 256 characters")
        uid, name, namespace = (context.get(POD + field, "") for field in ("uid", "name", "namespace"))
        if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", uid):
            raise InvalidVolume(f"volume_context: {POD}uid is missing: set podInfoOnMount in the CSIDriver")
        target = self._target(target_path)
        if target.relative_to(self._pods_dir).parts[:1] != (uid,):
            raise InvalidVolume(f"target_path: must be in the folder of pod {uid}")
        owner = self._folders.of_volume(volume_id)
        if owner and owner.uid != uid:
            raise InvalidVolume(f"volume_id: already used by pod {owner.uid}")
        content = context.get(VOLUME_CONTENT, "")
        if content not in ("", MODEL_CONTENT):
            raise InvalidVolume(f"volume_context: {VOLUME_CONTENT} is {content!r}, not {MODEL_CONTENT!r}")
        models = (volume_id,) if content else ()
        return PodRecord(uid, name, namespace, {volume_id: str(target)}, models)

    def _target(self, target_path: str) -> Path:
        target = Path(target_path)
        if not target.is_relative_to(self._pods_dir) or ".." in target.parts or target == self._pods_dir:
            raise InvalidVolume(f"target_path: must be under {self._pods_dir}")
        return target
