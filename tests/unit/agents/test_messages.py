from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.pods.messages import (
    DataFolder,
    LauncherHello,
    MessageError,
    Metric,
    PortPicked,
    Progress,
    RankHello,
    RankUpdate,
    RunFacts,
    parse_from_launcher,
    parse_hello,
    parse_progress,
)
from convoy_agents.pods.report import to_wire
from convoy_agents.pods.rules import reduce
from convoy_agents.pods.state import PodState, RankProgress

HELLO = {"type": "hello", "role": "launcher", "incarnation": 2, "pid": 1, "python": "3.11.2"}
TIMES = {
    "startedMs": 5,
    "endedMs": 9,
    "firstStepMs": 6,
    "step": 41,
    "stepMs": 8,
    "checkpointMs": 1,
    "finishedMs": 7,
}
FACTS = {
    "folders": [{"path": "/data", "files": 5, "medianBytes": 70}],
    "ms": 60_000,
    "cpuMs": 1500,
    "acceleratorMs": 900,
    "accelerators": 4,
    "python": "3.11.7",
    "torch": "2.13.0",
}
GOOD = {"value": 0.5, "step": 3}
RANK = {"type": "rank", "incarnation": 2, "rank": 3, "state": "EXITED", "exitCode": 1}


@pytest.mark.parametrize(
    ("parse", "frame", "message"),
    [
        (parse_hello, HELLO, LauncherHello(2, 1, "3.11.2")),
        (parse_hello, {"type": "hello", "role": "rank", "incarnation": 2, "rank": 3}, RankHello(2, 3)),
        (parse_from_launcher, {"type": "portPicked", "incarnation": 2, "port": 29500}, PortPicked(2, 29500)),
        (parse_from_launcher, RANK, RankUpdate(2, 3, "EXITED", exit_code=1)),
        (
            parse_from_launcher,
            {**RANK, "signal": 9, "oom": True, "hung": True, "commandNotFound": True, "stderr": "é"},
            RankUpdate(2, 3, "EXITED", 1, 9, True, True, True, "é"),
        ),
        (
            parse_from_launcher,
            {**RANK, **TIMES},
            RankUpdate(2, 3, "EXITED", 1, 0, False, False, False, "", 5, 9, 6, 41, 8, 1, 7),
        ),
        (parse_progress, {"type": "progress", "step": 4}, Progress(4)),
        (
            parse_progress,
            {"type": "progress", "step": 4, "totalSteps": 9, "samplesPerSecond": 2, "loss": None,
             "metrics": {"held_out_loss": GOOD, "ratio": {"value": None, "step": 4}}, "timeMs": 7,
             "firstStepMs": 6, "checkpointMs": 250, "saveMs": 12, "copyMs": 70, "restoreMs": 33,
             "diverged": True, "facts": FACTS},
            Progress(
                4, 9, 2.0, None, (Metric("held_out_loss", 0.5, 3), Metric("ratio", None, 4)), 7, 6, 250, 12,
                70, 33, True,
                RunFacts((DataFolder("/data", 5, 70),), 60_000, 1500, 900, 4, "3.11.7", "2.13.0"),
            ),
        ),
        (parse_progress, {"type": "progress", "step": 4, "facts": {}}, Progress(4, facts=RunFacts())),
        (parse_from_launcher, {"type": "of a later version"}, None),
    ],
)  # fmt: skip
def test_messages_are_read(parse: Any, frame: dict[str, Any], message: Any) -> None:
    assert parse(frame) == message


