"""`convoy logs`: the output of the ranks, told apart by rank and incarnation.

The launcher puts `[incarnation/rank] ` before every line that a rank writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from convoy.cli.cluster import Cluster, Context, Failure, Namespace
from convoy_crds.layout import slots

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


def logs(
    name: Annotated[str, typer.Argument(help="Name of the TrainingJob.")],
    rank: Annotated[int | None, typer.Option(help="One rank; all when left out.")] = None,
    incarnation: Annotated[int | None, typer.Option(help="One incarnation; all when left out.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Print what the ranks wrote. Each line begins with [incarnation/rank]."""
    cluster = Cluster.connect(namespace, context)
    layout = slots(cluster.job(name))
    wanted = {
        slot.pod
        for slot in layout
        if rank is None or slot.rank_offset <= rank < slot.rank_offset + slot.processes
    }
    if not wanted:
        world = sum(slot.processes for slot in layout)
        raise Failure(f"{name} has no rank {rank}: its ranks are 0 to {world - 1}")
    pods = [pod for pod in cluster.pods(name) if pod.metadata.name in wanted]
    if not pods:
        raise Failure(f"{name} has no pods now; ask `convoy why {name}`")
    if len(pods) > MAX_PODS:
        raise Failure(f"{len(pods)} pods are too many to read at once: choose one with --rank")

    def show(pod: str, container: str) -> None:
        for line in chosen(cluster.log_lines(pod, container, follow), rank, incarnation):
            typer.echo(line)

    if not follow:
        for pod in pods:
            show(pod.metadata.name, pod.spec.containers[0].name)
        return
    with ThreadPoolExecutor(len(pods)) as pool:
        for future in [pool.submit(show, pod.metadata.name, pod.spec.containers[0].name) for pod in pods]:
            future.result()
