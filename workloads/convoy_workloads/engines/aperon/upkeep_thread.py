"""The thread of a rank that keeps its index in order: segments, flushes, recall and tuning."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from convoy_workloads.engines.aperon.errors import InvalidInput, TargetNotReached
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.shard import Shard
from convoy_workloads.engines.aperon.tuning import FEWEST_QUERIES, MOST_QUERIES, tune
from convoy_workloads.runtime.log import log_line

PAUSE_SECONDS = 0.1
"""Longest wait between two looks at what is due."""
GROWTH = 1.5
"""The search is tuned again when the index has so many times the records of the last time."""
ENOUGH_QUERIES = 200
"""Sampled queries for a tuning that lasts. After one with fewer, the search is tuned once more."""


class UpkeepThread:
    """The thread of one shard."""

    def __init__(self, shard: Shard, params: Params, before_flush: Callable[[], None] = lambda: None) -> None:
        """`before_flush` is called in the thread before a segment replaces records of the log."""
        self._shard, self._params = shard, params
        shard.index.before_publish = before_flush
        self._stopping = threading.Event()
        self._synced = time.monotonic()
        self._tuned = (0, 0)
        """Records and queries of the last tuning."""
        self.error: BaseException | None = None
        """The error that has ended the thread."""
        self._thread = threading.Thread(target=self._run, name="convoy-upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float = 30.0) -> None:
        """End the thread after the work that it does."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if not self.step():
                    self._stopping.wait(PAUSE_SECONDS)
        except BaseException as error:  # The engine ends with it.
            self.error = error

    def step(self) -> bool:
        """Do a piece of work that is due. Return False if none was."""
        index = self._shard.index
        seconds = self._params.fsync_seconds
        if self._params.fsync == "interval" and time.monotonic() - self._synced >= seconds:
            index.sync()
            self._synced = time.monotonic()
        return index.maintain() is not None or self._shard.monitor.measure() or self._tune()

    def _tune(self) -> bool:
        """Tune the search, if there are more queries or records than the last time."""
        target = self._params.index.target_recall
        if not target:
            return False
        queries = self._shard.monitor.queries()
        records, last = len(self._shard.index), self._tuned
        grown = records >= GROWTH * last[0] or last[1] < ENOUGH_QUERIES <= len(queries)
        if len(queries) < FEWEST_QUERIES or not records or not grown:
            return False
        self._tuned = (records, len(queries))
        try:
            found = tune(self._shard.index, target, queries[-MOST_QUERIES:], results=self._params.results)
        except TargetNotReached as error:
            log_line(str(error))
        except InvalidInput as error:
            log_line(f"the search is not tuned: {error}")
        else:
            self._shard.monitor.restart()
            chosen = found.settings
            log_line(
                f"recall {found.recall.mean:.4f} on {found.recall.queries} sampled queries with nprobe "
                f"{chosen.nprobe} and candidates {chosen.candidates}"
            )
        return True
