"""Tests of the rule by which a cut-off node stops its Strict jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.liveness import fence
from convoy_controllers.liveness.fence import FENCE_SECONDS, NEVER, QUIET_SECONDS, Contacts, StrictJob

NOW = 1000.0
LATE = NOW - FENCE_SECONDS
FRESH = LATE + 0.01


def job(peers: int, uid: str = "job") -> StrictJob[None]:
    nodes = [f"peer-{number}" for number in range(peers)]
    return StrictJob(uid, "ns/job", 1, dict.fromkeys(nodes), ("a",))


def contacts(hub: float, api: float, peers: list[float], uid: str = "job") -> Contacts:
    return Contacts(hub, api, {(uid, f"peer-{number}"): at for number, at in enumerate(peers)})


@pytest.mark.parametrize(
    ("hub", "api", "peers", "stops"),
    [
        (FRESH, NEVER, [], False),
        (LATE, NEVER, [], True),
        (LATE, FRESH, [], True),
        (LATE, NOW - 8.0, [], False),
        (LATE, LATE, [], True),
        (LATE, NEVER, [NEVER], True),
        (LATE, NEVER, [FRESH], False),
        (LATE, NEVER, [FRESH, NEVER], True),
        (LATE, NEVER, [FRESH, FRESH], False),
        (LATE, NEVER, [FRESH, NEVER, NEVER], True),
        (LATE, NEVER, [FRESH, FRESH, NEVER], False),
        (LATE, NEVER, [FRESH, FRESH, LATE, LATE], True),
        (LATE, NEVER, [FRESH, FRESH, FRESH, LATE], False),
        (LATE, LATE, [LATE, LATE], True),
    ],
    ids=[
        "the hub answers", "nobody answers a job without peers", "the API server, older than a Lease",
        "the API server answers",
        "neither has for long", "the only peer is silent", "the only peer attests", "one of two attests",
        "both attest", "one of three attests", "two of three attest", "half of four attest",
        "three of four attest", "all were reached too long ago",
    ],
)  # fmt: skip
def test_jobs_stop_if_hub_api_and_majority_of_peers_are_silent(
    hub: float, api: float, peers: list[float], stops: bool
) -> None:
    one = job(len(peers))
    assert fence.must_stop([one], contacts(hub, api, peers), NOW) == ([one] if stops else [])


def test_peer_attests_only_the_requested_job() -> None:
    one, other = job(1), job(1, "other")
    assert fence.must_stop([one, other], contacts(LATE, NEVER, [FRESH]), NOW) == [other]


times = st.sampled_from([NEVER, LATE - 5, LATE, FRESH, NOW - 1, NOW])


@given(st.lists(times, max_size=9))
def test_a_majority_is_more_than_half(peers: list[float]) -> None:
    since = fence.majority(peers)
    assert (2 * sum(at >= since for at in peers) > len(peers)) or not peers
    assert all(2 * sum(at >= later for at in peers) <= len(peers) for later in peers if later > since)


@given(times, times, st.lists(times, max_size=6), st.integers(0, 7), times)
def test_a_further_contact_never_stops_a_job(
    hub: float, api: float, peers: list[float], which: int, at: float
) -> None:
    one = job(len(peers))
    before = fence.must_stop([one], contacts(hub, api, peers), NOW)
    more = [max(old, at) if number == which else old for number, old in enumerate(peers)]
    hub, api = (max(hub, at), api) if which == 6 else (hub, max(api, at) if which == 7 else api)
    assert set_of(fence.must_stop([one], contacts(hub, api, more), NOW)) <= set_of(before)


def set_of(jobs: list[StrictJob[None]]) -> set[str]:
    return {one.uid for one in jobs}


@given(st.integers(2, 12), st.data())
def test_two_halves_of_a_job_do_not_both_continue(nodes: int, data: st.DataObject) -> None:
    side = [data.draw(st.booleans()) for _ in range(nodes)]
    lives = set()
    for node in range(nodes):
        voices = [FRESH if side[other] == side[node] else NEVER for other in range(nodes) if other != node]
        if not fence.must_stop([job(nodes - 1)], contacts(LATE, NEVER, voices), NOW):
            lives.add(side[node])
    assert len(lives) <= 1


def test_peers_are_not_contacted_while_hub_or_api_server_responds() -> None:
    quiet = NOW - QUIET_SECONDS
    for hub, api, contacted in [(quiet + 0.1, NEVER, 0), (quiet, quiet + 0.1, 0), (quiet, quiet, 2)]:
        assert len(fence.peers_to_contact([job(2)], Contacts(hub, api), {}, NOW)) == contacted


def test_peers_of_a_large_job_are_contacted_in_rotation() -> None:
    large, contacted = job(300), {}
    rounds = []
    for number in range(3):
        peers = fence.peers_to_contact([large], Contacts(LATE), contacted, NOW)
        assert len(peers) <= fence.MAX_CONTACTED
        contacted.update(dict.fromkeys(peers, NOW + number))
        rounds.append(peers)
    assert set().union(*rounds) == {("job", node) for node in large.peers}


def test_stop_reason_names_the_silent_parties() -> None:
    text = fence.stop_reason(job(3), contacts(NOW - 21, NEVER, [FRESH]), NOW)
    assert "for 21 s" in text
    assert "it reached only 1 of the job's 3 other nodes" in text
    assert "other nodes" not in fence.stop_reason(job(0), Contacts(NOW - 21), NOW)
