"""Whether Convoy may be uninstalled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from convoy_crds.terms import LABEL_NODE_HEALTH
from convoy_operator import uninstall
from convoy_operator.resources import NODES, TRAINING_JOBS
from convoy_operator.uninstall import objection, settled

from .conftest import FakeApi


def test_nothing_left_is_no_objection() -> None:
    assert objection([], []) is None


def test_a_few_are_named_and_all_are_counted() -> None:
    words = (
        objection([f"team/job-{number}" for number in range(7)], ["team/job-0-worker-0"], undo="undo it")
        or ""
    )
    assert "7 TrainingJobs (team/job-0, team/job-1, team/job-2, team/job-3, team/job-4, ...)" in words
    assert "and 1 worker pod (team/job-0-worker-0)" in words
    assert "kubectl delete trainingjobs --all -A --cascade=foreground" in words
    assert words.endswith("To keep Convoy instead, so that helm knows of it:\n  undo it")


def test_marked_nodes_are_to_be_let_go_first() -> None:
    words = objection([], [], ["n1"]) or ""
    assert words.splitlines()[0].endswith("It has 1 marked node (n1).")
    assert "kubectl delete guardpolicies --all" in words and "trainingjobs" not in words
    assert "1 TrainingJob (a/b), 1 worker pod (a/p) and 1 marked node (n1)." in (
        objection(["a/b"], ["a/p"], ["n1"]) or ""
    )


def test_agents_are_given_time_and_then_it_looks_once_more(api: FakeApi, virtual: Callable[..., Any]) -> None:
    async def asked(made_after: float | None) -> tuple[str | None, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if made_after is not None:
            job = {"metadata": {"name": "late", "namespace": "ns"}, "spec": {}}
            loop.call_later(made_after, api.put, TRAINING_JOBS, job, "ns")
        found = await settled(api, 25.0, "")
        return found, loop.time() - began

    assert virtual(asked(None)) == (None, 25.0)
    found, seconds = virtual(asked(10.0))
    assert seconds == 25.0 and "1 TrainingJob (ns/late)" in found
    assert virtual(asked(None))[1] == 0.0, "what stands in the way is said at once"


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ({}, False),
        ({"spec": {"taints": [{"key": "node.kubernetes.io/unreachable"}]}}, False),
        ({"metadata": {"labels": {LABEL_NODE_HEALTH: "Healthy"}}}, True),
        ({"spec": {"taints": [{"key": "other"}, {"key": "convoy.dev/unqualified"}]}}, True),
    ],
    ids=["bare", "others", "labelled", "never told of its hardware"],
)
def test_a_node_is_marked_by_a_label_or_a_taint(node: dict[str, Any], found: bool) -> None:
    assert uninstall.marked({"metadata": {"name": "n1"}, **node}) is found


@pytest.mark.parametrize(
    ("gone_after", "seconds", "words"), [(4.5, 30.0, None), (None, 15.0, "1 marked node (n1)")]
)
def test_marks_of_a_policy_that_has_just_gone_have_a_moment(
    api: FakeApi,
    virtual: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    gone_after: float | None,
    seconds: float,
    words: str | None,
) -> None:
    async def asked() -> tuple[str | None, float]:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(uninstall.time, "monotonic", loop.time)
        began = loop.time()
        api.put(NODES, {"metadata": {"name": "n1", "labels": {LABEL_NODE_HEALTH: "Qualified"}}})
        if gone_after is not None:
            loop.call_later(gone_after, api.objects.pop, (NODES.plural, "", "n1"))
        return await settled(api, 25.0, ""), loop.time() - began

    found, took = virtual(asked())
    assert took == seconds
    assert (words is None and found is None) or (words is not None and words in (found or ""))
