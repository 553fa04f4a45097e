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
from convoy.client.log_position import Seam, stamped
from convoy.client.pod_logs import Log, Tell
from convoy.client.watch import BUSY
from convoy_crds.summaries import shorten_list

LOOK_SECONDS = 3.0
"""Between two looks."""
LONGEST_PAUSE_SECONDS = 60.0
"""Before a log that cannot be read is tried again."""
BRIEF_SECONDS = 60.0
"""A reading that ends with an error after so long has broken off, and is begun anew without a word."""
OUTAGE_SECONDS = 300.0
"""For so long looks may fail in a row."""
END_SECONDS = 30.0
"""For so long after the job's end the end of its containers is waited for."""
NAMED = 3
"""Logs that a sentence names; of others it has the number."""
MAX_WAITING = 1000
"""Lines of all logs together that nobody has taken yet; then the logs wait."""
_LISTEN_SECONDS = 0.5
"""How often a reader that waits looks whether anybody still listens."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look finds."""

    logs: tuple[Log, ...]
    ended: bool
    """The job has ended or is gone."""


@dataclass(slots=True)
class Reading:
    """How far a log has been read."""

    name: str
    begun_at: float = 0.0
    running: bool = False
    last: bool = False
    """It was begun when the job had ended: there will be no other."""
    seam: Seam = field(default_factory=Seam)
    """Where it goes on."""
    clean: bool = False
    """The last try came to the end of the log."""
    error: ConvoyError | None = None
    """Of the last try."""
    failures: int = 0
    """In a row."""
    again: float = 0.0
    """The next try is no earlier."""

    def due(self, log: Log, now: float, job_ended: bool) -> bool:
        """Whether to begin to read it, for the first time or again."""
        if self.running or self.last or not log.begun or (self.clean and log.ended):
            return False
        return job_ended or now >= self.again

    def settled(self, log: Log) -> bool:
        """Whether a job that has ended need not be waited for because of this log."""
        return not log.begun or (not self.running and (self.last or (self.clean and log.ended)))

    def begin(self, now: float, job_ended: bool) -> None:
        """A try begins, with the log's first line."""
        self.running, self.begun_at, self.last = True, now, job_ended
        self.seam.begin()

    def end(self, error: ConvoyError | None, now: float, every: float) -> bool:
        """A try has ended; whether that is to be told of."""
        self.running, self.clean, self.error = False, error is None, error
        broke_off = now - self.begun_at >= BRIEF_SECONDS
        self.failures = 0 if self.clean or broke_off else self.failures + 1
        # Whether a container has ended is known a moment after its log has.
        self.again = now + min(every * 2 ** min(self.failures, 8), LONGEST_PAUSE_SECONDS)
        return self.failures == 1


class Follower:
    """One following, for one thread. `look`: what is there now; `tell` is called in that thread."""

    def __init__(
        self,
        look: Callable[[], Seen],
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
        every: float = LOOK_SECONDS,
    ) -> None:
        self._look, self._tell, self._clock, self._every = look, tell, clock, every
        self._queue: Queue[tuple[str, str | ConvoyError | None]] = Queue(MAX_WAITING)
        self._closed = Event()
        self._readings: dict[str, Reading] = {}
        self._seen = Seen((), False)
        self._next = clock()
        self._outage: float | None = None
        self._until: float | None = None
        self._waited_for: set[str] = set()

    def lines(self) -> Generator[str, None, None]:
        """The lines as they come, those of one pod in their order.

        Raises at the end what kept a log from being read. Forbidden at once, and what a look is refused;
        Unreachable when looks have failed for `OUTAGE_SECONDS`. A reader of a log ends with the next line
        after nobody listens any more.
        """
        try:
            while not self._over():
                try:
                    uid, found = self._queue.get(timeout=max(0.0, self._next - self._clock()))
                except Empty:
                    continue
                if not isinstance(found, str):
                    self._tried(uid, found)
                elif (text := self._fresh(uid, found)) is not None:
                    yield text
        finally:
            self._closed.set()
        self._account()

    def _over(self) -> bool:
        """Looks when it is time to; whether all is read that was to be read."""
        now = self._clock()
        if now >= self._next:
            self._see(now)
            self._next = self._clock() + self._every
        if self._until is None or not self._queue.empty():
            return False
        return not unfinished(self._seen.logs, self._readings, late=now >= self._until)

    def _see(self, now: float) -> None:
        try:
            seen = self._look()
        except (Unreachable, ApiError) as error:
            self._missed(error, now)
            return
        self._seen, self._outage = seen, None
        if seen.ended and self._until is None:
            self._until = now + END_SECONDS
        here = {log.uid for log in seen.logs}
        self._readings = {
            uid: reading for uid, reading in self._readings.items() if uid in here or reading.running
        }
        for log in seen.logs:
            reading = self._readings.setdefault(log.uid, Reading(log.name))
            if reading.due(log, now, seen.ended):
                reading.begin(now, seen.ended)
                Thread(target=self._read, args=(log,), daemon=True).start()
        if not seen.ended:
            waits = {log.uid: log.name for log in seen.logs if not log.begun}
            self._await(waits if seen.logs else {"": "the job's pods"})

    def _missed(self, error: ConvoyError, now: float) -> None:
        if isinstance(error, ApiError) and error.status not in BUSY:
            raise error
        if self._outage is None:
            self._outage = now
            self._tell(f"{error}; it is asked again for {OUTAGE_SECONDS:g} s")
        if now - self._outage >= OUTAGE_SECONDS:
            raise error

    def _await(self, waits: Mapping[str, str]) -> None:
        """Tells once of each log that has not begun; names by uid."""
        if names := [name for uid, name in waits.items() if uid not in self._waited_for]:
            self._tell(f"not started yet, and read as soon as they are: {shorten_list(names, NAMED)}")
        self._waited_for = set(waits)

    def _read(self, log: Log) -> None:
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
                self._queue.put((uid, found), timeout=_LISTEN_SECONDS)
            except Full:
                continue
            return True
        return False

    def _fresh(self, uid: str, line: str) -> str | None:
        """The text of a line that was not there before."""
        reading = self._readings[uid]
        at, text = stamped(line)
        if at is not None and not reading.seam.fresh(at):
            return None
        reading.failures = 0
        return text

    def _tried(self, uid: str, error: ConvoyError | None) -> None:
        reading = self._readings[uid]
        if isinstance(error, Forbidden):
            raise error
        if reading.end(error, self._clock(), self._every) and not reading.last:
            self._tell(f"the log of {reading.name} cannot be read now, and is tried again: {error}")

    def _account(self) -> None:
        """Says and raises what has not been read at the end."""
        readings = [self._readings[log.uid] for log in self._seen.logs]
        if cut := [reading.name for reading in readings if reading.running]:
            self._tell(f"not read to the end {END_SECONDS:g} s after the job's: {shorten_list(cut, NAMED)}")
        failed = [reading for reading in readings if reading.error]
        for reading in failed[1:]:
            self._tell(f"the log of {reading.name} could not be read: {reading.error}")
        if failed and failed[0].error:
            raise failed[0].error


def unfinished(logs: Sequence[Log], readings: Mapping[str, Reading], late: bool) -> bool:
    """Whether something is to be waited for after the job's end.

    What runs on is left when it is `late`. What a container has written that has ended is read to its end.
    """
    here = {log.uid for log in logs}
    gone = any(reading.running for uid, reading in readings.items() if uid not in here)
    left = [(log, readings[log.uid]) for log in logs if not readings[log.uid].settled(log)]
    if late:
        return any(log.ended and reading.running for log, reading in left)
    return gone or bool(left)
