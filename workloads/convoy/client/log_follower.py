"""Follows the logs of a job's pods until the job ends. Pods that start later are included.

A scan every few seconds finds the existing logs. One thread per log reads each log whose container has
started. If a read fails or is interrupted, the next read skips the lines that were already shown, by the
times of the lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from threading import Event, Thread

from convoy.client.errors import ApiError, ConvoyError, Forbidden, Unreachable
from convoy.client.log_position import LogPosition, split_timestamp
from convoy.client.pod_logs import Notify, PodLog
from convoy.client.watch import BUSY
from convoy_crds.shown import error_line
from convoy_crds.summaries import shorten_list

SCAN_SECONDS = 3.0
"""Seconds between two scans for the logs of the job's pods."""
MAX_RETRY_SECONDS = 60.0
"""Maximum number of seconds before a failed log is read again."""
BROKE_OFF_SECONDS = 60.0
"""Seconds of reading after which a failed read counts as a connection that broke off. The user gets no
notice of such a failure, unless the retry fails sooner than this.
"""
OUTAGE_SECONDS = 300.0
"""Seconds for which consecutive scans may fail before the follower gives up."""
DRAIN_SECONDS = 30.0
"""Seconds for which the follower still reads the logs of running containers after the job has ended."""
MAX_NAMED = 3
"""Maximum number of logs that one notice names. The notice gives the number of further logs."""
QUEUE_LINES = 1000
"""Maximum number of lines, of all logs together, that wait for the consumer. If the queue is full, the
reader threads wait.
"""
_PUT_TIMEOUT_SECONDS = 0.5
"""Seconds that a reader thread waits for space in the queue before it checks whether the consumer still
exists.
"""


@dataclass(frozen=True, slots=True)
class PodLogs:
    """The logs of the job's pods that exist at the time of one scan."""

    logs: tuple[PodLog, ...]
    ended: bool
    """True if the job has ended or was deleted."""


@dataclass(slots=True)
class ReadState:
    """The state of reading one log. Times are in seconds of the follower's clock."""

    name: str
    started_at: float = 0.0
    running: bool = False
    last: bool = False
    """True if the latest read started after the job's end. Then no further read follows."""
    position: LogPosition = field(default_factory=LogPosition)
    """Position in the log of the last line that was shown."""
    clean: bool = False
    """True if the last read reached the end of the log."""
    error: ConvoyError | None = None
    """Error of the last read; None if the last read had no error."""
    failures: int = 0
    """Number of failed reads since the last read that succeeded or broke off (`BROKE_OFF_SECONDS`)."""
    retry_at: float = 0.0
    """Monotonic time in seconds before which no further read starts."""
    prefix: str = ""
    """Text in front of each line that is shown."""

    def due(self, log: PodLog, now: float, job_ended: bool) -> bool:
        """Return True if a read of the log must start now."""
        if self.running or self.last or not log.started or (self.clean and log.ended):
            return False
        return job_ended or now >= self.retry_at

    def settled(self, log: PodLog) -> bool:
        """Return True if this log must not be read again, given that the job has ended."""
        return not log.started or (not self.running and (self.last or (self.clean and log.ended)))

    def start(self, now: float, job_ended: bool) -> None:
        """Record the start of a read. Every read begins with the first line of the log."""
        self.running, self.started_at, self.last = True, now, job_ended
        self.position.rewind()

    def end(self, error: ConvoyError | None, now: float, every: float) -> bool:
        """Record the end of a read. Return True if the user must get a notice about the read's error."""
        self.running, self.clean, self.error = False, error is None, error
        broke_off = now - self.started_at >= BROKE_OFF_SECONDS
        self.failures = 0 if self.clean or broke_off else self.failures + 1
        # Wait before the next read, even if the read had no error. A container's log ends a moment before the
        # pod's status shows that the container has ended.
        self.retry_at = now + min(every * 2 ** min(self.failures, 8), MAX_RETRY_SECONDS)
        return self.failures == 1


