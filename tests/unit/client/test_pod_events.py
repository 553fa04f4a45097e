"""Tests that the Events of all pods in the namespace are requested together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from convoy.client.api import Api
from convoy.client.jobs import EVENT_PAGES, EVENTS_PAGE
from convoy.client.training_jobs import TrainingJobs


class Server(Api):
    """An API server that responds with `pages` and records the requests."""

    def __init__(self, pages: list[list[str]]) -> None:
        self.namespace, self.requests = "team", list[dict[str, Any]]()
        self.core = SimpleNamespace(list_namespaced_event="list")
        self._pages = pages

    def call(self, verb: Any, *arguments: Any, **options: Any) -> Any:
        assert (verb, arguments) == ("list", ("team",))
        self.requests.append(options)
        number = int(options.get("_continue", 0))
        events = [SimpleNamespace(involved_object=SimpleNamespace(uid=uid)) for uid in self._pages[number]]
        further = str(number + 1) if number + 1 < len(self._pages) else None
        return SimpleNamespace(items=events, metadata=SimpleNamespace(_continue=further))


@pytest.mark.parametrize(
    ("pages", "found", "whole", "requests"),
    [
        ([[]], {}, True, 1),
        ([["a", "b", "a"]], {"a": 2, "b": 1}, True, 1),
        ([["a"], ["b"], ["a"]], {"a": 2, "b": 1}, True, 3),
        ([["a"]] * (EVENT_PAGES + 1), {"a": EVENT_PAGES}, False, EVENT_PAGES),
    ],
)
def test_events_are_read_in_pages_up_to_a_bound(
    pages: list[list[str]], found: dict[str, int], whole: bool, requests: int
) -> None:
    server = Server(pages)
    events, all_read = TrainingJobs(server).pod_events()
    assert ({uid: len(of) for uid, of in events.items()}, all_read) == (found, whole)
    assert len(server.requests) == requests
    assert all(one["limit"] == EVENTS_PAGE for one in server.requests)
    assert all(one["field_selector"] == "involvedObject.kind=Pod" for one in server.requests)
