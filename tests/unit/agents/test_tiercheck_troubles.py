"""Tests of the table of troubles with a pod's checkpoints."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.tiercheck.troubles import Cause, Kind, Troubles, by_kind, with_message
from convoy_agents.wire import hub_pb2

STORE, SHARD = Cause(Kind.NOT_STORED, "store"), Cause(Kind.NOT_STORED, "shard")
LOST = Cause(Kind.LOST)

causes = st.builds(Cause, st.sampled_from(Kind), st.sampled_from(["", "saving", "store"]), st.integers(0, 2))


def test_kinds_have_the_names_of_the_wire() -> None:
    assert set(Kind) == set(hub_pb2.Trouble.Kind.keys())


@given(st.lists(st.tuples(causes, st.sampled_from(["", "one", "two"]))))
def test_each_cause_lasts_until_its_end_independent_of_others(
    words: list[tuple[Cause, str]],
) -> None:
    known: Troubles = {}
    last: dict[Cause, str] = {}
    for cause, message in words:
        before = known
        known = with_message(known, cause, message)
        assert (known is before) == (last.get(cause, "") == message)
        last[cause] = message
    assert known == {cause: message for cause, message in last.items() if message}
    assert set(by_kind(known)) == {cause.kind.value for cause in known}
    for cause, message in known.items():
        assert message in by_kind(known)[cause.kind.value]


def test_messages_of_a_kind_have_a_fixed_order() -> None:
    ranks = [(Cause(Kind.NO_MEMORY, "saving", rank), f"rank {rank}") for rank in (10, 2)]
    first: Troubles = dict([*ranks, (LOST, "all"), (STORE, "busy"), (SHARD, "bad")])
    other: Troubles = dict(reversed(first.items()))
    wanted = {"NO_MEMORY": "rank 2; rank 10", "LOST": "all", "NOT_STORED": "bad; busy"}
    assert by_kind(first) == by_kind(other) == wanted
