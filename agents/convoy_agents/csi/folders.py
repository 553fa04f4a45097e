"""The pods' folders on the node, the files that describe them, and their mounts.

    pods/<short>/               the folder that the pod sees, read-only: agent.sock, incarnation.key, job.key,
                                lib/, members.json
                                (a volume for a model shows another folder: models/folders.py)
    state/<short>.json          the pod's names and the paths of its mounts
    state/<short>.memory.json   the state of the pod's session (pods/state_file.py)

Files are written without fsync: they are useless after a reboot of the node, because the mounts are gone
too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from convoy_agents.csi import library, mounts
from convoy_agents.models.folders import ModelFolders
from convoy_crds.terms import MEMBERS_FILE, NOTICE_FILE

SOCKET = "agent.sock"
KEY = "incarnation.key"
JOB_KEY = "job.key"


def short_name(uid: str) -> str:
    """Return the name of a pod's folders: a hash of the pod's uid. The name is short enough for a socket's
    path, and the pod cannot choose it.
    """
    return hashlib.sha256(uid.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class PodRecord:
    """The names of a pod on this node, and its volumes."""

    uid: str
    name: str
    namespace: str
    targets: dict[str, str]
    """Target path of each volume, by volume id."""
    models: tuple[str, ...] = ()
    """Ids of the volumes for a model."""

    @property
    def short(self) -> str:
        """Return the name of the pod's folders."""
        return short_name(self.uid)


