"""How ranks are stopped: SIGTERM and time to save their state, then SIGKILL."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Mapping

from convoy_workloads.launcher import proc
from convoy_workloads.launcher.output import say
from convoy_workloads.launcher.proc import Process
from convoy_workloads.launcher.rank import EXITED, Rank
from convoy_workloads.runtime import heartbeat

KILL_SECONDS = 10.0
"""A rank that SIGKILL has not ended by then waits in the kernel, mostly for a network file system that is
gone. Nothing in this pod can end it."""


async def stop(ranks: Iterable[Rank], grace: float) -> list[Rank]:
    """Stop the ranks within `grace` seconds, at once without any. Return those that survive SIGKILL."""
    left = [rank for rank in ranks if rank.state != EXITED]
    if grace:
        for rank in left:
            rank.terminate()
        left = await unfinished(left, grace)
    while left:
        killed = [rank for rank in left if rank.pid]  # the others are about to start: not stuck
        for rank in killed:
            rank.kill()
        left = await unfinished(left, KILL_SECONDS)
        if stuck := [rank for rank in left if rank in killed]:
            return stuck
    return []


async def replace(ranks: list[Rank], grace: float) -> list[Rank]:
    """Stop the ranks of a replaced incarnation. Return those that survive SIGKILL.

    Only ranks that save their state on SIGTERM get time for it. The job stands still meanwhile, and one that
    waits for a peer in a collective handles no signal.
    """
    saving = savers(ranks)
    others = [rank for rank in ranks if rank not in saving]
    for rank in others:
        rank.kill()
    if saving:
        names = ", ".join(str(rank.rank) for rank in saving)
        replaced = f"incarnation {saving[0].incarnation} is replaced"
        say(f"{replaced}: ranks that handle SIGTERM have {grace:g} s: {names}")
    return await stop(saving, grace) or await stop(others, 0.0)


def savers(ranks: Iterable[Rank]) -> list[Rank]:
    """Return the ranks that handle SIGTERM and whose saves are their own.

    The checkpoints of a program that calls `convoy.join()` are refused once its incarnation is replaced. A
    warm rank is asked alone, of a cold one all processes are.
    """
    asked = [
        rank
        for rank in ranks
        if rank.state != EXITED and not (rank.hung or rank.lingers or heartbeat.read(rank.beat).joined)
    ]
    table = {} if all(rank.warm for rank in asked) else proc.scan()
    return [
        rank
        for rank in asked
        if any(
            proc.handles(pid, signal.SIGTERM)
            for pid in ([rank.pid] if rank.warm else _processes(rank.pid, table))
        )
    ]


def _processes(first: int, table: Mapping[int, Process]) -> list[int]:
    """Return the ids of a cold command's processes, those in sessions of their own included."""
    session = [pid for pid, one in table.items() if one.session == first]
    return [*session, *(set(proc.descendants(table, first)) - {*session})]


async def unfinished(ranks: Iterable[Rank], seconds: float) -> list[Rank]:
    """Wait for the ranks to end; return those that have not after `seconds`."""
    left = [rank for rank in ranks if rank.state != EXITED]
    if left:
        waiting = [asyncio.ensure_future(rank.done.wait()) for rank in left]
        _, pending = await asyncio.wait(waiting, timeout=seconds)
        for one in pending:
            one.cancel()
    return [rank for rank in left if rank.state != EXITED]
