"""The API server's audit log, which is the clock and the ledger of every figure.

An entry is written when a request is answered, by the one process that sees them all: nobody's own timers are
believed. Bodies are kept of the operator's status patches alone, for the phase they tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
# Kept alive by requests that tell nothing of a job.
_LEASES = "leases"
# Questions to the API server in the form of a POST: nothing is stored.
_REVIEWS = frozenset(
    {"tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews"}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One answered request."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    received: float
    """Unix seconds, as are all times here."""
    answered: float
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """True if the server carried the request out."""
        return 200 <= self.code < 300

    @property
    def wrote(self) -> bool:
        """True if the request changed an object that counts: Leases do not."""
        return (
            self.succeeded
            and self.verb in WRITES
            and self.resource != _LEASES
            and self.resource not in _REVIEWS
        )

    def is_a(self, verb: str, resource: str, subresource: str = "") -> bool:
        """Return True for a successful request of this kind."""
        return self.succeeded and (self.verb, self.resource, self.subresource) == (
            verb,
            resource,
            subresource,
        )


def parse(line: bytes) -> Entry | None:
    """The entry of one line; None for stages other than the last."""
    event = orjson.loads(line)
    if event.get("stage") != "ResponseComplete":
        return None
    about = event.get("objectRef") or {}
    name = about.get("name", "")
    body = event.get("requestObject") or {}
    return Entry(
        user=event.get("user", {}).get("username", ""),
        verb=event["verb"],
        resource=about.get("resource", ""),
        subresource=about.get("subresource", ""),
        namespace=about.get("namespace", ""),
        name=name,
        code=(event.get("responseStatus") or {}).get("code", 0),
        received=_unix(event["requestReceivedTimestamp"]),
        answered=_unix(event["stageTimestamp"]),
        body=body if isinstance(body, dict) else {},
    )


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class Log:
    """The file as it grows. `entries` holds what was read since the last `forget`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.entries: list[Entry] = []

    def read(self) -> list[Entry]:
        """Reads what is new; returns just that."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        # The last line may be half-written.
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        fresh = [entry for line in whole.splitlines() if (entry := parse(line)) is not None]
        self.entries += fresh
        return fresh

    def restart(self) -> None:
        """Reads up to now and starts with nothing."""
        self.read()
        self.entries = []


def writes(entries: Iterable[Entry], users: Iterable[str]) -> list[Entry]:
    """Return the writes of these users."""
    wanted = set(users)
    return [entry for entry in entries if entry.user in wanted and entry.wrote]


def last(entries: Iterable[Entry], which: Callable[[Entry], bool]) -> float | None:
    """Return the time of the last such reply; None without one."""
    return max((entry.answered for entry in entries if which(entry)), default=None)


def phases(entries: Iterable[Entry]) -> dict[str, list[tuple[float, str]]]:
    """Times and phases of each job's status."""
    found: dict[str, list[tuple[float, str]]] = {}
    for entry in entries:
        if entry.resource == "trainingjobs" and entry.subresource == "status" and entry.succeeded:
            phase = (entry.body.get("status") or {}).get("phase")
            if phase:
                found.setdefault(entry.name, []).append((entry.answered, phase))
    return found


def busiest(times: Iterable[float], seconds: float) -> int:
    """The most events that fall within any window of that length."""
    ordered = sorted(times)
    most = first = 0
    for index, at in enumerate(ordered):
        while at - ordered[first] > seconds:
            first += 1
        most = max(most, index - first + 1)
    return most


def policy(operator: str, controllers: Iterable[str]) -> dict[str, Any]:
    """Return the audit policy: every request of the controllers under test, every write of an object.

    `operator` is the user whose status patches are kept with their bodies.
    """
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
            {
                "level": "Request",
                "users": [operator],
                "verbs": ["patch"],
                "resources": [
                    {"group": "convoy.dev", "resources": ["trainingjobs/status", "healthsweeps/status"]}
                ],
            },
            {"level": "Metadata", "users": [operator, *controllers]},
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {
                "level": "None",
                "resources": [
                    {"group": "", "resources": ["events"]},
                    {"group": "events.k8s.io", "resources": ["events"]},
                ],
            },
            {"level": "Metadata"},
        ],
    }
