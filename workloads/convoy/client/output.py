"""What the ranks of a job wrote, told apart by rank and incarnation.

The launcher puts `[incarnation/rank] ` before every line that a rank writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any

from convoy.client.api import TIMEOUT_SECONDS, Api
from convoy.client.errors import ConvoyError
from convoy_crds.layout import Slot, present, slots, world_size
from convoy_crds.trainingjob import TrainingJob

PREFIX = re.compile(r"^\[(\d+)/(\d+)\] ")
MAX_PODS = 64
"""Logs read at once."""
MAX_WAITING = 1000
"""Lines of all logs together that nobody has taken yet; then the logs wait."""
_LOOK_SECONDS = 0.5
"""How often a reader that waits looks whether anybody still listens."""


def chosen(lines: Iterable[str], rank: int | None, incarnation: int | None) -> Iterator[str]:
    """The lines of one rank and incarnation; None takes all, and then the launcher's own lines too."""
    for line in lines:
        found = PREFIX.match(line)
        if found is None:
            if rank is None and incarnation is None:
                yield line
            continue
        if incarnation is not None and int(found[1]) != incarnation:
            continue
        if rank is not None and int(found[2]) != rank:
            continue
        yield line


def refusal(job: TrainingJob, rank: int | None, incarnation: int | None) -> str | None:
    """Why there can be no such line; None when there may be one."""
    name, formed = job.metadata.name, job.status.incarnation
    if incarnation is not None and not 1 <= incarnation <= formed:
        had = {0: "none yet", 1: "incarnation 1 alone"}.get(formed, f"incarnations 1 to {formed}")
        return f"{name} has had no incarnation {incarnation}: it had {had}"
    whole = slots(job)
    layout = whole if past(job, incarnation) else present(job)
    if rank is not None and not 0 <= rank < (world := world_size(layout)):
        missed = len(whole) - len(layout)
        fewer = f", as it runs without {missed} of its {len(whole)} pods" if missed else ""
        return f"{name} has no rank {rank}: its ranks are 0 to {world - 1}{fewer}"
    return None


def no_pods(job: TrainingJob) -> str:
    """Why a job has no logs."""
    name = job.metadata.name
    if job.spec.suspend:
        return f"{name} is suspended: its logs went with its pods; `convoy resume {name}` runs it on"
    return f"{name} has no pods now, and logs go with their pods; ask `convoy why {name}`"


def past(job: TrainingJob, incarnation: int | None) -> bool:
    """Whether it is an incarnation before the job's present one: its ranks write no more."""
    return incarnation is not None and incarnation < job.status.incarnation


def holding(job: TrainingJob, rank: int | None, incarnation: int | None = None) -> tuple[Slot, ...]:
    """The slots whose pods have the rank; all for None.

    Without an incarnation, where the rank is now. Which slots an earlier one was without is not known: then
    all that may have had the rank.
    """
    if rank is None:
        return slots(job)
    if past(job, incarnation):
        return tuple(
            slot
            for slot, least in zip(slots(job), _least_offsets(job), strict=True)
            if least <= rank < slot.rank_offset + slot.processes
        )
    return tuple(
        slot for slot in present(job) if slot.rank_offset <= rank < slot.rank_offset + slot.processes
    )


def _least_offsets(job: TrainingJob) -> Iterator[int]:
    """The first rank of each slot when as many as may be absent before it are so."""
    offset = 0
    for role in job.spec.roles:
        fewest = role.min_replicas or role.replicas
        for replica in range(role.replicas):
            yield offset + max(0, replica - (role.replicas - fewest)) * role.processes_per_replica
        offset += fewest * role.processes_per_replica


def log_lines(api: Api, pod: Any, follow: bool) -> Iterator[str]:
    """The lines of the log of a pod's first container."""
    lines = api.lines(
        f"the log of {pod.metadata.name}",
        api.core.read_namespaced_pod_log,
        pod.metadata.name,
        pod.metadata.namespace,
        container=pod.spec.containers[0].name,
        follow=follow,
        _request_timeout=None if follow else TIMEOUT_SECONDS,
    )
    return (line.decode(errors="replace") for line in lines)


def at_once(sources: Sequence[Callable[[], Iterator[str]]]) -> Iterator[str]:
    """The lines of all sources as they come, each read in a thread; raises the first error after them.

    A source that is still read when nobody listens any more ends with its next line.
    """
    queue: Queue[str] = Queue(MAX_WAITING)
    closed = Event()
    failures: list[ConvoyError] = []

    def put(line: str) -> None:
        while not closed.is_set():
            try:
                return queue.put(line, timeout=_LOOK_SECONDS)
            except Full:
                continue

    def read(source: Callable[[], Iterator[str]]) -> None:
        try:
            for line in source():
                put(line)
                if closed.is_set():
                    return
        except ConvoyError as error:
            failures.append(error)

    threads = [Thread(target=read, args=(source,), daemon=True) for source in sources]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads) or not queue.empty():
            try:
                yield queue.get(timeout=_LOOK_SECONDS)
            except Empty:
                continue
    finally:
        closed.set()
    if failures:
        raise failures[0]


def one_by_one(sources: Sequence[Callable[[], Iterator[str]]]) -> Iterator[str]:
    """The lines of the sources, one source after the other."""
    for source in sources:
        yield from source()
