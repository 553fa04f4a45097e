"""The record of a fault: the order, its state, and how to undo its changes.

The file is complete on disk before the change that it undoes. Like all files in the run folder, it is gone
after a reboot of the node, together with all that a fault changes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from convoy_agents.wire import hub_pb2

MAX_RECORDS = 64
"""Maximum number of records. The oldest of the faults that are over is removed first."""
ID = re.compile(r"[a-z0-9]([-.a-z0-9]{0,98}[a-z0-9])?")
"""Matches a valid id. It is the name of the record's file."""

log = structlog.get_logger()


class Order(NamedTuple):
    """An order for a fault."""

    id: str
    pod_uid: str
    owner_uid: str
    job_uids: tuple[str, ...]
    kind: str
    magnitude: float
    seconds: float
    rank: int = 0
    volume: str = ""


def from_wire(message: hub_pb2.InjectFault) -> Order:
    """Return the order in a message of the hub."""
    return Order(
        message.id,
        message.pod_uid,
        message.owner_uid,
        tuple(message.job_uids),
        message.kind,
        message.magnitude,
        message.seconds,
        message.rank,
        message.volume,
    )


@dataclass(slots=True)
class Record:
    """A fault that this agent or an earlier one has started."""

    order: Order
    undo: dict[str, Any] = field(default_factory=dict)
    """Data that the fault's kind needs to undo its changes."""
    injected_ms: int = 0
    """Unix milliseconds at which the fault took effect; 0 until then."""
    undone_ms: int = 0
    """Unix milliseconds at which the fault was over; 0 until then."""
    achieved: float | None = None
    """Measured magnitude; None before the first measurement."""
    message: str = ""

    @property
    def over(self) -> bool:
        """Return True if the fault is undone."""
        return self.undone_ms > 0


class Records:
    """The records of one node, in the order in which the faults started. All methods block."""

    def __init__(self, folder: Path, kinds: Collection[str]) -> None:
        """`kinds`: the kinds of faults that this agent can undo."""
        self._folder = folder
        self._kinds = kinds
        self._records: dict[str, Record] = {}

    def get(self, fault_id: str) -> Record | None:
        """Return a record; None if there is none."""
        return self._records.get(fault_id)

    def all(self) -> list[Record]:
        """Return all records, the oldest first."""
        return list(self._records.values())

    def load(self) -> None:
        """Read the records that an earlier agent left. Remove files that are not complete."""
        found: list[tuple[float, Record]] = []
        for path in self._folder.glob("*"):
            try:
                data = json.loads(path.read_text())
                order = Order(*data.pop("order"))
                record = Record(order._replace(job_uids=tuple(order.job_uids)), **data)
                if path.name != f"{record.order.id}.json" or record.order.kind not in self._kinds:
                    raise ValueError("the file has another fault's name, or its kind is unknown")
            except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
                # A record is complete before its fault, so this one belongs to a fault that never began.
                log.error("record of a fault not readable, removed", file=path.name, why=str(error))
                path.unlink(missing_ok=True)
                continue
            found.append((path.stat().st_mtime, record))
        self._records = {one.order.id: one for _, one in sorted(found, key=lambda pair: pair[0])}

    def save(self, record: Record) -> None:
        """Write a record to disk and wait until it is there. Raises OSError if that fails."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{record.order.id}.json"
        fresh = path.with_suffix(".new")
        try:
            with fresh.open("w") as file:
                json.dump(asdict(record), file)
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(path)
            _sync(self._folder)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        self._records[record.order.id] = record
        self._trim()

    def remove(self, fault_id: str) -> None:
        """Remove a record and its file."""
        self._records.pop(fault_id, None)
        (self._folder / f"{fault_id}.json").unlink(missing_ok=True)

    def _trim(self) -> None:
        over = [one.order.id for one in self._records.values() if one.over]
        for fault_id in over[: max(0, len(self._records) - MAX_RECORDS)]:
            self.remove(fault_id)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
