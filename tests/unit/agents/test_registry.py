"""Tests of the hub's commands to pods' sessions."""

from __future__ import annotations

from typing import Any

from convoy_agents.outbox import Outbox
from convoy_agents.pods.registry import Pods
from convoy_agents.wire import hub_pb2


class Session:
    """A fake session that fails on every event."""

    def dispatch(self, event: Any) -> None:
        raise ValueError("a bug")


def test_a_failed_command_for_one_pod_does_not_end_the_hub_session() -> None:
    pods = Pods(Outbox())
    pods._sessions["p"] = Session()  # type: ignore[assignment]
    pods.command(hub_pb2.HubMessage(shutdown=hub_pb2.Shutdown(pod_uid="p", reason="over")))
