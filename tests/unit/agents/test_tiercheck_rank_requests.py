"""Tests of the parser of a rank's memory requests with valid and invalid frames."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.pods.fields import MessageError
from convoy_agents.tiercheck.rank_requests import (
    Abandon,
    FetchShard,
    Inexact,
    Poll,
    RankRequest,
    Reserve,
    Restore,
    Restored,
    Seal,
    parse,
)

SEAL = {"type": "seal", "buffer": "0-1", "step": 7, "length": 4096, "world": 2, "torch": "2.13", "plan": "p"}


@pytest.mark.parametrize(
    "frame, wanted",
    [
        ({"type": "reserve", "size": 10}, Reserve(10)),
        ({"type": "reserve", "size": 10, "segments": 4}, Reserve(10, 4)),
        ({"type": "poll", "known": "{}"}, Poll("{}")),
        ({"type": "poll"}, Poll("")),
        (SEAL, Seal("0-1", 7, 4096, 2, "2.13", "p")),
        ({**SEAL, "extends": [3, 6]}, Seal("0-1", 7, 4096, 2, "2.13", "p", extends=(3, 6))),
        ({**SEAL, "extends": None}, Seal("0-1", 7, 4096, 2, "2.13", "p")),
        ({"type": "restore", "attempt": 2, "bases": True}, Restore(2, (), bases=True)),
        ({"type": "restore", "attempt": 0, "whole": True}, Restore(0, (), whole=True)),
        ({"type": "restore", "attempt": 1, "broken": [["n", "id"]]}, Restore(1, (("n", "id"),))),
        ({"type": "restore", "attempt": 0}, Restore(0, ())),
        ({"type": "shard", "shard": "3"}, FetchShard("3")),
        ({"type": "restored"}, Restored()),
        ({"type": "abandon", "step": 7}, Abandon(7)),
        ({"type": "inexact", "what": "two.weight"}, Inexact("two.weight")),
    ],
)
def test_rank_requests_are_parsed(frame: dict[str, Any], wanted: RankRequest) -> None:
    assert parse(frame) == wanted


@pytest.mark.parametrize(
    "frame, word",
    [
        ({"type": "erase"}, "erase"),
        ({"type": "reserve"}, "size"),
        ({"type": "reserve", "size": -1}, "size"),
        ({"type": "reserve", "size": True}, "size"),
        ({"type": "reserve", "size": 2**60}, "size"),
        ({**SEAL, "buffer": 3}, "buffer"),
        ({**SEAL, "step": "7"}, "step"),
        ({**SEAL, "length": None}, "length"),
        ({"type": "reserve", "size": 1, "segments": 1000}, "segments"),
        ({**SEAL, "extends": 6}, "extends"),
        ({**SEAL, "extends": [1]}, "extends"),
        ({**SEAL, "extends": [1, "6"]}, "step"),
        ({"type": "abandon", "step": -1}, "step"),
        ({"type": "restore", "attempt": 0, "bases": 1}, "bases"),
        ({"type": "restore", "attempt": 0, "whole": "all"}, "whole"),
        ({"type": "restore", "attempt": 0, "broken": "all"}, "broken"),
        ({"type": "restore", "attempt": 0, "broken": [["n"]]}, "broken"),
        ({"type": "restore", "attempt": 0, "broken": [["n", 1]]}, "broken"),
        ({"type": "restore", "attempt": 0, "broken": [["n", "i"]] * 5000}, "broken"),
    ],
)
def test_a_malformed_request_names_the_bad_field(frame: dict[str, Any], word: str) -> None:
    with pytest.raises(MessageError, match=word):
        parse(frame)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from(["reserve", "poll", "seal", "inexact", "restore", "shard", "restored", "other"])
names = st.sampled_from(
    [*SEAL, "extends", "segments", "bases", "whole", "size", "known", "attempt", "broken", "shard"]
)


@given(kinds, st.dictionaries(names, json, max_size=4))
def test_any_frame_is_a_rank_request_or_an_error(kind: str, body: dict[str, Any]) -> None:
    with contextlib.suppress(MessageError):
        parse({**body, "type": kind})
