"""Tests that a rank loads only complete states: every shard of one generation, even if the agent reports
damaged shards.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from tests.unit.workloads.test_tiers_shard import saved

from convoy_workloads.runtime.errors import PeerLost
from convoy_workloads.runtime.tiers import restoring
from convoy_workloads.runtime.tiers.restoring import RestoreSession

NAMES = ["0", "1", "2"]
GONE = [["n", "id"]]


class Client:
    """Stands in for the connection to the agent.

    `broken`: for each shard, one list for each of its requests that fails. The list has the copies that the
    agent reports as damaged.
    """

    def __init__(self, broken: dict[str, list[list[list[str]]]]) -> None:
        self.broken = broken
        self.reported: list[list[list[str]]] = []
        """The damaged copies that the rank reported in each restore request."""
        self.given: list[str] = []

    def request(self, question: dict[str, Any], seconds: float) -> tuple[dict[str, Any], list[int]]:
        if question["type"] == "restore":
            assert question["attempt"] == len(self.reported)
            self.reported.append(list(question["broken"]))
            self.given.clear()
            chosen = {"generation": [1, 7], "shards": NAMES, "world": 3, "torch": "2.13"}
            return {"type": "restore", **chosen, "message": "", "lost": False}, []
        if question["type"] != "shard":
            return {"type": "done"}, []
        name = question["shard"]
        if self.broken.get(name):
            return {"type": "broken", "broken": self.broken[name].pop(0)}, []
        self.given.append(name)
        data, _ = saved({f"weights of {name}": 1})
        fd = os.memfd_create(name)
        os.write(fd, data)
        return {"type": "shard", "lengths": [len(data)]}, [fd]


def restoring_from(client: Client) -> RestoreSession:
    stand_in: Any = client
    return RestoreSession(stand_in, 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("whom", [[], GONE], ids=["nobody to blame", "a place that could not"])
def test_a_missing_shard_is_a_failed_attempt(name: str, whom: list[list[str]]) -> None:
    client = Client({name: [whom]})
    own = restoring_from(client)
    assert own.choose() is not None
    assert client.reported == [[], whom]
    assert sorted(client.given) == NAMES and len(own.shards) == 3


def test_a_restore_fails_if_a_shard_stays_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "ATTEMPTS", 3)
    client = Client({"1": [[]] * 9})
    with pytest.raises(PeerLost, match="could not be read"):
        restoring_from(client).choose()
    assert len(client.reported) == 3


def test_memory_is_prepared_while_the_shards_are_fetched() -> None:
    client, fetched, prepared = Client({}), threading.Event(), threading.Event()
    request = client.request

    def slow(question: dict[str, Any], seconds: float) -> tuple[dict[str, Any], list[int]]:
        if question["type"] == "shard":
            assert prepared.wait(30), "the fetch began after the preparation or not at all"
            fetched.set()
        return request(question, seconds)

    client.request = slow  # type: ignore[method-assign]
    own = restoring_from(client)
    assert own.choose(prepare=prepared.set) is not None
    assert fetched.is_set() and len(own.shards) == 3


def test_no_memory_is_prepared_for_a_fresh_start() -> None:
    def refused() -> None:
        raise AssertionError("prepared")

    class Fresh(Client):
        def request(self, question: dict[str, Any], seconds: float) -> tuple[dict[str, Any], list[int]]:
            answer, files = super().request(question, seconds)
            return {**answer, "generation": None, "shards": []}, files

    assert restoring_from(Fresh({})).choose(prepare=refused) is None
