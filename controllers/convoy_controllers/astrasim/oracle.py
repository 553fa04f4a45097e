"""Compares runs with the figures in a file of cases.

The file has `cases`, a list. Each case has the parameters of a simulation and its `result`: `status`, and for
status `finished` the times of the ranks. For any other status a run must report a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from convoy_controllers.astrasim.parsing.fields import Field, InvalidInput
from convoy_controllers.astrasim.parsing.simulation import simulation
from convoy_controllers.astrasim.result import Finding, FindingKind, RankFigures, Result
from convoy_controllers.astrasim.run import EVENTS, run

FINISHED = "finished"
MOST_CASES = 100_000
SHOWN = 5
"""Differences that a comparison lists."""

_FIGURES: dict[str, Callable[[RankFigures], int | None]] = {
    "finish_ns": lambda one: one.finish,
    "exposed_ns": lambda one: one.exposed,
    "comm_ns": lambda one: one.communication,
    "compute_ns": lambda one: one.compute,
    "overlap_ns": lambda one: one.overlap or None,
}
_STATISTICS = frozenset({"comm_ns", "compute_ns", "overlap_ns"})
"""Figures that the file lacks for a case with `statistics_lost`."""


@dataclass(frozen=True, slots=True)
class Case:
    """A case of a file."""

    name: str
    field: Field
    expected: Field

    @property
    def finishes(self) -> bool:
        """Return True if the run must finish."""
        return self.expected["status"].text() == FINISHED


def cases(body: Any) -> list[Case]:
    """Return the cases in a file's content. Raises InvalidInput if the content has not the form of cases."""
    found: list[Case] = []
    for field in Field(body, "")["cases"].items():
        if len(found) == MOST_CASES:
            raise InvalidInput("cases", f"may be at most {MOST_CASES}")
        result = field["result"]
        result["status"].text()
        found.append(Case(field["id"].text(), field, result))
    return found


def play(case: Case, events: int = EVENTS, collapse: bool = True) -> Result:
    """Run a case. Invalid input becomes a finding."""
    try:
        read = simulation(case.field.value, case.field.path)
    except InvalidInput as error:
        return Result((), (Finding(FindingKind.INVALID_INPUT, str(error)),))
    return run(read, events, collapse)


def differences(case: Case, result: Result) -> list[str]:
    """Return the differences between a case's figures and a run, up to a few. Raises InvalidInput if the
    figures have not the form that `cases` describes.
    """
    found: list[str] = []
    for one in _differences(case, result):
        found.append(one)
        if len(found) == SHOWN:
            return [*found, "and more"]
    return found


def _differences(case: Case, result: Result) -> Iterator[str]:
    findings = "; ".join(map(str, result.findings[:2]))
    if not case.finishes:
        if result.finished and not result.findings:
            yield f"must not finish ({case.expected['status'].text()}), but finishes"
        yield from _finished_ranks(case, result)
        return
    if not result.finished:
        yield f"must finish, but does not: {findings}"
        return
    ranks = [one for one in result.ranks if one is not None]
    lost = case.expected.has("statistics_lost")
    for name, figure in _FIGURES.items():
        if lost and name in _STATISTICS:
            continue
        expected = _per_rank(case, name, len(ranks))
        for rank, (one, wanted) in enumerate(zip(ranks, expected, strict=True)):
            if (found := figure(one)) != wanted:
                yield f"{name} of rank {rank} is {found}, not {wanted}"
    yield from _node_times(case, ranks)


def _finished_ranks(case: Case, result: Result) -> Iterator[str]:
    """Yield the differences of the ranks that finish although the run does not."""
    if not case.expected.has("finished_npus") or not result.ranks:
        return
    expected = case.expected["finished_npus"].members()
    found = {str(rank): one.finish for rank, one in enumerate(result.ranks) if one is not None}
    if found != expected:
        yield f"ranks finish at {found}, not {expected}"


def _per_rank(case: Case, name: str, ranks: int) -> list[int | None]:
    """Return the expected figure of each rank; None where the file has none."""
    if not case.expected.has(name):
        return [None] * ranks
    field = case.expected[name]
    if field.has("per_npu"):
        values = [None if one.value is None else one.whole() for one in field["per_npu"].items()]
        if len(values) != ranks:
            raise field["per_npu"].error(f"needs {ranks} entries, one for each rank, has {len(values)}")
        return [value or None if name == "overlap_ns" else value for value in values]
    return [field["min"].whole()] * ranks


def _node_times(case: Case, ranks: list[RankFigures]) -> Iterator[str]:
    if not case.expected.has("node_times_ns"):
        return
    field = case.expected["node_times_ns"]
    expected = (
        [one.members() for one in field["per_rank"].items()]
        if field.has("per_rank")
        else [field["all_ranks"].members()] * len(ranks)
    )
    if len(expected) != len(ranks):
        raise field.error(f"needs {len(ranks)} entries, one for each rank, has {len(expected)}")
    for rank, (one, wanted) in enumerate(zip(ranks, expected, strict=True)):
        found = {str(node): list(times) for node, times in one.nodes.items()}
        for node in sorted(found.keys() | wanted.keys()):
            if found.get(node) != wanted.get(node):
                yield f"times of node {node} of rank {rank} are {found.get(node)}, not {wanted.get(node)}"