@pytest.mark.parametrize(
    ("parse", "frame", "field"),
    [
        (parse_hello, {"type": "progress"}, "type"),
        (parse_hello, {**HELLO, "role": "operator"}, "role"),
        (parse_hello, {**HELLO, "role": None}, "role"),
        (parse_hello, {**HELLO, "incarnation": -1}, "incarnation"),
        (parse_hello, {**HELLO, "incarnation": 2**31 + 1}, "incarnation"),
        (parse_hello, {**HELLO, "incarnation": 2.0}, "incarnation"),
        (parse_hello, {**HELLO, "incarnation": True}, "incarnation"),
        (parse_hello, {**HELLO, "python": 3}, "python"),
        (parse_from_launcher, {"type": "portPicked", "incarnation": 1, "port": 0}, "port"),
        (parse_from_launcher, {"type": "portPicked", "incarnation": 1, "port": 65536}, "port"),
        (parse_from_launcher, {**RANK, "state": "PAUSED"}, "state"),
        (parse_from_launcher, {**RANK, "exitCode": "1"}, "exitCode"),
        (parse_from_launcher, {**RANK, "signal": 129}, "signal"),
        (parse_from_launcher, {**RANK, "oom": 1}, "oom"),
        (parse_from_launcher, {**RANK, "stderr": ["x"]}, "stderr"),
        (parse_from_launcher, {**RANK, "rank": 2**20 + 1}, "rank"),
        (parse_from_launcher, {**RANK, "startedMs": 2**53 + 1}, "startedMs"),
        (parse_from_launcher, {**RANK, "step": -1}, "step"),
        (parse_progress, {"type": "progress", "step": 1, "firstStepMs": 1.5}, "firstStepMs"),
        (parse_progress, {"type": "progress", "step": 1, "checkpointMs": "3"}, "checkpointMs"),
        (parse_progress, {"type": "progress", "step": 1, "saveMs": -1}, "saveMs"),
        (parse_progress, {"type": "progress", "step": 1, "copyMs": 2**53 + 1}, "copyMs"),
        (parse_progress, {"type": "progress"}, "step"),
        (parse_progress, {"type": "progress", "step": 1, "facts": []}, "facts"),
        (parse_progress, {"type": "progress", "step": 1, "facts": {"folders": {}}}, "facts.folders"),
        (parse_progress, {"type": "progress", "step": 1, "facts": {"folders": ["a"]}}, "facts.folders"),
        (parse_progress, {"type": "progress", "step": 1, "facts": {"folders": [{}] * 5}}, "facts.folders"),
        (parse_progress, {"type": "progress", "step": 1, "facts": {"cpuMs": -1}}, "facts.cpuMs"),
        (parse_progress, {"type": "progress", "step": 10**400}, "step"),
        (parse_progress, {"type": "progress", "step": 1, "loss": "low"}, "loss"),
        (parse_progress, {"type": "progress", "step": 1, "loss": 10**400}, "loss"),
        (parse_progress, {"type": "progress", "step": 1, "loss": float("inf")}, "loss"),
        (parse_progress, {"type": "progress", "step": 1, "diverged": 1}, "diverged"),
        (parse_progress, {"type": "progress", "step": 1, "metrics": [1]}, "metrics"),
        (parse_progress, {"type": "progress", "step": 1, "metrics": {"": GOOD}}, "metrics: ''"),
        (parse_progress, {"type": "progress", "step": 1, "metrics": {"Loss": GOOD}}, "metrics: 'Loss'"),
        (parse_progress, {"type": "progress", "step": 1, "metrics": {"a\n": GOOD}}, "metrics: "),
        (parse_progress, {"type": "progress", "step": 1, "metrics": {"a" * 64: GOOD}}, "metrics: 'aaa"),
        (parse_progress, {"type": "progress", "step": 1, "metrics": {"a": 1.0}}, r"metrics\.a"),
        (
            parse_progress,
            {"type": "progress", "step": 1, "metrics": {"a": {"value": 1}}},
            r"metrics\.a\.step",
        ),
        (
            parse_progress,
            {"type": "progress", "step": 1, "metrics": {"a": {**GOOD, "value": float("nan")}}},
            r"metrics\.a\.value: not finite",
        ),
        (
            parse_progress,
            {"type": "progress", "step": 1, "metrics": {f"m{number}": GOOD for number in range(65)}},
            "metrics: 65 names",
        ),
    ],
)
def test_a_bad_field_is_named(parse: Any, frame: dict[str, Any], field: str) -> None:
    with pytest.raises(MessageError, match=rf"^{field}"):
        parse(frame)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)
launcher_fields = [
    "pid",
    "python",
    "port",
    "state",
    "exitCode",
    "signal",
    "oom",
    "hung",
    "terminationRequested",
    "stderr",
    "result",
]
rank_fields = ["step", "totalSteps", "samplesPerSecond", "loss", "metrics", "checkpointMs", "diverged"]
times = ["timeMs", "startedMs", "endedMs", "firstStepMs", "stepMs", "finishedMs"]
names = st.sampled_from(["role", "incarnation", "rank", *launcher_fields, *rank_fields, *times])
metrics = st.dictionaries(
    st.sampled_from(["a", "held_out_loss", "B"]) | st.text(max_size=3),
    st.fixed_dictionaries({"value": values, "step": values}) | values,
    max_size=3,
)
types = st.sampled_from(["hello", "rank", "portPicked", "progress", "?"])


@given(
    types, st.dictionaries(names, values) | st.fixed_dictionaries({"step": st.just(1), "metrics": metrics})
)
def test_any_frame_gives_a_serializable_message_or_an_error(kind: str, body: dict[str, Any]) -> None:
    for parse in (parse_hello, parse_from_launcher, parse_progress):
        try:
            message = parse({**body, "type": kind})
        except MessageError as error:
            assert len(str(error)) < 200
            continue
        state = PodState("uid", connected=True)
        if isinstance(message, Progress):
            message = RankProgress(0, 0, message)
        if message is not None and not isinstance(message, RankHello):
            to_wire(reduce(state, message).state).SerializeToString()


def test_the_result_of_an_ended_rank_is_reported() -> None:
    update = parse_from_launcher(
        {"type": "rank", "incarnation": 0, "rank": 0, "state": "EXITED", "result": "{}"}
    )
    assert isinstance(update, RankUpdate)
    state = reduce(PodState("uid", connected=True), update).state
    assert [one.result for one in to_wire(state).ranks] == ["{}"]


def test_an_oversized_result_stays_recognisable() -> None:
    update = parse_from_launcher({**RANK, "result": "é" * 3000})
    assert isinstance(update, RankUpdate)
    assert 3500 < len(update.result.encode()) <= 3503
    broken = parse_from_launcher({**RANK, "result": "\ud800"})
    assert isinstance(broken, RankUpdate)
    assert broken.result == "?"


def test_the_tail_of_stderr_is_cut_between_characters() -> None:
    update = parse_from_launcher({**RANK, "stderr": "begin" + "é" * 3000})
    assert isinstance(update, RankUpdate)
    assert len(update.stderr.encode()) <= 2048
    assert set(update.stderr) == {"é"}
    broken = parse_from_launcher({**RANK, "stderr": "half a \ud800 pair"})
    assert isinstance(broken, RankUpdate)
    assert broken.stderr == "half a ? pair"
