"""The notices that this agent knows, for the hub.

A notice holds as long as its source repeats it. A program's report holds until some time after its deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from convoy_agents.spot.draining import Draining
from convoy_agents.spot.source import Finding
from convoy_agents.wire import hub_pb2
from convoy_crds.spotpool_status import NoticeKind, NoticeSource

KEEP_SECONDS = 600.0
"""Seconds after its deadline for which a notice is kept."""
AGAIN_SECONDS = 1.0
"""Two deadlines that differ by less are the same: services round them."""
MAX_REPORTS = 1024
"""Maximum number of programs' reports on one node. Further ones are dropped."""
MAX_PROBLEM = 200
"""Maximum length of a message about the metadata service, in characters."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A notice, and the time at which its source first gave it."""

    at: float
    deadline: float


class Notices:
    """All notices of one agent."""

    def __init__(
        self, boot_id: str, wake: Callable[[], None], clock: Callable[[], float] = time.time
    ) -> None:
        """`wake` is called when a message to the hub is due. `clock` returns Unix seconds."""
        self._boot_id = boot_id
        self._wake = wake
        self._clock = clock
        self._source = NoticeSource.FAKE
        self._findings: dict[tuple[NoticeKind, str], _Known] = {}
        """The notices of the metadata service, by kind and provider id."""
        self._reports: dict[tuple[str, str], _Known] = {}
        """The reports of programs, by uid of the pod and reported node."""
        self._poll: hub_pb2.NoticePoll | None = None
        """The state of the polls of the metadata service; None before the first poll."""
        self._stopping = 0.0
        """Unix seconds at which the agent was told to stop; 0 until then."""
        self._due = False

    def set_findings(
        self, source: NoticeSource, findings: Iterable[Finding], *, complete: bool = True
    ) -> None:
        """Replace the notices of the metadata service by those in its newest reply. If a part of the reply
        was not readable, `complete` is False, and earlier notices stay.
        """
        now = self._clock()
        oldest = now - KEEP_SECONDS
        found: dict[tuple[NoticeKind, str], _Known] = {}
        for one in findings:
            if 0 < one.deadline < oldest:
                continue  # The service repeats an old notice, and the node is still there.
            key = one.kind, one.provider_id
            before = self._findings.get(key)
            known = _Known(before.at if before is not None else now, one.deadline)
            if before is not None and abs(known.deadline - before.deadline) < AGAIN_SECONDS:
                known = before
            # Two events may concern one machine: the earlier deadline counts.
            if key not in found or 0 < known.deadline < (found[key].deadline or float("inf")):
                found[key] = known
        if not complete:
            kept = {key: one for key, one in self._findings.items() if not 0 < one.deadline < oldest}
            found = {**kept, **found}
        if found != self._findings or (found and source is not self._source):
            self._findings = found
            self._changed()
        self._source = source

    def set_poll(self, metadata: str, problem: str = "") -> None:
        """Record the result of a poll of this metadata service; `problem` is empty if the poll succeeded. Of
        successive problems the first is reported, so a service that fails all the time causes one message.
        """
        before = self._poll
        if before is None or before.metadata != metadata or bool(before.problem) != bool(problem):
            self._poll = hub_pb2.NoticePoll(metadata=metadata, problem=problem[:MAX_PROBLEM])
            self._changed()

    def stop_polls(self) -> None:
        """Record that no metadata service is polled any more, or that another one is."""
        if self._poll is not None:
            self._poll = None
            self._changed()

    def report(self, pod_uid: str, draining: Draining) -> None:
        """Record the report of a pod's program."""
        key = pod_uid, draining.node
        before = self._reports.get(key)
        if before is not None and abs(before.deadline - draining.deadline) < AGAIN_SECONDS:
            return
        self._drop_expired()
        if before is None and len(self._reports) >= MAX_REPORTS:
            return
        self._reports[key] = _Known(before.at if before is not None else self._clock(), draining.deadline)
        self._changed()

    def drop_pod(self, uid: str) -> None:
        """Drop the reports of a pod that left the node."""
        kept = {key: one for key, one in self._reports.items() if key[0] != uid}
        if len(kept) != len(self._reports):
            self._reports = kept
            self._changed()

    def stopping(self) -> None:
        """Record that the agent was told to stop. The hub knows whether the node shuts down, or whether only
        the agent is replaced.
        """
        self._stopping = self._clock()
        self._changed()

    def pop_message(self, again: bool) -> hub_pb2.Notices | None:
        """Return all notices if they have changed since the last call, else None. `again` is True at the
        start of a session, and then the result is never None.
        """
        if not (self._due or again):
            return None
        self._due = False
        self._drop_expired()
        message = hub_pb2.Notices(boot_id=self._boot_id, poll=self._poll)
        for (kind, provider_id), one in self._findings.items():
            _add(message, self._source, one, kind=kind, provider_id=provider_id)
        for (pod_uid, node), one in self._reports.items():
            _add(message, NoticeSource.RAY, one, pod_uid=pod_uid, node=node)
        if self._stopping:
            _add(message, NoticeSource.SIGTERM, _Known(self._stopping, 0.0))
        return message

    def _drop_expired(self) -> None:
        oldest = self._clock() - KEEP_SECONDS
        self._reports = {key: one for key, one in self._reports.items() if one.deadline >= oldest}

    def _changed(self) -> None:
        self._due = True
        self._wake()


def _add(
    message: hub_pb2.Notices,
    source: NoticeSource,
    known: _Known,
    *,
    kind: NoticeKind = NoticeKind.PREEMPTION,
    **place: str,
) -> None:
    message.notices.add(
        source=source.value,
        kind=kind.value,
        at_unix_ms=int(known.at * 1000),
        deadline_unix_ms=int(known.deadline * 1000),
        **place,
    )
