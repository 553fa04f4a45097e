"""Determines from records and branches which generations belong to the history of the current state. Pure.

These generations are called the line. It starts at the newest record of the highest incarnation, and leads
from each generation to its parent. A record that is not on the line is dead: an incarnation wrote it after
a later incarnation had replaced it. The bytes of a dead generation are valid, but no later incarnation
continued from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import MAX_HISTORY, Branch, Record


def lineage(records: Iterable[Record], branches: Iterable[Branch] = ()) -> list[Record]:
    """Return the records of the generations on the line, the newest first. A restore uses the first
    complete one.

    A parent may have no record, because the record was garbage-collected or lost. The line then goes on
    with the newest older record of the parent's incarnation. If there is none, the line goes on with the
    generation from which that incarnation started, according to its branch. A parent that is not older than
    its child shows a corrupt record and ends the line, so the walk always terminates.
    """
    known = {record.generation: record for record in records}
    began = beginnings(branches)
    line: list[Record] = []
    at = _last(known, began, max([*began, *(one.incarnation for one in known)], default=0))
    while at is not None:
        record = known[at]
        line.append(record)
        at = _at_most(known, began, record.parent, at)
    return line


def beginnings(branches: Iterable[Branch]) -> dict[int, Generation | None]:
    """Return the generation from which each incarnation started, by incarnation; None for a fresh start.

    The generation is read from the incarnation's own branch. If that branch is lost, it is read from the
    history that a later branch contains.
    """
    found: dict[int, Generation | None] = {}
    for branch in branches:
        if branch.decided:
            found.update(branch.history)
            found[branch.incarnation] = branch.parent
    return found


def branch_of(incarnation: int, parent: Generation | None, branches: Iterable[Branch]) -> Branch:
    """Return the branch of an incarnation that starts from the generation `parent`. The incarnation writes
    the branch as soon as it knows `parent`.
    """
    known = sorted(beginnings(branches).items(), reverse=True)
    history = tuple((number, start) for number, start in known if number < incarnation)
    return Branch(incarnation, parent, history=history[:MAX_HISTORY])


def dead(records: Iterable[Record], branches: Iterable[Branch] = ()) -> list[Generation]:
    """Return the committed generations that are not on the line. They are never restored. An incarnation
    wrote each of them after a later incarnation had replaced it.
    """
    records = list(records)
    line = {one.generation for one in lineage(records, branches)}
    return sorted(one.generation for one in records if one.generation not in line)


def newest_incarnation(records: Iterable[Record], branches: Iterable[Branch]) -> int:
    """Return the highest incarnation that has a record or a branch; 0 if no incarnation has one."""
    traces = [one.generation.incarnation for one in records] + [one.incarnation for one in branches]
    return max(traces, default=0)


def _last(
    known: Mapping[Generation, Record], began: Mapping[int, Generation | None], incarnation: int
) -> Generation | None:
    """Return the newest recorded generation of `incarnation`. If it has none, return the newest recorded
    generation that leads to the one from which the incarnation started (`_at_most`).
    """
    own = max((one for one in known if one.incarnation == incarnation), default=None)
    return own or _at_most(known, began, began.get(incarnation), Generation(incarnation, 0))


def _at_most(
    known: Mapping[Generation, Record],
    began: Mapping[int, Generation | None],
    wanted: Generation | None,
    child: Generation,
) -> Generation | None:
    """Return the newest generation on the line that is not newer than `wanted`; None if `wanted` is not
    older than `child`.
    """
    while wanted is not None and wanted < child:
        if wanted in known:
            return wanted
        incarnation = wanted.incarnation
        older = [one for one in known if Generation(incarnation, 0) <= one < wanted]
        if older:
            return max(older)
        wanted, child = began.get(incarnation), Generation(incarnation, 0)
    return None
