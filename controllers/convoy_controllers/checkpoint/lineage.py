"""Determines which generations belong to the actual run. Pure: from records and branches to a line.

The line starts at the newest record of the highest incarnation and follows the parents. A record off this
line was written by an incarnation that had already been replaced (a dead branch). Its bytes are valid, but
belong to a run that did not happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import MAX_HISTORY, Branch, Record


def lineage(records: Iterable[Record], branches: Iterable[Branch] = ()) -> list[Record]:
    """Return the generations to restore from, the best first.

    A parent may have no record, because it was garbage-collected or lost. The line then goes on with the
    newest older record of that incarnation, or with the parent that its branch names. A parent that is not
    older than its child shows a corrupt record and ends the line, so the walk always terminates.
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
    """Return where each incarnation started, according to its own branch or to a later one's history."""
    found: dict[int, Generation | None] = {}
    for branch in branches:
        if branch.decided:
            found.update(branch.history)
            found[branch.incarnation] = branch.parent
    return found


def branch_of(incarnation: int, parent: Generation | None, branches: Iterable[Branch]) -> Branch:
    """Return the branch that an incarnation writes once it knows where it starts."""
    known = sorted(beginnings(branches).items(), reverse=True)
    history = tuple((number, start) for number, start in known if number < incarnation)
    return Branch(incarnation, parent, history=history[:MAX_HISTORY])


def dead(records: Iterable[Record], branches: Iterable[Branch] = ()) -> list[Generation]:
    """Return the committed generations off the line. Their incarnations had been replaced; they are never
    restored.
    """
    records = list(records)
    line = {one.generation for one in lineage(records, branches)}
    return sorted(one.generation for one in records if one.generation not in line)


def newest_incarnation(records: Iterable[Record], branches: Iterable[Branch]) -> int:
    """Return the highest incarnation with a record or branch; 0 if there is none."""
    traces = [one.generation.incarnation for one in records] + [one.incarnation for one in branches]
    return max(traces, default=0)


def _last(
    known: Mapping[Generation, Record], began: Mapping[int, Generation | None], incarnation: int
) -> Generation | None:
    """Return the newest generation of this incarnation, or of the one it started from."""
    own = max((one for one in known if one.incarnation == incarnation), default=None)
    return own or _at_most(known, began, began.get(incarnation), Generation(incarnation, 0))


def _at_most(
    known: Mapping[Generation, Record],
    began: Mapping[int, Generation | None],
    wanted: Generation | None,
    child: Generation,
) -> Generation | None:
    """Return the newest generation on the line up to `wanted`, which must be older than its child."""
    while wanted is not None and wanted < child:
        if wanted in known:
            return wanted
        incarnation = wanted.incarnation
        older = [one for one in known if Generation(incarnation, 0) <= one < wanted]
        if older:
            return max(older)
        wanted, child = began.get(incarnation), Generation(incarnation, 0)
    return None
