"""Stops ranks: sends SIGTERM, waits while they save their state, then sends SIGKILL."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Mapping

from convoy_workloads.launcher import proc
from convoy_workloads.launcher.output import log
from convoy_workloads.launcher.proc import Process
from convoy_workloads.launcher.rank import EXITED, Rank
from convoy_workloads.runtime import heartbeat

KILL_SECONDS = 10.0
"""Seconds to wait for the end of a rank after SIGKILL. A rank that still exists is blocked in the kernel,
usually on a network file system that does not respond. No process of this pod can end such a rank.
"""


async def stop(ranks: Iterable[Rank], grace: float) -> list[Rank]:
    """Stop the ranks within `grace` seconds; kill them at once if `grace` is 0. Return the ranks that
    survive SIGKILL.
    """
    left = [rank for rank in ranks if rank.state != EXITED]
    if grace:
        for rank in left:
            rank.terminate()
        left = await wait_for(left, grace)
    while left:
        # A rank without a process is about to be started, so it is not stuck.
        killed = [rank for rank in left if rank.pid]
        for rank in killed:
            rank.kill()
        left = await wait_for(left, KILL_SECONDS)
        if stuck := [rank for rank in left if rank in killed]:
            return stuck
    return []


async def replace(ranks: list[Rank], grace: float) -> list[Rank]:
    """Stop the ranks of a replaced incarnation. Return the ranks that survive SIGKILL.

    The next incarnation waits until these ranks have ended. So only ranks that save their state on SIGTERM
    get `grace` seconds, and the other ranks are killed at once. A rank that waits for a peer in a
    collective cannot handle a signal anyway.
    """
    saving = ranks_that_save(ranks)
    others = [rank for rank in ranks if rank not in saving]
    for rank in others:
        rank.kill()
    if saving:
        names = ", ".join(str(rank.rank) for rank in saving)
        replaced = f"incarnation {saving[0].incarnation} is being replaced"
        log(f"{replaced}: ranks that handle SIGTERM get {grace:g} s to save their state: {names}")
    return await stop(saving, grace) or await stop(others, 0.0)


def ranks_that_save(ranks: Iterable[Rank]) -> list[Rank]:
    """Return the ranks that handle SIGTERM and save their state without Convoy.

    A program that calls `convoy.join()` is left out, because the agents refuse checkpoints of a replaced
    incarnation. For a warm rank, only the program itself is checked, because only it gets SIGTERM. For a
    cold rank, all processes are checked.
    """
    candidates = [
        rank
        for rank in ranks
        if rank.state != EXITED
        and not (rank.hung or rank.lingers or heartbeat.read(rank.heartbeat_path).joined)
    ]
    table = {} if all(rank.warm for rank in candidates) else proc.scan()
    return [
        rank
        for rank in candidates
        if any(
            proc.handles(pid, signal.SIGTERM)
            for pid in ([rank.pid] if rank.warm else _processes(rank.pid, table))
        )
    ]


def _processes(first: int, table: Mapping[int, Process]) -> list[int]:
    """Return the ids of the processes of a cold rank, including processes in sessions of their own."""
    session = [pid for pid, one in table.items() if one.session == first]
    return [*session, *(set(proc.descendants(table, first)) - {*session})]


async def wait_for(ranks: Iterable[Rank], seconds: float) -> list[Rank]:
    """Wait at most `seconds` until the ranks have ended. Return the ranks that have not ended."""
    left = [rank for rank in ranks if rank.state != EXITED]
    if left:
        waiting = [asyncio.ensure_future(rank.done.wait()) for rank in left]
        _, pending = await asyncio.wait(waiting, timeout=seconds)
        for one in pending:
            one.cancel()
    return [rank for rank in left if rank.state != EXITED]
