"""The pods' folders on the node, the files that describe them, and their mounts.

    pods/<short>/            the folder that the pod sees, read-only: agent.sock, lib/
    state/<short>.json       the pod's names and the paths of its mounts
    state/<short>.memory.json   the state of the pod's session (pods/state_file.py)

Files are written without fsync: they matter only until the node's kernel, which holds the mounts, stops.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from convoy_agents.csi import library, mounts

SOCKET = "agent.sock"


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod of this node. `targets` maps the id of each of its volumes to its target path."""

    uid: str
    name: str
    namespace: str
    targets: dict[str, str]

    @property
    def short(self) -> str:
        """The name of the pod's folder: short enough for the path of a socket. A pod cannot choose it."""
        return hashlib.sha256(self.uid.encode()).hexdigest()[:16]


class Folders:
    """The pods' folders. All methods block: call them from a thread, one at a time."""

    def __init__(self, run_dir: Path, library_dir: Path) -> None:
        self._pods = run_dir / "pods"
        self._state = run_dir / "state"
        self._library = library_dir
        self._records: dict[str, PodRecord] = {}
        self._pods.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)

    def records(self) -> list[PodRecord]:
        """Return the records of all pods of this node."""
        return list(self._records.values())

    def of_volume(self, volume_id: str) -> PodRecord | None:
        """Return the pod that a volume belongs to; None for an unknown volume."""
        return next((entry for entry in self._records.values() if volume_id in entry.targets), None)

    def socket(self, record: PodRecord) -> Path:
        """Return the path of the pod's socket."""
        return self._pods / record.short / SOCKET

    def prepare(self, record: PodRecord) -> PodRecord:
        """Record the pod's volumes, known and new ones, and make its folder. OSError when that fails."""
        known = self._records.get(record.uid)
        if known:
            record = replace(known, targets={**known.targets, **record.targets})
        if record != known:
            _write_json(self._state / f"{record.short}.json", asdict(record))
            self._records[record.uid] = record
        folder = self._pods / record.short
        folder.mkdir(mode=0o755, exist_ok=True)
        folder.chmod(0o755)
        if not (folder / "lib").is_dir():
            library.link(self._library, folder / "lib")
        return record

    def mount(self, record: PodRecord, volume_id: str) -> None:
        """Mount the pod's folder at the volume's target path. Idempotent. OSError as mount(2)."""
        source, target = self._pods / record.short, Path(record.targets[volume_id])
        target.mkdir(mode=0o750, parents=True, exist_ok=True)
        if not mounts.shows(source, target):
            mounts.unmount(target)
            mounts.bind_read_only(source, target)

    def unmount(self, volume_id: str, target: Path) -> PodRecord | None:
        """Unmount a volume. Return the pod's record if that was its last volume. Idempotent. OSError as
        umount2(2).
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
        """Remove a pod's record and folder. OSError when a file cannot be removed."""
        folder = self._pods / record.short
        if folder.exists():
            shutil.rmtree(folder)
        (self._state / f"{record.short}.memory.json").unlink(missing_ok=True)
        (self._state / f"{record.short}.json").unlink(missing_ok=True)
        self._records.pop(record.uid, None)

    def save_session(self, uid: str, memory: dict[str, Any]) -> None:
        """Write the state of the pod's session. OSError when that fails."""
        if record := self._records.get(uid):
            _write_json(self._state / f"{record.short}.memory.json", memory)

    def read_session(self, record: PodRecord) -> dict[str, Any]:
        """Return the session state that an earlier agent wrote; empty if there is none or the file cannot
        be read.
        """
        data = _read_json(self._state / f"{record.short}.memory.json")
        return data if isinstance(data, dict) else {}

    def recover(self) -> None:
        """Read the records that an earlier agent left. Remove folders and state files that belong to no
        known pod.
        """
        for path in self._state.glob("*.json"):
            if path.name.endswith(".memory.json"):
                continue
            with contextlib.suppress(TypeError, KeyError):
                data = _read_json(path)
                record = PodRecord(data["uid"], data["name"], data["namespace"], dict(data["targets"]))
                if path.stem == record.short:
                    self._records[record.uid] = record
        known = {record.short for record in self._records.values()}
        used = {Path(entry.root).name for entry in mounts.table()}
        for folder in self._pods.iterdir():
            if folder.name not in known | used:
                shutil.rmtree(folder, ignore_errors=True)
        for path in self._state.iterdir():
            if path.name.split(".")[0] not in known:
                path.unlink(missing_ok=True)

    def stale(self) -> list[PodRecord]:
        """Return the pods of which no target path is a mount any more: the kubelet has removed their
        volumes.
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
