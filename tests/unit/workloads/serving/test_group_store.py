"""Tests of the authenticated rendezvous of a replica's ranks."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_workloads.serving.group_store import AuthenticatedStore, NotAuthentic


class Plain:
    """A store that anybody may write to."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, name: str, value: Any) -> None:
        self.values[name] = bytes(value)

    def get(self, name: str) -> bytes:
        return self.values[name]


def test_ranks_with_the_same_key_read_each_other() -> None:
    plain = Plain()
    AuthenticatedStore(plain, b"key").set("rank-1", "10.0.0.2:4242")
    assert AuthenticatedStore(plain, b"key").get("rank-1") == b"10.0.0.2:4242"


def test_values_of_others_are_refused() -> None:
    plain = Plain()
    store = AuthenticatedStore(plain, b"key")
    store.set("rank-1", b"10.0.0.2:4242")
    with pytest.raises(NotAuthentic, match="'rank-1' in the rendezvous was not written with the key"):
        AuthenticatedStore(plain, b"another").get("rank-1")
    plain.values["rank-2"] = plain.values["rank-1"]
    plain.values["rank-3"] = b"10.6.6.6:4242"
    plain.values["rank-1"] += b"0"
    for name in ("rank-1", "rank-2", "rank-3"):
        with pytest.raises(NotAuthentic):
            store.get(name)
