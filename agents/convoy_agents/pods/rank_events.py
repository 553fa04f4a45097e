"""Parses the frames of a rank that change the state of its pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_agents.pods.fields import whole
from convoy_agents.pods.messages import MAX_STEP, RankHello, parse_progress
from convoy_agents.pods.state import RankLoading, RankProgress
from convoy_agents.tracing.order import TraceResult
from convoy_agents.tracing.requests import parse_failure


def parse_from_rank(
    frame: Mapping[str, Any], hello: RankHello
) -> RankProgress | RankLoading | TraceResult | None:
    """Parse a frame that a rank sends after its hello; None if the type is unknown. Raises MessageError for
    an invalid field.
    """
    if frame["type"] == "progress":
        return RankProgress(hello.incarnation, hello.rank, parse_progress(frame))
    if frame["type"] == "loading":
        return RankLoading(hello.incarnation, hello.rank, whole(frame, "timeMs", MAX_STEP))
    if frame["type"] == "traceFailed":
        return parse_failure(frame, hello)
    return None
