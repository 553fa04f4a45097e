"""Tests of ShardUses. A model of plain sets and a counter must give the same results."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.tiercheck.shard_uses import ShardUses

keys = st.sets(st.sampled_from("abcd"))
steps = st.lists(st.tuples(st.sampled_from(["pin", "unpin", "claim", "release", "start", "end"]), keys))


@given(steps)
def test_a_shard_stays_while_a_use_of_the_shard_lasts(done: list[tuple[str, set[str]]]) -> None:
    uses = ShardUses()
    pinned: set[str] = set()
    claimed: set[str] = set()
    uploads: Counter[str] = Counter()
    for what, some in done:
        match what:
            case "pin":
                uses.pin(some)
                pinned |= some
            case "unpin":
                uses.unpin_all()
                pinned.clear()
            case "claim":
                for key in some:
                    uses.mark_copy(key)
                claimed |= some
            case "release":
                uses.unmark_copies_except(some)
                claimed &= some | pinned
            case "start":
                uses.start_upload(some)
                uploads.update(some)
            case "end":
                uses.end_upload(some)
                uploads -= Counter(some)
        assert uses.pinned == pinned and uses.copies == claimed
        assert uses.uploading == uploads.keys() and uses.needed == pinned | uploads.keys()
        assert len(uses) == len(pinned | claimed | uploads.keys()), "nothing is remembered of a shard unused"
    uses.unmark_all_copies()
    assert not uses.copies
