"""Tests that every reason belongs to a condition or another place and has a section in a runbook, and that
every section belongs to a reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.trainingjob.checkpointing import GRAVEST_FIRST
from convoy_controllers.workers.policy import POLICIES
from convoy_crds.condition_doc import BREAKER, EVENTS, HISTORY
from convoy_crds.conditions import CONDITION_DOCS, reason_pages
from convoy_crds.kinds import KINDS
from convoy_crds.reasons.catalogue import Reasons, all_reasons
from convoy_crds.terms import ConditionType

RUNBOOKS = Path(__file__).parents[3] / "docs" / "runbooks" / "conditions"
PARTS = ("**Look:**", "**Do:**")


def sections(page: str) -> dict[str, str]:
    """Return the sections of a page by heading."""
    parts = re.split(r"^## (.+)$", (RUNBOOKS / f"{page}.md").read_text(), flags=re.M)[1:]
    assert len(parts[::2]) == len(set(parts[::2])), "a heading is there twice"
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_reason_has_a_page() -> None:
    assert set(reason_pages()) == {reason.name for reason in all_reasons()}


def test_every_condition_and_its_kind_are_documented() -> None:
    types = {value for name, value in vars(ConditionType).items() if name.isupper()}
    assert {one.name for one in CONDITION_DOCS} == types | {EVENTS, HISTORY, BREAKER}
    assert {one.kind for one in CONDITION_DOCS} < {kind.name for kind in KINDS}
    assert len({(one.kind, one.name) for one in CONDITION_DOCS}) == len(CONDITION_DOCS)


def test_the_validity_condition_of_each_kind_is_documented() -> None:
    found = {(one.kind, one.name): one.reasons for one in CONDITION_DOCS}
    for controller in CONTROLLERS:
        if controller.kind is not None and controller.validity is not None:
            where = (controller.kind.name, controller.validity.condition)
            assert Reasons.INVALID_SPEC in found.get(where, ()), where


def test_documented_reasons_match_the_operator_tables() -> None:
    by_name = {
        one.name: {reason.name for reason in one.reasons}
        for one in CONDITION_DOCS
        if one.kind == "TrainingJob"
    }
    assert by_name["Checkpointing"] == {reason.name for reason in GRAVEST_FIRST}
    incurable = {name for name, policy in POLICIES.items() if policy.terminal}
    assert by_name["Restarting"] == set(POLICIES) - incurable
    assert incurable < by_name["Failed"]


@pytest.mark.parametrize("page", sorted(set(reason_pages().values())))
def test_every_reason_has_a_runbook(page: str) -> None:
    wanted = {reason for reason, where in reason_pages().items() if where == page}
    found = sections(page)
    assert set(found) == wanted
    warnings = {reason.name for reason in all_reasons() if reason.warning}
    for reason, text in found.items():
        if reason not in warnings and not any(part in text for part in PARTS):
            assert text.strip(), f"{reason} does not say what it means"
            continue
        positions = [text.find(part) for part in PARTS]
        assert 0 < positions[0] < positions[1], f"{reason} lacks one of {PARTS}, or their order"
        assert text[: positions[0]].strip(), f"{reason} does not say what it means"


def test_every_runbook_has_a_reason() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(reason_pages().values())


def test_every_runbook_is_linked() -> None:
    root = RUNBOOKS.parents[2]
    site = (root / "mkdocs.yml").read_text()
    overview = (RUNBOOKS.parent / "conditions.md").read_text()
    for page in set(reason_pages().values()):
        assert f"runbooks/conditions/{page}.md" in site
        assert f"(conditions/{page}.md)" in overview