class Folders:
    """The folders of all pods on this node. All methods block: call them in a thread, one at a time."""

    def __init__(self, run_dir: Path, library_dir: Path, models: ModelFolders) -> None:
        self._pods = run_dir / "pods"
        self._state = run_dir / "state"
        self._library = library_dir
        self._models = models
        self._records: dict[str, PodRecord] = {}
        self._pods.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A pod sees its own folder by a mount. Users of the node other than root see none, because any user
        # of the pod may use the socket and read the key.
        self._pods.chmod(0o700)
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)

    def records(self) -> list[PodRecord]:
        """Return the records of all pods on this node."""
        return list(self._records.values())

    def of_volume(self, volume_id: str) -> PodRecord | None:
        """Return the record of the pod that a volume belongs to; None for an unknown volume."""
        return next((entry for entry in self._records.values() if volume_id in entry.targets), None)

    def socket(self, record: PodRecord) -> Path:
        """Return the path of the pod's socket."""
        return self._pods / record.short / SOCKET

    def prepare(self, record: PodRecord) -> PodRecord:
        """Create the pod's folder, and add the volumes in `record` to the pod's record. Return the merged
        record.

        Raises OSError if a file or folder cannot be created.
        """
        known = self._records.get(record.uid)
        if known:
            models = tuple(sorted({*known.models, *record.models}))
            record = replace(known, targets={**known.targets, **record.targets}, models=models)
        if record != known:
            _write_json(self._state / f"{record.short}.json", asdict(record))
            self._records[record.uid] = record
        folder = self._pods / record.short
        folder.mkdir(mode=0o755, exist_ok=True)
        folder.chmod(0o755)
        if not (folder / "lib").is_dir():
            library.link(self._library, folder / "lib")
        if record.models:
            self._models.prepare_pod(record.short)
        return record

    def mount(self, record: PodRecord, volume_id: str) -> None:
        """Mount a folder of the pod at the volume's target path: that for the model, or that with the
        socket. Idempotent. Raises the OSError of mount(2).
        """
        own, target = self._pods / record.short, Path(record.targets[volume_id])
        source = self._models.pod(record.short) if volume_id in record.models else own
        target.mkdir(mode=0o750, parents=True, exist_ok=True)
        if not mounts.shows(source, target):
            mounts.unmount(target)
            mounts.bind_read_only(source, target)

    def unmount(self, volume_id: str, target: Path) -> PodRecord | None:
        """Unmount a volume. Return the pod's record if it was the pod's last volume; None otherwise.

        Idempotent. Raises the OSError of umount2(2).
        """
        mounts.unmount(target)
        with contextlib.suppress(FileNotFoundError):
            target.rmdir()
        record = self.of_volume(volume_id)
        if record is None:
            return None
        left = {key: path for key, path in record.targets.items() if key != volume_id}
        record = replace(record, targets=left)
        self._records[record.uid] = record
        if not left:
            return record
        _write_json(self._state / f"{record.short}.json", asdict(record))
        return None

    def remove(self, record: PodRecord) -> None:
        """Remove a pod's record and folders. Raises OSError if a file cannot be removed."""
        self._models.remove_pod(record.short)
        folder = self._pods / record.short
        if folder.exists():
            shutil.rmtree(folder)
        (self._state / f"{record.short}.memory.json").unlink(missing_ok=True)
        (self._state / f"{record.short}.json").unlink(missing_ok=True)
        self._records.pop(record.uid, None)

    def save_session(self, uid: str, memory: dict[str, Any]) -> None:
        """Write the state of the pod's session to its file. Raises OSError if the file cannot be written."""
        if record := self._records.get(uid):
            _write_json(self._state / f"{record.short}.memory.json", memory)

    def write_key(self, uid: str, key: bytes) -> None:
        """Replace the file with the key of the pod's incarnation. Any user of the pod may read it. Raises
        OSError if the file cannot be written.
        """
        self._write_for_pod(uid, KEY, key.hex() + "\n")

    def write_job_key(self, uid: str, key: bytes) -> None:
        """Write the file with the key of the pod's job. Any user of the pod may read it. Raises OSError if
        the file cannot be written.
        """
        self._write_for_pod(uid, JOB_KEY, key.hex() + "\n")

    def write_members(self, uid: str, members: dict[str, Any]) -> None:
        """Replace the file with the addresses of the job's process group. Any user of the pod may read it.
        Raises OSError if the file cannot be written.
        """
        self._write_for_pod(uid, MEMBERS_FILE, json.dumps(members) + "\n")

    def write_notice(self, uid: str, notice: Mapping[str, Any] | None) -> None:
        """Replace the file with the notice about the pod's node; remove it without a notice. Any user of the
        pod may read it. Raises OSError if the file cannot be written.
        """
        if notice is not None:
            self._write_for_pod(uid, NOTICE_FILE, json.dumps(notice) + "\n")
        elif record := self._records.get(uid):
            (self._pods / record.short / NOTICE_FILE).unlink(missing_ok=True)

    def _write_for_pod(self, uid: str, name: str, text: str) -> None:
        """Replace a file in the folder that the pod sees."""
        if record := self._records.get(uid):
            path = self._pods / record.short / name
            fresh = path.with_name(path.name + ".new")
            try:
                fresh.write_text(text)
                fresh.chmod(0o444)
                fresh.rename(path)
            except OSError:
                fresh.unlink(missing_ok=True)
                raise

    def read_session(self, record: PodRecord) -> dict[str, Any]:
        """Return the session state that an earlier agent wrote. Return an empty mapping if the file is
        missing or unreadable.
        """
        data = _read_json(self._state / f"{record.short}.memory.json")
        return data if isinstance(data, dict) else {}

    def recover(self) -> None:
        """Read the pod records that an earlier agent left. Remove the state files that belong to no such
        record, and the pods' folders that have neither a record nor a mount.
        """
        for path in self._state.glob("*.json"):
            if path.name.endswith(".memory.json"):
                continue
            with contextlib.suppress(TypeError, KeyError):
                data = _read_json(path)
                record = PodRecord(
                    data["uid"],
                    data["name"],
                    data["namespace"],
                    dict(data["targets"]),
                    # An agent that knew no models left none. Its pods go on under this one.
                    tuple(data.get("models", ())),
                )
                if path.stem == record.short:
                    self._records[record.uid] = record
        known = {record.short for record in self._records.values()}
        used = {Path(entry.root).name for entry in mounts.table()}
        for folder in self._pods.iterdir():
            if folder.name not in known | used:
                shutil.rmtree(folder, ignore_errors=True)
        self._models.recover(known | used)
        for path in self._state.iterdir():
            if path.name.split(".")[0] not in known:
                path.unlink(missing_ok=True)

    def stale(self) -> list[PodRecord]:
        """Return the records of pods of which no volume is mounted any more. The kubelet has then removed
        these volumes.
        """
        targets = {entry.target for entry in mounts.table()}
        return [entry for entry in self._records.values() if targets.isdisjoint(entry.targets.values())]


def _write_json(path: Path, data: object) -> None:
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_text(json.dumps(data))
        fresh.rename(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
