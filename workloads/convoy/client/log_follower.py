"""Follows the logs of a job's pods together, also of pods that come later, until the job has ended.

A look every few seconds says which logs there are. Each that has begun is read in a thread of its own; a
reading that fails or breaks off is begun anew and goes on where it stopped, by the times of the lines.
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
from convoy_crds.summaries import shorten_list

SCAN_SECONDS = 3.0
"""Between two looks."""
MAX_RETRY_SECONDS = 60.0
"""Before a log that cannot be read is tried again."""
BROKE_OFF_SECONDS = 60.0
"""A reading that ends with an error after so long has broken off, and is begun anew without a word."""
OUTAGE_SECONDS = 300.0
"""For so long looks may fail in a row."""
DRAIN_SECONDS = 30.0
"""For so long after the job's end the end of its containers is waited for."""
MAX_NAMED = 3
"""Logs that a sentence names; of others it has the number."""
QUEUE_LINES = 1000
"""Lines of all logs together that nobody has taken yet; then the logs wait."""
_PUT_TIMEOUT_SECONDS = 0.5
"""How often a reader that waits looks whether anybody still listens."""


@dataclass(frozen=True, slots=True)
class PodLogs:
    """What a look finds."""

    logs: tuple[PodLog, ...]
    ended: bool
    """The job has ended or is gone."""


@dataclass(slots=True)
class ReadState:
    """How far a log has been read."""

    name: str
    started_at: float = 0.0
    running: bool = False
    last: bool = False
    """It was begun when the job had ended: there will be no other."""
    position: LogPosition = field(default_factory=LogPosition)
    """Where it goes on."""
    clean: bool = False
    """The last try came to the end of the log."""
    error: ConvoyError | None = None
    """Of the last try."""
    failures: int = 0
    """In a row."""
    retry_at: float = 0.0
    """The next try is no earlier."""

    def due(self, log: PodLog, now: float, job_ended: bool) -> bool:
        """Whether to begin to read it, for the first time or again."""
        if self.running or self.last or not log.started or (self.clean and log.ended):
            return False
        return job_ended or now >= self.retry_at

    def settled(self, log: PodLog) -> bool:
        """Whether a job that has ended need not be waited for because of this log."""
        return not log.started or (not self.running and (self.last or (self.clean and log.ended)))

    def start(self, now: float, job_ended: bool) -> None:
        """A try begins, with the log's first line."""
        self.running, self.started_at, self.last = True, now, job_ended
        self.position.rewind()

    def end(self, error: ConvoyError | None, now: float, every: float) -> bool:
        """A try has ended; whether that is to be told of."""
        self.running, self.clean, self.error = False, error is None, error
        broke_off = now - self.started_at >= BROKE_OFF_SECONDS
        self.failures = 0 if self.clean or broke_off else self.failures + 1
        # Whether a container has ended is known a moment after its log has.
        self.retry_at = now + min(every * 2 ** min(self.failures, 8), MAX_RETRY_SECONDS)
        return self.failures == 1


class LogFollower:
    """One following, for one thread. `scan`: what is there now; `notify` is called in that thread."""

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
        self._readings: dict[str, ReadState] = {}
        self._found = PodLogs((), False)
        self._next_scan = clock()
        self._outage_since: float | None = None
        self._give_up_at: float | None = None
        self._reported_waiting: set[str] = set()

    def lines(self) -> Generator[str, None, None]:
        """The lines as they come, those of one pod in their order.

        Raises at the end what kept a log from being read. Forbidden at once, and what a look is refused;
        Unreachable when looks have failed for `OUTAGE_SECONDS`. A reader of a log ends with the next line
        after nobody listens any more.
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
        """Looks when it is time to; whether all is read that was to be read."""
        now = self._clock()
        if now >= self._next_scan:
            self._scan_logs(now)
            self._next_scan = self._clock() + self._every
        if self._give_up_at is None or not self._queue.empty():
            return False
        return not is_unfinished(self._found.logs, self._readings, late=now >= self._give_up_at)

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
        self._readings = {
            uid: reading for uid, reading in self._readings.items() if uid in here or reading.running
        }
        for log in seen.logs:
            reading = self._readings.setdefault(log.uid, ReadState(log.name))
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
            self._notify(f"{error}; it is asked again for {OUTAGE_SECONDS:g} s")
        if now - self._outage_since >= OUTAGE_SECONDS:
            raise error

    def _report_waiting(self, waits: Mapping[str, str]) -> None:
        """Tells once of each log that has not begun; names by uid."""
        if names := [name for uid, name in waits.items() if uid not in self._reported_waiting]:
            self._notify(f"not started yet, and read as soon as they are: {shorten_list(names, MAX_NAMED)}")
        self._reported_waiting = set(waits)

    def _read(self, log: PodLog) -> None:
        """Reads a log in a thread of its own."""
        error: ConvoyError | None = None
        try:
            for line in log.read():
                if not self._put(log.uid, line):
                    return
        except ConvoyError as found:
            error = found
        except Exception as found:
            error = ConvoyError(f"{found!r}")
        self._put(log.uid, error)

    def _put(self, uid: str, found: str | ConvoyError | None) -> bool:
        """Hands something over; False when nobody listens any more."""
        while not self._closed.is_set():
            try:
                self._queue.put((uid, found), timeout=_PUT_TIMEOUT_SECONDS)
            except Full:
                continue
            return True
        return False

    def _new_text(self, uid: str, line: str) -> str | None:
        """The text of a line that was not there before."""
        reading = self._readings[uid]
        at, text = split_timestamp(line)
        if at is not None and not reading.position.is_new(at):
            return None
        reading.failures = 0
        return text

    def _end_read(self, uid: str, error: ConvoyError | None) -> None:
        reading = self._readings[uid]
        if isinstance(error, Forbidden):
            raise error
        if reading.end(error, self._clock(), self._every) and not reading.last:
            self._notify(f"the log of {reading.name} cannot be read now, and is tried again: {error}")

    def _report_unread(self) -> None:
        """Says and raises what has not been read at the end."""
        readings = [self._readings[log.uid] for log in self._found.logs]
        if cut := [reading.name for reading in readings if reading.running]:
            self._notify(
                f"not read to the end {DRAIN_SECONDS:g} s after the job's: {shorten_list(cut, MAX_NAMED)}"
            )
        failed = [reading for reading in readings if reading.error]
        for reading in failed[1:]:
            self._notify(f"the log of {reading.name} could not be read: {reading.error}")
        if failed and failed[0].error:
            raise failed[0].error


def is_unfinished(logs: Sequence[PodLog], readings: Mapping[str, ReadState], late: bool) -> bool:
    """Whether something is to be waited for after the job's end.

    What runs on is left when it is `late`. What a container has written that has ended is read to its end.
    """
    here = {log.uid for log in logs}
    gone = any(reading.running for uid, reading in readings.items() if uid not in here)
    left = [(log, readings[log.uid]) for log in logs if not readings[log.uid].settled(log)]
    if late:
        return any(log.ended and reading.running for log, reading in left)
    return gone or bool(left)
