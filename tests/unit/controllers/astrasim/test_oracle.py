"""Compares runs with the figures that ASTRA-sim computed, to the nanosecond."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convoy_controllers.astrasim.oracle import Case, cases, differences, play
from convoy_controllers.astrasim.parameters import CollectiveNode, CollectiveType, Simulation
from convoy_controllers.astrasim.parsing.simulation import simulation
from convoy_controllers.astrasim.run import run
from convoy_controllers.astrasim.symmetry import is_symmetric

BODY: Any = json.loads((Path(__file__).parent / "oracle.json").read_text())
CASES = cases(BODY)
MOST_RANKS = 8
"""Ranks of a case that the negative control plays again."""


def test_the_file_has_the_cases_of_the_source() -> None:
    assert BODY["source"]["commit"] == "518bd513ae110428cd62eb60efc0f3993fd53c70"
    assert len(CASES) == 187 and sum(one.finishes for one in CASES) == 166


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_figures_are_those_of_astra_sim(case: Case) -> None:
    result = play(case, collapse=False)
    assert differences(case, result) == []
    assert case.finishes or result.findings
    if case.finishes and is_symmetric(read := simulation(case.field.value)):
        assert run(read).collapsed and run(read).ranks == result.ranks


def delay_matters(read: Simulation) -> bool:
    """Return True if a collective uses the endpoint delay: in a group of some ranks it is fixed."""
    return any(
        isinstance(node, CollectiveNode)
        and node.type is not CollectiveType.BROADCAST
        and (node.group is None or len(read.workload.groups[node.group]) == read.network.ranks)
        for nodes in read.workload.ranks
        for node in nodes
    )


def test_a_changed_endpoint_delay_changes_the_figures() -> None:
    changed = unchanged = 0
    for case in CASES[::2]:
        if not case.finishes or case.field["npus"].whole() > MOST_RANKS:
            continue
        read = simulation(case.field.value)
        later = replace(read, system=replace(read.system, endpoint_delay=read.system.endpoint_delay + 1))
        differs = bool(differences(case, run(later)))
        assert differs == delay_matters(read), case.name
        changed += differs
        unchanged += not differs
    assert changed >= 15 and unchanged >= 3


def test_a_wrong_figure_is_a_difference() -> None:
    body = {"cases": [dict(BODY["cases"][0])]}
    result = body["cases"][0]["result"] = dict(body["cases"][0]["result"])
    result["finish_ns"] = {"min": 117_781, "max": 117_781}
    (case,) = cases(body)
    assert differences(case, play(case))[0] == "finish_ns of rank 0 is 117780, not 117781"


def test_a_case_that_must_not_finish_differs_if_it_does() -> None:
    body = {"cases": [{**BODY["cases"][0], "result": {"status": "stuck"}}]}
    (case,) = cases(body)
    assert differences(case, play(case)) == ["must not finish (stuck), but finishes"]


def test_a_case_that_must_finish_differs_if_it_does_not() -> None:
    stuck = next(one for one in BODY["cases"] if one["result"]["status"] == "stuck")
    (case,) = cases({"cases": [{**stuck, "result": {"status": "finished"}}]})
    (difference,) = differences(case, play(case))
    assert difference.startswith("must finish, but does not: Stuck: rank 0")
