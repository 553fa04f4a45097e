"""The recorder: wraps torch's observers around some steps of a training loop.

    with record(folder, steps=range(100, 102), ranks=[0, 1]) as recorder:
        for step in job.steps(total):
            with recorder.step(step):
                train(step)

After the last step, each of these ranks has written `host.RANK.json` and `kineto.RANK.json` into the
folder, which `convoy trace convert` reads. In all other steps and ranks the recorder does nothing. It never
fails the training: what goes wrong is in `Recorder.problem` and in the log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from convoy_workloads.runtime.log import log_line
from convoy_workloads.traces.convert.nodes import STEP
from convoy_workloads.traces.gloo_threads import threads_of_groups
from convoy_workloads.traces.size_watch import SizeWatch, size_of

MAX_STEPS = 100
"""Maximum number of steps of one recording, as in the TrainingJob."""
MAX_BYTES = 256 * 2**20
"""Bytes of both files of a rank, unless the caller sets another budget."""
HOST_SHARE = 0.9
"""The host trace may have this part of the budget. It usually has 70 to 85 % of the bytes. torch holds the
other file in memory until the end, and this memory grows with the host trace. So this bounds both.
"""


class Recorder:
    """Records the chosen steps of this rank. `record()` creates it."""

    def __init__(self, folder: Path, steps: range, active: bool, rank: int, max_bytes: int) -> None:
        self.problem = ""
        """Cause why this rank has no files; empty if the rank has files or records nothing."""
        self.too_large = False
        """True if the files would exceed `max_bytes`, which `problem` then says."""
        self.files: tuple[Path, ...] = ()
        """The files of this rank, after the last recorded step."""
        self._folder = folder
        self._steps = steps if active else range(0)
        self._rank = rank
        self._max_bytes = max_bytes
        self._profile: Any = None
        self._observer: Any = None
        self._watch: SizeWatch | None = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._profile is not None:
            self._finish("the loop failed" if error is not None else "")

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Surround one step of the training. Steps must come in ascending order."""
        if step not in self._steps or self.problem or self.files:
            yield
            return
        import torch  # noqa: PLC0415 - only ranks that record need it

        if self._profile is None and not self._start():
            yield
            return
        with torch.profiler.record_function(f"{STEP}{step}"):
            yield
        if self._profile is None:
            return  # The recording was ended within the step.
        if size_of(self._partial("host")) > self._host_bytes:
            self._end_too_large()
        elif step == self._steps[-1]:
            self._finish()

    def _start(self) -> bool:
        import torch  # noqa: PLC0415
        from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile  # noqa: PLC0415

        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._observer = ExecutionTraceObserver()
            self._observer.register_callback(str(self._partial("host")))
            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            # The host trace has the shapes of all tensors, so the profiler need not have them too.
            self._profile = profile(activities=activities, execution_trace_observer=self._observer)
            self._profile.start()
            self._watch = SizeWatch(self._partial("host"), self._host_bytes, self._end_too_large)
            self._profile.add_metadata_json("convoy", json.dumps({"threads": threads_of_groups()}))
        except (OSError, RuntimeError) as error:
            self._fail(f"the recording did not start: {error}")
            return False
        return True

    @property
    def _host_bytes(self) -> int:
        """Return the bytes that the host trace may have."""
        return int(self._max_bytes * HOST_SHARE)

    def _end_too_large(self) -> None:
        """End the recording, because its files are too large."""
        if self._profile is not None:
            self.too_large = True
            self._finish(f"the traces need more than {self._max_bytes} bytes")

    def _finish(self, problem: str = "") -> None:
        """Stop recording. Without a problem, write the files."""
        profile, self._profile = self._profile, None
        if self._watch is not None:
            self._watch.stop()
        host, kineto = self._partial("host"), self._partial("kineto")
        try:
            profile.stop()
            self._release()
            if not problem:
                profile.export_chrome_trace(str(kineto))
                size = size_of(host) + size_of(kineto)
                if size > self._max_bytes:
                    self.too_large = True
                    problem = f"the traces need {size} bytes; the budget is {self._max_bytes}"
            if not problem:
                self.files = tuple(self._publish(one) for one in ("host", "kineto"))
        except (OSError, RuntimeError) as error:
            problem = f"the files could not be written: {error}"
        if problem:
            self._fail(problem)

    def _fail(self, problem: str) -> None:
        self._profile = None
        self._release()
        self.problem = problem
        log_line(f"rank {self._rank} has no trace: {problem}")
        for path in (self._partial("host"), self._partial("kineto")):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _release(self) -> None:
        """Close the host trace. torch allows one registered observer in a process."""
        if self._observer is not None:
            self._observer.unregister_callback()
        self._observer = None

    def _publish(self, kind: str) -> Path:
        path = self._folder / f"{kind}.{self._rank}.json"
        self._partial(kind).replace(path)
        return path

    def _partial(self, kind: str) -> Path:
        return self._folder / f".{kind}.{self._rank}.partial.json"


def record(
    folder: Path,
    steps: range,
    ranks: Collection[int] | None = None,
    *,
    rank: int | None = None,
    max_bytes: int = MAX_BYTES,
) -> Recorder:
    """Return a recorder of `steps`. Use it as a context manager around the training loop.

    - `steps`: consecutive steps, at most 100.
    - `ranks`: the ranks that record; None for all.
    - `rank`: this rank; by default that of the environment variable RANK, or 0 without it.
    - `max_bytes`: bytes that the two files of a rank may have. A larger recording ends early, and is dropped.

    Raises ValueError for other steps or a budget below 1.
    """
    if steps.step != 1 or not 1 <= len(steps) <= MAX_STEPS or steps.start < 0:
        raise ValueError(f"steps: must be 1 to {MAX_STEPS} consecutive steps, not {steps}")
    if max_bytes < 1:
        raise ValueError(f"max_bytes: must be at least 1, not {max_bytes}")
    own = int(os.environ.get("RANK") or 0) if rank is None else rank
    return Recorder(folder, steps, ranks is None or own in ranks, own, max_bytes)
