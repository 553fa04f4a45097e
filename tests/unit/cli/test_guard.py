"""Tests of `convoy guard`: the NodeHealth that a name selects, and the output about it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.guard import decide
from convoy.cli.guard.why import explanation
from convoy.client.node_healths import NodeHealths
from convoy_crds.nodehealth import NodeHealth

from .test_show import NOW


def health(name: str = "hw", node: str = "n1", spec: Any = None, **status: Any) -> NodeHealth:
    body = {"nodeRef": {"name": node}, **status}
    return NodeHealth.model_validate({"metadata": {"name": name}, "spec": spec or {}, "status": body})


def text(about: NodeHealth) -> str:
    return "\n".join(explanation(about, NOW))


class Healths(NodeHealths):
    """A collection of given NodeHealths that records the patches it receives."""

    def __init__(self, *healths: NodeHealth) -> None:
        self.healths, self.patched = list(healths), []

    patched: list[tuple[str, dict[str, Any]]]

    def list(self, **_: Any) -> list[NodeHealth]:
        return self.healths

    def _patch(self, name: str, body: Any) -> NodeHealth:
        self.patched.append((name, body))
        return self.healths[0]


@pytest.fixture
def healths(monkeypatch: pytest.MonkeyPatch) -> Healths:
    found = Healths(health(), health("a", "twice"), health("b", "twice"), health("n1", "other"))
    monkeypatch.setattr(decide, "connect", lambda *_: SimpleNamespace(node_healths=found))
    return found


@pytest.mark.parametrize(
    ("name", "found"),
    [("n1", ["hw"]), ("hw", ["hw"]), ("twice", ["a", "b"]), ("b", ["b"]), ("nobody", [])],
)
def test_a_node_name_has_priority_over_a_nodehealth_name(
    healths: Healths, name: str, found: list[str]
) -> None:
    assert [one.metadata.name for one in healths.of(name)] == found


def test_a_node_without_evidence_is_described() -> None:
    shown = text(health(state="Unverified", since="2026-01-01T11:00:00Z", message="first seen, on node n1"))
    assert shown.startswith("node n1, hardware hw: Unverified for 60m\n  first seen")
    assert "GuardPolicy: none" in shown and "There is no evidence against this node." in shown


def test_swap_before_a_test_is_no_drain() -> None:
    action = {"at": "2026-01-01T11:00:00Z", "jobs": ["ns/j"], "test": True}
    assert "Emptied for a test 60m ago (ns/j): Pending" in text(health(actions=[action]))


def test_evidence_and_a_waiting_action_are_shown() -> None:
    times = {"since": "2026-01-01T11:30:00Z", "seen": "2026-01-01T11:59:00Z"}
    online = {"kind": "Online", "source": "ns/job", "cause": "Compute", "loss": 1234.5, "slowdown": 1.4}
    condition = {
        "type": "Acting", "status": "False", "reason": "SparesBudget", "message": "a drain waits",
        "lastTransitionTime": "2026-01-01T11:59:00Z",
    }  # fmt: skip
    turn = {
        "at": "2026-01-01T11:50:00Z",
        "before": "Suspect",
        "after": "Quarantined",
        "reason": "ConfirmedSlow",
    }
    shown = text(
        health(
            state="Quarantined",
            policy="default",
            evidence=[{**online, **times}],
            conditions=[condition],
            quarantines=["2026-01-01T11:50:00Z"],
            lemonScore=1.0,
            history=[turn],
        )
    )
    assert "ns/job: 40% slower than its peers (Compute) from 30m to 60s ago; lost 1234 GPU-seconds" in shown
    assert "! Acting=False: SparesBudget" in shown and "    a drain waits" in shown
    assert "Suspect -> Quarantined: ConfirmedSlow" in shown and "lemon score 1.00" in shown


def test_the_expected_gain_of_a_swap_is_shown() -> None:
    pace = {"job": "ns/j", "seconds": 1.5, "gain": 0.5}
    action = {"at": "2026-01-01T11:00:00Z", "jobs": ["ns/j"], "outcome": "Right", "paces": [pace]}
    shown = text(health(state="Requalifying", actions=[action]))
    assert (
        "Drained 60m ago (ns/j): Right\n  ns/j: a step took 1.5 s, 0.5 s of it because of this node" in shown
    )


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("2025-12-30T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("2025-12-20T00:00:00Z", "2026-01-09T00:00:00Z", ""),
    ],
    ids=["holds", "is cut short", "is over"],
)
def test_an_exemption_is_shown_while_it_holds(since: str, until: str, words: str) -> None:
    spec = {"exempt": {"user": "ada", "reason": "experiment", "until": until}}
    found = text(health(spec=spec, exemption={"since": since, "until": until, "before": "Qualified"}))
    assert (f"Exempt until {words}, by ada: experiment" in found) is bool(words)
    assert ("Exempt" in found) is bool(words)


def test_a_suspicion_to_be_tested_is_shown() -> None:
    hint = {"job": "ns/job", "cause": "Input", "at": "2026-01-01T11:50:00Z", "slowdown": 1.3}
    shown = text(health(state="Unverified", noticed=hint))
    assert "Noticed: ns/job was 30% slower on this node (Input), 10m ago" in shown
    assert "There is no evidence against this node." in shown


def test_a_condemnation_is_shown_with_its_author() -> None:
    shown = text(health(spec={"condemned": {"reason": "smoke", "user": "ops"}}, state="Condemned"))
    assert "Condemned by ops: smoke" in shown


def test_a_release_ends_a_condemnation(healths: Healths) -> None:
    decide.release("n1", reason="fixed", user="ops")
    ((name, body),) = healths.patched
    assert name == "hw" and body["spec"]["condemned"] is None
    spec = NodeHealth.model_validate({"metadata": {}, "spec": {"release": body["spec"]["release"]}}).spec
    assert spec.release is not None and (spec.release.reason, spec.release.user) == ("fixed", "ops")


def test_undo_removes_the_decision(healths: Healths) -> None:
    decide.exempt("n1", undo=True)
    decide.condemn("n1", undo=True)
    assert [body["spec"] for _, body in healths.patched] == [{"exempt": None}, {"condemned": None}]


@pytest.mark.parametrize("name", ["twice", "nobody"])
def test_no_decision_is_recorded_for_an_ambiguous_or_unknown_node(healths: Healths, name: str) -> None:
    result = CliRunner().invoke(app, ["guard", "condemn", name, "--reason", "smoke", "--user", "ops"])
    assert (result.exit_code, result.output.startswith("error: ")) == (1, True), result.output
    assert healths.patched == []


@pytest.mark.parametrize("decision", [decide.exempt, decide.condemn])
def test_a_decision_needs_a_reason(healths: Healths, decision: Callable[..., None]) -> None:
    with pytest.raises(typer.BadParameter, match="give a reason"):
        decision("n1")
    assert healths.patched == []
