"""Tests of ranks that are equally slow on every node."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from convoy_controllers.nodehealth.following import KEPT, without_followers
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_crds.meta import ObjectMeta
from convoy_crds.nodehealth import Action, NodeHealth, NodeHealthStatus, NodeRef, Outcome, PaceRecord

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MOVED = PaceRecord(
    job="ns/j", uid="u", incarnation=1, ranks=8, seconds=1.5, gain=0.5, cause="Compute", slow=[3, 4]
)
AFTER = JobPace("u", 2, 1.5, 0.01, 50, 8, frozenset("bcdefghi"))
AGAIN = Suspicion("ns/j", NOW, NOW, 1.5, 100.0, "Compute", gain=0.5, ranks=(3,))


def swapped_node(outcome: Outcome, followed: bool = True, ago: timedelta = timedelta(0)) -> NodeHealth:
    """Return node `a`, from which the job was swapped."""
    pace = MOVED.model_copy(update={"followed": followed})
    decided = None if outcome is Outcome.PENDING else NOW - ago
    action = Action(at=NOW - ago, paces=[pace], outcome=outcome, decided=decided)
    status = NodeHealthStatus(node_ref=NodeRef(name="a"), actions=[action])
    return NodeHealth(metadata=ObjectMeta(name="hw"), status=status)


@pytest.mark.parametrize(
    ("node", "outcome", "kept"),
    [
        ("b", Outcome.PENDING, False),
        ("b", Outcome.WRONG, False),
        ("b", Outcome.RIGHT, True),
        ("b", Outcome.UNKNOWN, True),
        ("a", Outcome.PENDING, True),
        ("a", Outcome.WRONG, False),
    ],
)
def test_slowness_that_follows_a_rank_is_held_against_no_node(
    node: str, outcome: Outcome, kept: bool
) -> None:
    found = without_followers({node: (AGAIN,)}, [swapped_node(outcome)], {"ns/j": AFTER}, NOW)
    assert found == ({node: (AGAIN,)} if kept else {})


@pytest.mark.parametrize(
    ("one", "now"),
    [
        (replace(AGAIN, ranks=(5,)), AFTER),
        (replace(AGAIN, cause="Thermal"), AFTER),
        (replace(AGAIN, gain=1.1), AFTER),
        (replace(AGAIN, gain=0.2), AFTER),
        (replace(AGAIN, ranks=()), AFTER),
        (replace(AGAIN, job="ns/k"), AFTER),
        (AGAIN, replace(AFTER, incarnation=1)),
        (AGAIN, replace(AFTER, ranks=4)),
        (AGAIN, replace(AFTER, uid="another")),
        (AGAIN, None),
    ],
    ids=[
        "another",
        "another cause",
        "more",
        "less",
        "unknown",
        "another job",
        "not moved yet",
        "resized",
        "made again under its name",
        "not heard",
    ],
)
def test_other_suspicions_still_count_against_their_node(one: Suspicion, now: JobPace | None) -> None:
    paces = {} if now is None else dict.fromkeys(("ns/j", "ns/k"), now)
    assert without_followers({"b": (one,)}, [swapped_node(Outcome.WRONG)], paces, NOW) == {"b": (one,)}


def test_only_a_recent_swap_that_the_slowness_followed_protects_a_node() -> None:
    for one in (swapped_node(Outcome.WRONG, followed=False), swapped_node(Outcome.WRONG, ago=KEPT)):
        assert without_followers({"b": (AGAIN,)}, [one], {"ns/j": AFTER}, NOW) == {"b": (AGAIN,)}
    assert (
        without_followers({"b": (AGAIN,)}, [swapped_node(Outcome.WRONG, ago=KEPT / 2)], {"ns/j": AFTER}, NOW)
        == {}
    )


def test_each_suspicion_is_judged_separately() -> None:
    other = replace(AGAIN, ranks=(5,))
    found = without_followers(
        {"b": (AGAIN, other), "c": (AGAIN,)}, [swapped_node(Outcome.WRONG)], {"ns/j": AFTER}, NOW
    )
    assert found == {"b": (other,)}
