"""`convoy logs`: the output of the ranks, told apart by rank and incarnation.

The launcher puts `[incarnation/rank] ` before every line that a rank writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from threading import Thread
from typing import Annotated, Any

import typer

from convoy.cli.cluster import Cluster, Context, Failure, Name, Namespace
from convoy_crds.layout import slots, world_size
from convoy_crds.trainingjob import TrainingJob

PREFIX = re.compile(r"^\[(\d+)/(\d+)\] ")
MAX_PODS = 64
"""Logs followed at once."""


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
    name, formed, world = job.metadata.name, job.status.incarnation, world_size(slots(job))
    if rank is not None and not 0 <= rank < world:
        return f"{name} has no rank {rank}: its ranks are 0 to {world - 1}"
    if incarnation is not None and not 1 <= incarnation <= formed:
        had = {0: "none yet", 1: "incarnation 1 alone"}.get(formed, f"incarnations 1 to {formed}")
        return f"{name} has had no incarnation {incarnation}: it had {had}"
    return None


def no_pods(job: TrainingJob) -> str:
    """Why a job has no logs."""
    name = job.metadata.name
    if job.spec.suspend:
        return f"{name} is suspended: its logs went with its pods; `convoy resume {name}` runs it on"
    return f"{name} has no pods now, and logs go with their pods; ask `convoy why {name}`"


def logs(
    name: Name,
    rank: Annotated[int | None, typer.Option(metavar="RANK", help="One rank; all when left out.")] = None,
    incarnation: Annotated[
        int | None, typer.Option(metavar="INCARNATION", help="One incarnation; all when left out.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Print what the ranks wrote. Each line begins with [incarnation/rank].

    Logs are those of the pods there are: what a replaced or suspended pod wrote went with it.
    """
    cluster = Cluster.connect(namespace, context)
    job = cluster.job(name)
    if why := refusal(job, rank, incarnation):
        raise Failure(why)
    wanted = {
        slot.pod
        for slot in slots(job)
        if rank is None or slot.rank_offset <= rank < slot.rank_offset + slot.processes
    }
    pods = [pod for pod in cluster.pods(name) if pod.metadata.name in wanted]
    if not pods:
        raise Failure(no_pods(job))
    if len(pods) > MAX_PODS:
        raise Failure(f"{len(pods)} pods are too many to read at once: choose one with --rank")

    shown = 0

    def show(pod: Any) -> None:
        nonlocal shown
        lines = cluster.log_lines(pod.metadata.name, pod.spec.containers[0].name, follow)
        for line in chosen(lines, rank, incarnation):
            shown += 1
            typer.echo(line)

    if follow:
        _at_once(show, pods)
    else:
        for pod in pods:
            show(pod)
    if not shown:
        typer.echo("no such line is in the logs of the pods that there are now", err=True)


def _at_once(show: Callable[[Any], None], pods: list[Any]) -> None:
    """Shows all pods, each in a thread that does not outlive Ctrl-C. Failure when one fails."""
    failures: list[typer.Exit] = []

    def run(pod: Any) -> None:
        try:
            show(pod)
        except typer.Exit as failure:
            failures.append(failure)

    threads = [Thread(target=run, args=(pod,), daemon=True) for pod in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
