"""Tests of the suspicions that telemetry raises against nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convoy_controllers.guard.findings import Cause, Finding
from convoy_controllers.guard.suspicions import GAP_SECONDS, blamed, noticeable, update_suspicions
from convoy_crds.trainingjob_straggler import Proof


def finding(
    cause: Cause = Cause.COMPUTE,
    place: str = "rank",
    ranks: tuple[int, ...] = (3,),
    lost: float = 0.5,
    persistent: bool = True,
) -> Finding:
    return Finding(cause, place, ranks, (1,), 10, 0.4, lost, persistent)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (finding(), True),
        (finding(place="node"), True),
        (finding(Cause.THERMAL), True),
        (finding(Cause.COMMUNICATION, "node"), True),
        (finding(Cause.COMMUNICATION, "inside"), True),
        (finding(Cause.COMMUNICATION, "link"), False),
        (finding(Cause.COMMUNICATION, "rack"), False),
        (finding(Cause.INPUT), False),
        (finding(Cause.HOST), False),
        (finding(Cause.IMBALANCE, "replica"), False),
        (finding(Cause.COMMON_MODE, "class"), False),
        (finding(Cause.UNKNOWN), False),
        (finding(ranks=()), False),
    ],
)
def test_only_causes_inside_a_node_raise_suspicion(found: Finding, expected: bool) -> None:
    assert blamed(found) is expected
    assert bool(update_suspicions({}, [({"n": (3,)}, found)], 8, 1, 0.0)) is expected


@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("place", ["rank", "node", "inside", "link"])
def test_finding_about_few_peers_never_counts_against_a_node(cause: Cause, place: str) -> None:
    found = replace(finding(cause, place), proof=Proof.FEW_PEERS)
    assert not blamed(found)
    assert not noticeable(replace(found, ranks=()))
    known = cause not in (Cause.IMBALANCE, Cause.COMMON_MODE, Cause.UNKNOWN)
    assert noticeable(found) is (known and place != "link")


def test_suspicion_grows_per_window_and_counts_all_accelerators() -> None:
    one = update_suspicions({}, [({"n": (3,)}, finding(persistent=False))], 8, 1, 100.0)
    assert not one["n"].lasting
    two = update_suspicions(one, [({"n": (3,)}, finding())], 8, 1, 101.0)
    assert (two["n"].since, two["n"].seen, two["n"].lasting) == (100.0, 101.0, True)
    assert two["n"].loss == pytest.approx(2 * 0.5 * 8)


def test_nodes_of_several_culprits_share_the_loss() -> None:
    found = update_suspicions({}, [({"a": (3,), "b": (4,)}, finding(ranks=(3, 4)))], 8, 1, 0.0)
    assert found["a"].loss == found["b"].loss == pytest.approx(2.0)
    assert (found["a"].ranks, found["b"].ranks) == ((3,), (4,))


def test_window_without_finding_ends_blame_and_a_long_gap_ends_suspicion() -> None:
    one = update_suspicions({}, [({"n": (3,)}, finding())], 8, 1, 100.0)
    quiet = update_suspicions(one, [], 8, 1, 101.0)
    assert not quiet["n"].lasting and quiet["n"].seen == 100.0
    again = update_suspicions(quiet, [({"n": (3,)}, finding())], 8, 1, 100.0 + GAP_SECONDS)
    assert again["n"].since == 100.0
    assert update_suspicions(quiet, [], 8, 1, 100.1 + GAP_SECONDS) == {}
    late = update_suspicions(quiet, [({"n": (3,)}, finding())], 8, 1, 100.1 + GAP_SECONDS)
    assert late["n"].since == late["n"].seen and late["n"].loss == pytest.approx(4.0)
