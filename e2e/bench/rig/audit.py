"""Reads the API server's audit log, from which the bench takes all times and counts of requests.

The API server writes an entry when it answers a request. It sees every request, so all times are from one
clock. Bodies are logged only for the operator's status patches, because those contain phases and verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
# Components renew Leases as heartbeats. These writes have nothing to do with jobs, so they do not count.
_LEASES = "leases"
# A POST of these kinds is a query that stores nothing, so it does not count as a write.
_REVIEWS = frozenset(
    {"tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews"}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A request and its response. Times are Unix seconds."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    received: float
    """Unix seconds at which the API server received the request."""
    answered: float
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """True if the server carried out the request."""
        return 200 <= self.code < 300

    @property
    def wrote(self) -> bool:
        """True if the request changed a stored object that is not a Lease."""
        return (
            self.succeeded
            and self.verb in WRITES
            and self.resource != _LEASES
            and self.resource not in _REVIEWS
        )

    def is_a(self, verb: str, resource: str, subresource: str = "") -> bool:
        """Return True if this is a successful request with this verb, resource and subresource."""
        return self.succeeded and (self.verb, self.resource, self.subresource) == (
            verb,
            resource,
            subresource,
        )


def parse(line: bytes) -> Entry | None:
    """Return the entry of a log line. None if the line does not mark the end of a request (stage
    ResponseComplete).
    """
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
    """Reads a growing log file. `entries` holds all entries read since the last `restart`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.entries: list[Entry] = []

    def read(self) -> list[Entry]:
        """Return the entries that were added since the last call, and append them to `entries`."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        # The server may be in the middle of the last line, so read only complete lines.
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        fresh = [entry for line in whole.splitlines() if (entry := parse(line)) is not None]
        self.entries += fresh
        return fresh

    def restart(self) -> None:
        """Skip all entries written so far and clear `entries`."""
        self.read()
        self.entries = []


def writes(entries: Iterable[Entry], users: Iterable[str]) -> list[Entry]:
    """Return those requests of `users` that changed a stored object."""
    wanted = set(users)
    return [entry for entry in entries if entry.user in wanted and entry.wrote]


def last(entries: Iterable[Entry], which: Callable[[Entry], bool]) -> float | None:
    """Return the Unix time at which the server answered the last matching request; None if none matches."""
    return max((entry.answered for entry in entries if which(entry)), default=None)


def phases(entries: Iterable[Entry]) -> dict[str, list[tuple[float, str]]]:
    """Return, by job name, (Unix time, phase) of each status patch."""
    found: dict[str, list[tuple[float, str]]] = {}
    for entry in entries:
        if entry.resource == "trainingjobs" and entry.subresource == "status" and entry.succeeded:
            phase = (entry.body.get("status") or {}).get("phase")
            if phase:
                found.setdefault(entry.name, []).append((entry.answered, phase))
    return found


def busiest(times: Iterable[float], seconds: float) -> int:
    """Return the largest number of `times` within one interval of `seconds`, over all such intervals."""
    ordered = sorted(times)
    most = first = 0
    for index, at in enumerate(ordered):
        while at - ordered[first] > seconds:
            first += 1
        most = max(most, index - first + 1)
    return most


def policy(operator: str, controllers: Iterable[str]) -> dict[str, Any]:
    """Return an audit policy. It logs every request of `operator` and `controllers`, and the writes of all
    other users.

    Requests for Leases and other users' Events are not logged. The bodies of the operator's status patches
    are logged too.
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
                    {
                        "group": "convoy.dev",
                        "resources": ["trainingjobs/status", "servingjobs/status", "healthsweeps/status"],
                    }
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
