"""Tests of the check before an uninstallation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from convoy_controllers.nodemarks import controller as nodemarks
from convoy_controllers.resources import NODE_HEALTHS, NODES, PODS, TRAINING_JOBS, resource_of
from convoy_crds.kinds import KINDS
from convoy_crds.terms import LABEL_NODE_HEALTH
from convoy_operator import uninstall
from convoy_operator.uninstall import check_twice, objection

from .conftest import FakeApi

PAGE = Path(__file__).parents[3] / "docs" / "install.md"


def jobs(*names: str) -> dict[str, list[str]]:
    return {"TrainingJob": [*names]}


def test_without_remaining_objects_there_is_no_objection() -> None:
    assert objection({}, []) is None


def test_an_objection_names_a_few_objects_and_counts_all() -> None:
    words = (
        objection(
            jobs(*(f"team/job-{number}" for number in range(7))), ["team/job-0-worker-0"], undo="undo it"
        )
        or ""
    )
    assert "7 TrainingJobs (team/job-0, team/job-1, team/job-2, team/job-3, team/job-4, ...)" in words
    assert "and 1 worker pod (team/job-0-worker-0)" in words
    commands = [line.split()[2] for line in words.splitlines() if "--cascade=foreground" in line]
    # An Experiment would create its jobs again.
    assert commands == ["experiments", "trainingjobs", "servingjobs"]
    assert words.endswith("To keep Convoy instead, restore the helm release:\n  undo it")


def test_marked_nodes_must_be_released_first() -> None:
    words = objection({}, [], ["n1"]) or ""
    assert words.splitlines()[0].endswith("Still present: 1 marked node (n1).")
    command = f"kubectl delete {uninstall.MARKING_KINDS} --all"
    assert command in words and "trainingjobs" not in words
    assert f"\n{command} " in PAGE.read_text(), "docs/install.md: name all kinds with marks_nodes=True"
    assert "1 TrainingJob (a/b), 1 worker pod (a/p) and 1 marked node (n1)." in (
        objection(jobs("a/b"), ["a/p"], ["n1"]) or ""
    )


def test_kinds_that_mark_nodes_say_so() -> None:
    causes = {watch.resource for watch in nodemarks.CONTROLLER.watches}
    # The marks of a NodeHealth are removed with its GuardPolicy.
    causes -= {NODES, PODS, NODE_HEALTHS}
    declared = {resource_of(kind) for kind in KINDS if kind.marks_nodes}
    assert causes == declared, "a kind that nodemarks watches needs marks_nodes=True in its KIND"


def test_objects_are_checked_again_after_the_agents_had_time(
    api: FakeApi, virtual: Callable[..., Any]
) -> None:
    async def checked(made_after: float | None) -> tuple[str | None, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if made_after is not None:
            job = {"metadata": {"name": "late", "namespace": "ns"}, "spec": {}}
            loop.call_later(made_after, api.put, TRAINING_JOBS, job, "ns")
        found = await check_twice(api, 25.0, "")
        return found, loop.time() - began

    assert virtual(checked(None)) == (None, 25.0)
    found, seconds = virtual(checked(10.0))
    assert seconds == 25.0 and "1 TrainingJob (ns/late)" in found
    assert virtual(checked(None))[1] == 0.0, "the objection comes without a wait"


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ({}, False),
        ({"spec": {"taints": [{"key": "node.kubernetes.io/unreachable"}]}}, False),
        ({"metadata": {"labels": {LABEL_NODE_HEALTH: "Healthy"}}}, True),
        ({"spec": {"taints": [{"key": "other"}, {"key": "convoy.dev/unqualified"}]}}, True),
    ],
    ids=["bare", "others", "labelled", "its hardware was never reported"],
)
def test_a_node_is_marked_by_a_label_or_a_taint(node: dict[str, Any], found: bool) -> None:
    assert uninstall.marked({"metadata": {"name": "n1"}, **node}) is found


@pytest.mark.parametrize(
    ("gone_after", "seconds", "words"), [(4.5, 30.0, None), (None, 15.0, "1 marked node (n1)")]
)
def test_marks_of_a_deleted_policy_have_a_grace_time(
    api: FakeApi,
    virtual: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    gone_after: float | None,
    seconds: float,
    words: str | None,
) -> None:
    async def checked() -> tuple[str | None, float]:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(uninstall.time, "monotonic", loop.time)
        began = loop.time()
        api.put(NODES, {"metadata": {"name": "n1", "labels": {LABEL_NODE_HEALTH: "Qualified"}}})
        if gone_after is not None:
            loop.call_later(gone_after, api.objects.pop, (NODES.plural, "", "n1"))
        return await check_twice(api, 25.0, ""), loop.time() - began

    found, took = virtual(checked())
    assert took == seconds
    assert (words is None and found is None) or (words is not None and words in (found or ""))


class Large(dict[str, Any]):
    """An object to which a test can keep a weak reference, so that it can count the objects in memory."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity


class Fleet:
    """A cluster with many nodes and no other objects. Every second node is marked."""

    def __init__(self) -> None:
        self.made: WeakSet[Large] = WeakSet()
        self.held = 0

    async def pages(self, resource: Any, selector: str = "") -> AsyncIterator[tuple[list[Large], str]]:
        for page in range(20 if resource == NODES else 0):
            yield [self._node(number) for number in range(10 * page, 10 * page + 10)], "1"

    def _node(self, number: int) -> Large:
        labels = {LABEL_NODE_HEALTH: "Healthy"} if number % 2 else {}
        node = Large(metadata={"name": f"n{number:03}", "labels": labels})
        self.made.add(node)
        self.held = max(self.held, len(self.made))
        return node

    async def list(self, resource: Any, selector: str = "") -> tuple[list[Large], str]:
        return [node async for page, _ in self.pages(resource, selector) for node in page], "1"


def test_nodes_are_read_one_page_at_a_time(
    virtual: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uninstall, "SETTLE_SECONDS", 0.0)
    fleet: Any = Fleet()
    words = virtual(uninstall.check(fleet, ""))
    assert "100 marked nodes (n001, n003, n005, n007, n009, ...)" in words
    assert fleet.held <= 20, "at most two pages are in memory"
