"""Tests of the notice that a program reads, and of its reports about other nodes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from convoy_agents.pods.fields import MessageError
from convoy_agents.spot.draining import parse_draining
from convoy_agents.spot.notices import KEEP_SECONDS, Notices
from convoy_agents.spot.pod_notices import PodNotices
from convoy_agents.spot.source import Finding
from convoy_agents.wire import hub_pb2
from convoy_crds.spotpool_status import NoticeKind, NoticeSource
from convoy_workloads.runtime import node_notice


def test_the_file_of_the_agent_is_the_notice_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "notice.json"
    environ = {node_notice.VARIABLE: str(path)}

    def write(uid: str, content: object) -> None:
        assert uid == "u"
        path.write_text(json.dumps(content)) if content else path.unlink(missing_ok=True)

    pods = PodNotices(lambda: ["u"])
    pods.write = write
    assert node_notice.read(environ) is node_notice.read({}) is None
    deadline = int((time.time() + 100) * 1000)
    notice = hub_pb2.NodeNotice(
        kind="Preemption", sources=["AWS"], at_unix_ms=5000, deadline_unix_ms=deadline
    )
    pods.apply(hub_pb2.SpotNode(notice=notice))
    found = node_notice.read(environ)
    assert found is not None and (found.kind, found.sources, found.at) == ("Preemption", ("AWS",), 5.0)
    assert 90 < found.seconds_left <= 100
    path.unlink()
    pods.opened("u")
    assert node_notice.read(environ) == found, "a pod that comes later learns of the notice too"
    pods.apply(hub_pb2.SpotNode())
    assert node_notice.read(environ) is None and not path.exists()
    for text in ("", "[]", "{", '{"kind": "Removal"}', "x" * 10_000):
        path.write_text(text)
        assert node_notice.read(environ) is None, text


def test_a_program_s_report_reaches_the_hub_s_message() -> None:
    message = node_notice.draining_message("10.0.0.7", 30.0, "Ray")
    woken: list[int] = []
    notices = Notices("boot", lambda: woken.append(1))
    notices.report("u", parse_draining(message))
    notices.report("u", parse_draining(message))
    assert len(woken) == 1, "a repeated report is sent once"
    sent = notices.pop_message(again=False)
    assert sent is not None and notices.pop_message(again=False) is None
    (one,) = sent.notices
    assert (one.source, one.pod_uid, one.node) == ("Ray", "u", "10.0.0.7")
    assert notices.pop_message(again=True) == sent, "each session gets all notices"
    notices.drop_pod("u")
    empty = notices.pop_message(again=False)
    assert empty is not None and not empty.notices


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"source": "AWS"}, "source"),
        ({"node": ""}, "node"),
        ({"node": "n" * 300}, "node"),
        ({"deadlineMs": -1}, "deadlineMs"),
    ],
)
def test_an_invalid_frame_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(MessageError, match=named):
        parse_draining({**node_notice.draining_message("n", 1.0, "Ray"), **change})


@pytest.mark.parametrize(
    ("node", "seconds", "source"),
    [("n", -1.0, "Ray"), ("n", float("nan"), "Ray"), ("", 1.0, "Ray"), ("n", 1.0, "Moon")],
)
def test_an_invalid_argument_is_refused(node: str, seconds: float, source: str) -> None:
    with pytest.raises(ValueError, match=r"deadline_seconds|node|source"):
        node_notice.draining_message(node, seconds, source)


def test_findings_of_a_service_are_news_only_if_they_change() -> None:
    now = [1000.0]
    woken: list[int] = []
    notices = Notices("boot", lambda: woken.append(1), lambda: now[0])
    notices.set_findings(NoticeSource.AWS, [Finding(deadline=1120.0)])
    now[0] += 2
    notices.set_findings(NoticeSource.AWS, [Finding(deadline=1120.5), Finding(NoticeKind.REBALANCE)])
    notices.set_findings(NoticeSource.AWS, [Finding(deadline=1120.0), Finding(NoticeKind.REBALANCE)])
    assert len(woken) == 2
    sent = notices.pop_message(again=False)
    assert sent is not None
    assert [(one.kind, one.at_unix_ms) for one in sent.notices] == [
        ("Preemption", 1_000_000),
        ("Rebalance", 1_002_000),
    ]
    now[0] = 1120.0 + KEEP_SECONDS + 1
    notices.set_findings(NoticeSource.AWS, [Finding(deadline=1120.0)])
    sent = notices.pop_message(again=False)
    assert sent is not None and not sent.notices, "an old notice that is repeated does not hold"
    notices.stopping()
    sent = notices.pop_message(again=False)
    assert sent is not None and [one.source for one in sent.notices] == ["Sigterm"]
