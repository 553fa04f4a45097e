"""Tests of the lists and the pages of the cluster-scoped objects."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client
from nicegui.page import page
from starlette.requests import Request
from tests.unit.operator.dashboard.builders import NOW, ago, condition, texts

from convoy_controllers.resources import Resource
from convoy_crds.kinds import KINDS
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.auth.request_guard import is_page
from convoy_operator.dashboard.cache import DashboardCache
from convoy_operator.dashboard.core.cluster_object import PAGES, condition_rows
from convoy_operator.dashboard.core.cluster_objects import LISTS, TONES, counts
from convoy_operator.dashboard.core.objects import ParsedObject, parser_of
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.pages.cluster_objects import ClusterObjectPage, ClusterPage
from convoy_operator.dashboard.settings import AuthMode

BY_PLURAL = {one.kind.plural: one for one in LISTS}
OTHER_PAGES = {"trainingjobs", "servingjobs", "experiments", "nodehealths", "spotpools"}
"""Kinds with a list on the overview. Nodes show their NodeHealths."""
VOLUME = {"volume": {"claimName": "checkpoints", "path": "a"}, "allowedNamespaces": ["*"]}
STEPS = {"type": "integer", "default": 5, "description": "Steps."}
SCHEMA = {"type": "object", "properties": {"steps": STEPS}}
ENGINE = {
    "image": "i",
    "command": ["python", "fit.py"],
    "description": "Fits a line.",
    "paramsSchema": SCHEMA,
    "metrics": [{"name": "error", "unit": "m", "help": "Largest error."}],
}
VERDICT = {
    "node": "node-1",
    "verdict": "Fail",
    "tier": "L1",
    "at": ago(minutes=3),
    "hardwareClass": "c",
    "evidence": [{"name": "gemm", "verdict": "Fail", "value": 5, "reference": 10, "unit": "TFLOP/s"}],
}
METRIC = {"name": "gemm", "unit": "TFLOP/s", "median": 10.0, "drift": -0.05}
OPEN = {"state": "Open", "reason": "TooMany", "message": "5 nodes"}


def made(plural: str, spec: dict[str, Any] | None = None, **status: Any) -> ParsedObject[Any]:
    metadata = {"name": "one", "uid": "u", "resourceVersion": "1", "creationTimestamp": ago(hours=3)}
    raw = {"metadata": metadata, "spec": spec or {}, "status": status}
    return parser_of(BY_PLURAL[plural].kind.model)(raw)


SWEEP = made(
    "healthsweeps",
    {"nodes": ["node-1"], "tiers": ["L0", "L1"]},
    observedGeneration=1,
    phase="Complete",
    progress="1/1",
    done=1,
    desired=1,
    failed=1,
    message="1 failed",
    nodes=[VERDICT],
    pairs=[{"node": "node-1", "partner": "node-2", "bandwidthMBps": 1200.0}],
)
CLASS = made(
    "hardwareclasses",
    nodes=9,
    referenced=1,
    drifted=["gemm"],
    metrics=[METRIC],
    facts={"cpu.model": "EPYC", "memory.gib": "24", "nics": ""},
)


def test_every_kind_has_a_list() -> None:
    assert {kind.plural for kind in KINDS} == OTHER_PAGES | set(BY_PLURAL)
    assert set(PAGES) == set(BY_PLURAL)


@pytest.mark.parametrize(
    ("plural", "found", "line"),
    [
        (
            "checkpointstores",
            made("checkpointstores", VOLUME, conditions=[condition("Ready", "False", "ClaimNotMounted")]),
            ["one", "NotReady", "claim checkpoints/a", "all", "-", "3h", "ClaimNotMounted: m"],
        ),
        (
            "checkpointstores",
            made("checkpointstores", VOLUME),
            ["one", "New", "claim checkpoints/a", "all", "-", "3h", "no agent has tested the store yet"],
        ),
        (
            "guardpolicies",
            made("guardpolicies", observedGeneration=1, nodes=4, states={"suspect": 1}, breaker=OPEN),
            ["one", "BreakerOpen", "4", "1", "0", "0", "Open", "3h", "TooMany: 5 nodes"],
        ),
        ("healthsweeps", SWEEP, ["one", "Complete", "L0, L1", "1/1", "1", "-", "3h", "1 failed"]),
        (
            "hardwareclasses",
            CLASS,
            ["one", "Drifted", "EPYC", "24 GiB", "9", "1/1", "3h",
             "the latest results deviate from the reference by more than 2 %: gemm"],
        ),
        (
            "engines",
            made("engines", ENGINE, conditions=[condition("Ready", "True", "Accepted")]),
            ["one", "Ready", "TrainingJob", "i", "3h", "Fits a line."],
        ),
    ],
)  # fmt: skip
def test_an_object_in_a_row(plural: str, found: ParsedObject[Any], line: list[str]) -> None:
    row = BY_PLURAL[plural].row(found, NOW)
    assert [cell.text for cell in row.cells] == line
    assert len(row.cells) == len(BY_PLURAL[plural].columns)
    assert is_page(row.cells[0].href)


@pytest.mark.parametrize("one", LISTS, ids=lambda one: one.kind.plural)
def test_an_unreadable_object_has_a_row(one: Any) -> None:
    row = one.row(ParsedObject("", "one", "u", 1, None, "spec.image is missing"), NOW)
    assert len(row.cells) == len(one.columns)
    assert (row.group, row.cells[-1].text) == ("Unreadable", "spec.image is missing")
    assert counts([row, row]) == {"Unreadable": 2}


def test_a_policy_that_covers_no_node_says_so() -> None:
    policy = BY_PLURAL["guardpolicies"]
    assert "spec.selector" in policy.why(made("guardpolicies", observedGeneration=1).model)
    assert "no operator" in policy.why(made("guardpolicies").model)


def test_the_parts_of_the_pages() -> None:
    def shown(plural: str, found: ParsedObject[Any]) -> dict[str, list[list[str]]]:
        return {part.key: texts(part.rows(found.model, NOW)) for part in PAGES[plural].parts}

    assert shown("engines", made("engines", ENGINE)) == {
        "parameters": [["steps", "integer", "5", "Steps."]],
        "metrics": [["error", "m", "Largest error."]],
    }
    assert shown("healthsweeps", SWEEP) == {
        "verdicts": [["node-1", "Fail", "L1", "3m ago", "c", "gemm 5 TFLOP/s against 10"]],
        "pairs": [["node-1", "node-2", "1,200 MB/s"]],
    }
    assert shown("hardwareclasses", CLASS) == {
        "metrics": [["gemm", "10 TFLOP/s", "higher", "-5.0%", "0", "0"]],
        "inventory": [["cpu.model", "EPYC"], ["memory.gib", "24"], ["nics", "-"]],
    }
    policy = made("guardpolicies", states={"suspect": 1, "qualified": 8, "draining": 0})
    assert shown("guardpolicies", policy) == {"states": [["Qualified", "8"], ["Suspect", "1"]]}


def test_conditions_of_a_kind_without_conditions() -> None:
    assert condition_rows(SWEEP.model, NOW) == []


class User:
    """A user who may list the resources in `plurals`."""

    undecided = False

    def __init__(self, *plurals: str) -> None:
        self._plurals = plurals

    async def everywhere(self, resource: Resource) -> bool:
        return resource.plural in self._plurals


async def opened(user: User, make: Any, path: str) -> Any:
    """Return a page that shows a cache with one HealthSweep and one HardwareClass."""
    cache = DashboardCache(Feed())
    cache.sweeps.upsert(SWEEP)
    cache.classes.upsert(CLASS)
    context: Any = SimpleNamespace(
        cache=cache,
        api_monitor=SimpleNamespace(unavailable_since=None, recovering=[], unwatched={}),
        loading=list,
        session_resolver=SimpleNamespace(mode=AuthMode.NONE),
    )
    session: Any = SimpleNamespace(identity=Identity("ada"), access=user, over=False)
    request = Request({"type": "http", "path": path, "headers": [], "query_string": b""})
    with Client(page(""), request=request) as client:
        shown = make(context, session, path)
        await shown.check_access()
        shown.show()
    client.delete()
    return shown


def test_the_lists_show_only_what_their_user_may_list() -> None:
    def make(context: Any, session: Any, path: str) -> ClusterPage:
        return ClusterPage(context, session, {}, path)

    shown = asyncio.run(opened(User("healthsweeps"), make, "/cluster"))
    tables = shown._tables
    assert {plural for plural, table in tables.items() if table._rows} == {"healthsweeps"}
    assert tables["hardwareclasses"].empty == "You may not list hardwareclasses.convoy.dev."


@pytest.mark.parametrize(
    ("plural", "why", "state"),
    [
        ("healthsweeps", "1 failed", "Complete"),
        ("hardwareclasses", "There is no such HardwareClass, or you may not see it.", ""),
        ("engines", "There is no such Engine, or you may not see it.", ""),
        ("pods", "There is no such kind, or you may not see it.", ""),
    ],
)
def test_the_page_of_an_object(plural: str, why: str, state: str) -> None:
    def make(context: Any, session: Any, path: str) -> ClusterObjectPage:
        return ClusterObjectPage(context, session, plural, "one", path)

    shown = asyncio.run(opened(User("healthsweeps", "engines"), make, f"/cluster/{plural}/one"))
    assert (shown._why.text, shown._state.text) == (why, state)
    assert not state or state in TONES
