"""Tests of the Event recorder: it posts each Event once and never delays other work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from convoy_controllers.children import Event
from convoy_controllers.resources import ENGINES, TRAINING_JOBS
from convoy_crds.reasons.catalogue import Reasons
from convoy_operator import errors
from convoy_operator.events import PER_OBJECT, WINDOW, EventRecorder
from convoy_operator.metrics import Metrics

from .conftest import FakeApi

JOB = {"metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "5"}}


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def recorder(api: FakeApi, clock: Clock) -> EventRecorder:
    return EventRecorder(api, Metrics(), "replica", clock)


async def posted(recorder: EventRecorder, api: FakeApi) -> list[dict[str, Any]]:
    """Post all recorded Events, and return the Events at the API server."""
    task = asyncio.create_task(recorder.run())
    while recorder._outbox.qsize():  # noqa: ASYNC110 - the task ends only by cancellation
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return [raw for (plural, _, _), raw in api.objects.items() if plural == "events"]


async def test_an_event_has_reason_object_and_reporter(recorder: EventRecorder, api: FakeApi) -> None:
    recorder.record(TRAINING_JOBS, JOB, Event(Reasons.RANK_FAILED, "rank 1 failed"))
    (event,) = await posted(recorder, api)
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "RankFailed", "rank 1 failed")
    assert event["involvedObject"] == {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": "j",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "5",
    }
    assert event["metadata"]["namespace"] == "ns"
    assert event["firstTimestamp"] == "1970-01-12T13:46:40Z"
    assert event["reportingInstance"] == "replica"


async def test_equal_events_in_a_window_are_sent_once_and_then_counted(
    recorder: EventRecorder, api: FakeApi, clock: Clock
) -> None:
    for _ in range(5):
        recorder.record(TRAINING_JOBS, JOB, Event(Reasons.TRAINING, "m"))
    assert len(await posted(recorder, api)) == 1
    clock.now += WINDOW
    recorder.record(TRAINING_JOBS, JOB, Event(Reasons.TRAINING, "m"))
    assert sorted(event["count"] for event in await posted(recorder, api)) == [1, 5]


async def test_events_of_a_flapping_object_are_limited(
    recorder: EventRecorder, api: FakeApi, clock: Clock
) -> None:
    for n in range(PER_OBJECT + 10):
        recorder.record(TRAINING_JOBS, JOB, Event(Reasons.TRAINING, f"m{n}"))
    other = {"metadata": JOB["metadata"] | {"uid": "other"}}
    recorder.record(TRAINING_JOBS, other, Event(Reasons.TRAINING, "m"))
    assert len(await posted(recorder, api)) == PER_OBJECT + 1


async def test_events_of_cluster_scoped_objects_are_in_default(recorder: EventRecorder, api: FakeApi) -> None:
    recorder.record(ENGINES, {"metadata": {"name": "e", "uid": "u"}}, Event(Reasons.ACCEPTED, "m"))
    assert (await posted(recorder, api))[0]["metadata"]["namespace"] == "default"


async def test_a_long_message_is_cut_to_the_server_limit(recorder: EventRecorder, api: FakeApi) -> None:
    recorder.record(TRAINING_JOBS, JOB, Event(Reasons.RANK_FAILED, "ü" * 2000))
    message = (await posted(recorder, api))[0]["message"]
    assert len(message.encode()) <= 1024 and set(message) == {"ü"}


async def test_an_event_refused_by_the_server_is_ignored(recorder: EventRecorder, api: FakeApi) -> None:
    api.fail = lambda verb, plural, name: errors.Forbidden(403, "namespace is being terminated")
    recorder.record(TRAINING_JOBS, JOB, Event(Reasons.TRAINING, "m"))
    assert await posted(recorder, api) == []
    api.fail = lambda verb, plural, name: None
    recorder.record(TRAINING_JOBS, JOB, Event(Reasons.TRAINING, "m2"))
    assert len(await posted(recorder, api)) == 1


async def test_a_full_outbox_drops_and_counts_events(recorder: EventRecorder) -> None:
    for n in range(1100):
        owner = {"metadata": {"name": "j", "namespace": "ns", "uid": str(n)}}
        recorder.record(TRAINING_JOBS, owner, Event(Reasons.TRAINING, "m"))
    assert recorder._metrics.events_dropped.labels("queue_full")._value.get() == 100


@pytest.mark.parametrize("name", ["n" * 253, "n" * 235 + ".-.n" + "n" * 14])
async def test_the_longest_object_name_fits_its_event_name(
    recorder: EventRecorder, api: FakeApi, name: str
) -> None:
    engine = {"metadata": {"name": name, "uid": "u"}}
    recorder.record(ENGINES, engine, Event(Reasons.ACCEPTED, "fine"))
    (event,) = await posted(recorder, api)
    assert event["involvedObject"]["name"] == name
    assert len(event["metadata"]["name"]) <= 253 and ".." not in event["metadata"]["name"]