class LogFollower:
    """Follows all logs of one job. It must be used by one thread only. It calls `scan` and `notify` in that
    thread.
    """

    def __init__(
        self,
        scan: Callable[[], PodLogs],
        notify: Notify,
        clock: Callable[[], float] = time.monotonic,
        every: float = SCAN_SECONDS,
    ) -> None:
        self._scan, self._notify, self._clock, self._every = scan, notify, clock, every
        self._queue: Queue[tuple[str, str | ConvoyError | None]] = Queue(QUEUE_LINES)
        self._closed = Event()
        self._read_states: dict[str, ReadState] = {}
        self._found = PodLogs((), False)
        self._next_scan = clock()
        self._outage_since: float | None = None
        self._give_up_at: float | None = None
        self._reported_waiting: set[str] = set()

    def lines(self) -> Generator[str, None, None]:
        """Yield the lines as they arrive. Lines of one pod stay in order.

        If a log could not be read, raise its error at the end. Raise these errors at once: Forbidden, a
        refused scan, and Unreachable if scans fail for `OUTAGE_SECONDS`. If the caller closes the iterator,
        each reader thread ends at its next line.
        """
        try:
            while not self._finished():
                try:
                    uid, found = self._queue.get(timeout=max(0.0, self._next_scan - self._clock()))
                except Empty:
                    continue
                if not isinstance(found, str):
                    self._end_read(uid, found)
                elif (text := self._new_text(uid, found)) is not None:
                    yield text
        finally:
            self._closed.set()
        self._report_unread()

    def _finished(self) -> bool:
        """Scan for logs if a scan is due. Return True if everything that must be read was read."""
        now = self._clock()
        if now >= self._next_scan:
            self._scan_logs(now)
            self._next_scan = self._clock() + self._every
        if self._give_up_at is None or not self._queue.empty():
            return False
        return not is_unfinished(self._found.logs, self._read_states, late=now >= self._give_up_at)

    def _scan_logs(self, now: float) -> None:
        try:
            seen = self._scan()
        except (Unreachable, ApiError) as error:
            self._record_scan_error(error, now)
            return
        self._found, self._outage_since = seen, None
        if seen.ended and self._give_up_at is None:
            self._give_up_at = now + DRAIN_SECONDS
        here = {log.uid for log in seen.logs}
        self._read_states = {
            uid: reading for uid, reading in self._read_states.items() if uid in here or reading.running
        }
        for log in seen.logs:
            reading = self._read_states.setdefault(log.uid, ReadState(log.name, prefix=log.prefix))
            if reading.due(log, now, seen.ended):
                reading.start(now, seen.ended)
                Thread(target=self._read, args=(log,), daemon=True).start()
        if not seen.ended:
            waits = {log.uid: log.name for log in seen.logs if not log.started}
            self._report_waiting(waits if seen.logs else {"": "the job's pods"})

    def _record_scan_error(self, error: ConvoyError, now: float) -> None:
        if isinstance(error, ApiError) and error.status not in BUSY:
            raise error
        if self._outage_since is None:
            self._outage_since = now
            self._notify(f"{error}; Convoy retries for {OUTAGE_SECONDS:g} s")
        if now - self._outage_since >= OUTAGE_SECONDS:
            raise error

    def _report_waiting(self, waits: Mapping[str, str]) -> None:
        """Report each log whose container has not started, once per log. Keys of `waits` are pod uids,
        values are pod names.
        """
        if names := [name for uid, name in waits.items() if uid not in self._reported_waiting]:
            self._notify(
                f"not started yet: {shorten_list(names, MAX_NAMED)}; Convoy reads the logs when they start"
            )
        self._reported_waiting = set(waits)

    def _read(self, log: PodLog) -> None:
        """Read a log and pass its lines to the queue. Each call runs in its own thread."""
        error: ConvoyError | None = None
        try:
            for line in log.read():
                if not self._put(log.uid, line):
                    return
        except ConvoyError as found:
            error = found
        except Exception as found:
            error = ConvoyError(f"the log of {log.name} cannot be read: {error_line(found)}")
        self._put(log.uid, error)

    def _put(self, uid: str, found: str | ConvoyError | None) -> bool:
        """Put a line, or the end of a read, into the queue; wait while the queue is full. Return False if
        the consumer has closed the iterator.
        """
        while not self._closed.is_set():
            try:
                self._queue.put((uid, found), timeout=_PUT_TIMEOUT_SECONDS)
            except Full:
                continue
            return True
        return False

    def _new_text(self, uid: str, line: str) -> str | None:
        """Return the text of a line that has not been shown yet; None for a line that has."""
        reading = self._read_states[uid]
        at, text = split_timestamp(line)
        if at is not None and not reading.position.is_new(at):
            return None
        reading.failures = 0
        return reading.prefix + text

    def _end_read(self, uid: str, error: ConvoyError | None) -> None:
        reading = self._read_states[uid]
        if isinstance(error, Forbidden):
            raise error
        if reading.end(error, self._clock(), self._every) and not reading.last:
            self._notify(f"cannot read the log of {reading.name} now, will retry: {error}")

    def _report_unread(self) -> None:
        """Report the logs that were not read to the end, and raise the first error."""
        readings = [self._read_states[log.uid] for log in self._found.logs]
        if cut := [reading.name for reading in readings if reading.running]:
            self._notify(
                f"logs still open {DRAIN_SECONDS:g} s after the end of the job, not read further: "
                f"{shorten_list(cut, MAX_NAMED)}"
            )
        failed = [reading for reading in readings if reading.error]
        for reading in failed[1:]:
            self._notify(f"cannot read the log of {reading.name}: {reading.error}")
        if failed and failed[0].error:
            raise failed[0].error


def is_unfinished(logs: Sequence[PodLog], readings: Mapping[str, ReadState], late: bool) -> bool:
    """Return True if the follower must still read logs after the job's end.

    If `late` is True, the follower no longer waits for containers that still run. It always reads the log
    of an ended container to its end.
    """
    here = {log.uid for log in logs}
    gone = any(reading.running for uid, reading in readings.items() if uid not in here)
    left = [(log, readings[log.uid]) for log in logs if not readings[log.uid].settled(log)]
    if late:
        return any(log.ended and reading.running for log, reading in left)
    return gone or bool(left)
