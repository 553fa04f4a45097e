"""Tests of the log of a rank that cannot start because the store does not respond."""

from __future__ import annotations

from typing import Any, cast

import pytest

from convoy_workloads.runtime.errors import PeerLost, StoreAway
from convoy_workloads.runtime.tiers.restoring import RestoreSession

CHOSEN = {"type": "restore", "generation": [1, 10], "shards": ["0"], "message": "", "lost": False}


class Client:
    """Stands in for the connection to an agent, with fixed responses."""

    def __init__(self, *responses: dict[str, Any]) -> None:
        self.responses = list(responses)

    def request(self, question: Any, seconds: float) -> tuple[dict[str, Any], list[int]]:
        return self.responses.pop(0), []


@pytest.mark.parametrize("before", [[], [CHOSEN]], ids=["nothing is chosen", "a shard is not read"])
@pytest.mark.parametrize(
    ("response", "error"),
    [
        ({"type": "failed", "why": "bucket: HTTP 503", "store": True}, StoreAway),
        ({"type": "failed", "why": "no answer from two", "store": False}, PeerLost),
        ({"type": "failed", "why": "[Errno 5]"}, PeerLost),
        ({"type": "refused", "why": "7 more bytes are needed"}, PeerLost),
    ],
)
def test_an_unreachable_store_is_distinguished_from_other_errors(
    before: list[dict[str, Any]], response: dict[str, Any], error: type[Exception]
) -> None:
    restoring = RestoreSession(cast(Any, Client(*before, response)), rank=0)
    with pytest.raises(error, match=response["why"].replace("[", r"\[")):
        restoring.choose()
