"""Which generations belong to the run as it happened. Pure: records and branches in, a line out.

The line starts at the newest record of the highest incarnation and follows the parents. A record off this
line belongs to an incarnation that was already replaced when it was written (a dead branch): valid bytes of a
run that did not happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import MAX_HISTORY, Branch, Record


def lineage(records: Iterable[Record], branches: Iterable[Branch] = ()) -> list[Record]:
    """The generations to restore from, best first.

    A parent without a record (collected, or lost) is stepped over: what its incarnation committed before it
    is on the line too, and where that incarnation began its branch says. A parent that is not older than its
    child is a corrupt record and ends the line, so the walk always terminates.
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
    """Where each incarnation began, by its own word or by a later one's."""
    found: dict[int, Generation | None] = {}
    for branch in branches:
        if branch.decided:
            found.update(branch.history)
            found[branch.incarnation] = branch.parent
    return found


def branch_of(incarnation: int, parent: Generation | None, branches: Iterable[Branch]) -> Branch:
    """What an incarnation says once it knows where it begins."""
    known = sorted(beginnings(branches).items(), reverse=True)
    history = tuple((number, start) for number, start in known if number < incarnation)
    return Branch(incarnation, parent, history=history[:MAX_HISTORY])


def dead(records: Iterable[Record], branches: Iterable[Branch] = ()) -> list[Generation]:
    """Committed by an incarnation that had been replaced: off the line, and never restored from."""
    records = list(records)
    line = {one.generation for one in lineage(records, branches)}
    return sorted(one.generation for one in records if one.generation not in line)


def newest_incarnation(records: Iterable[Record], branches: Iterable[Branch]) -> int:
    """The highest incarnation that has left a trace; 0 for none."""
    traces = [one.generation.incarnation for one in records] + [one.incarnation for one in branches]
    return max(traces, default=0)


def _last(
    known: Mapping[Generation, Record], began: Mapping[int, Generation | None], incarnation: int
) -> Generation | None:
    """The newest of this incarnation, or else of the one that it went on from."""
    own = max((one for one in known if one.incarnation == incarnation), default=None)
    return own or _at_most(known, began, began.get(incarnation), Generation(incarnation, 0))


def _at_most(
    known: Mapping[Generation, Record],
    began: Mapping[int, Generation | None],
    wanted: Generation | None,
    child: Generation,
) -> Generation | None:
    """The newest on the line that is not newer than `wanted`, which must be older than its child."""
    while wanted is not None and wanted < child:
        if wanted in known:
            return wanted
        incarnation = wanted.incarnation
        older = [one for one in known if Generation(incarnation, 0) <= one < wanted]
        if older:
            return max(older)
        wanted, child = began.get(incarnation), Generation(incarnation, 0)
    return None
