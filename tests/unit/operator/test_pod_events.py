"""Tests of the Events of pods that do not start: the Events that name the cause, and the rate of requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from convoy_controllers.keys import Key
from convoy_controllers.plan import Inspect
from convoy_controllers.views import PodWarning
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_operator import errors, views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.pod_events import AT_ONCE, MIN_SECONDS, PodEvents, same, warning

KEY = Key(TRAINING_JOB.name, "ns", "job")
MISSING = 'MountVolume.SetUp failed for volume "scripts" : configmap "scritps" not found'
TIMED_OUT = "Unable to attach or mount volumes: unmounted volumes=[scripts], unattached volumes=[]"
SANDBOX = (
    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "
    '"{}": plugin type="bridge" failed: connect: connection refused ({} times, 10.0.0.7:{}->10.0.0.1:443)'
)
SCALE = "pod didn't trigger scale-up: 2 max node group size reached"


def event(reason: str, message: str, second: int, kind: str = "Warning", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"resourceVersion": str(more.pop("version", second))},
        "involvedObject": {"uid": "u", "fieldPath": more.pop("path", None)},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-01-01T00:00:{second:02}Z",
        **more,
    }


def normal(reason: str, second: int, **more: Any) -> dict[str, Any]:
    return event(reason, f"{reason} it", second, "Normal", **more)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([], None, id="none"),
        pytest.param([normal("Scheduled", 1), normal("Pulling", 2)], None, id="nothing is wrong"),
        pytest.param(
            [normal("Scheduled", 1), event("FailedMount", MISSING, 2)],
            ("FailedMount", MISSING),
            id="a ConfigMap",
        ),
        pytest.param(
            [event("FailedMount", MISSING, 2), event("FailedMount", TIMED_OUT, 9)],
            ("FailedMount", MISSING),
            id="the Event with the cause is preferred to the one with the failure",
        ),
        pytest.param(
            [event("FailedMount", TIMED_OUT, 9)], ("FailedMount", TIMED_OUT), id="only the failure is known"
        ),
        pytest.param(
            [event("FailedMount", MISSING, 2), normal("Pulling", 5, path="spec.containers{w}")],
            None,
            id="the mount has healed, the pod got further",
        ),
        pytest.param(
            [event("FailedMount", MISSING, 2), normal("Pulling", 5), event("FailedMount", MISSING, 8)],
            ("FailedMount", MISSING),
            id="the failure is back",
        ),
        pytest.param(
            [
                event("FailedPostStartHook", "exited 1", 4, path="spec.containers{w}"),
                normal("Started", 5, path="spec.containers{mesh}"),
            ],
            ("FailedPostStartHook", "exited 1"),
            id="the start of another container resolves nothing",
        ),
        pytest.param(
            [event("FailedScheduling", "0/3 nodes", 1)], None, id="the condition has the scheduler's message"
        ),
        pytest.param(
            [event("FailedScheduling", "0/3 nodes", 1), event("NotTriggerScaleUp", SCALE, 2, "Normal")],
            ("NotTriggerScaleUp", SCALE),
            id="no condition has the autoscaler's message",
        ),
        pytest.param(
            [event("NotTriggerScaleUp", SCALE, 2, "Normal"), normal("Scheduled", 3)],
            None,
            id="the pod has a node now",
        ),
        pytest.param(
            [event("FailedMount", MISSING, 3), event("FailedAttachVolume", "Multi-Attach", 3, version=2)],
            ("FailedMount", MISSING),
            id="within one second, the order of storage decides",
        ),
        pytest.param(
            [
                event("FailedMount", MISSING, 1),
                event("Unhealthy", "probe failed", 0, lastTimestamp=None, eventTime="2026-01-01T00:00:30.5Z"),
            ],
            ("Unhealthy", "probe failed"),
            id="the newer kind of Event, with its own field for the time",
        ),
        pytest.param(
            [event("FailedMount", f"(combined from similar events): {MISSING}\n  more", 1)],
            ("FailedMount", f"{MISSING} more"),
            id="the recorder's prefix is removed, and lines are joined",
        ),
        pytest.param(
            [event("Odd", "m", 1, lastTimestamp="yesterday"), {}], ("Odd", "m"), id="an unreadable Event"
        ),
    ],
)
def test_the_event_with_the_cause_is_chosen(
    events: list[dict[str, Any]], expected: tuple[str, str] | None
) -> None:
    found = warning(events)
    assert (found and (found.reason, found.message)) == expected
    assert warning(reversed(events)) == found, "the API server sorts by name"


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (SANDBOX.format("8a1f" * 16, 3, 53412), SANDBOX.format("77c0" * 16, 14, 40118), True),
        ("Back-off 10s restarting", "Back-off 20s restarting", True),
        ("pod 0b9e2a4c-1111-4222-8333-abcdefabcdef", "pod 1b9e2a4c-1111-4222-8333-abcdefabcdef", True),
        ('configmap "a" not found', 'configmap "b" not found', False),
    ],
)
def test_warnings_that_differ_in_ids_or_times_are_equal(one: str, other: str, alike: bool) -> None:
    assert same(PodWarning("R", one), PodWarning("R", other)) is alike
    assert not same(PodWarning("R", one), PodWarning("Q", one))
    assert not same(PodWarning("R", one), None)
    assert same(None, None)


class Server:
    """A fake API server with the Events of each pod, by pod uid."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.error: Exception | None = None

    async def events_of(self, namespace: str, uid: str) -> list[dict[str, Any]]:
        self.requests.append((namespace, uid))
        if self.error:
            raise self.error
        return self.events.get(uid, [])


class Bench:
    """Sends requests about the pods of one job at times that the test sets."""

    def __init__(self) -> None:
        self.server, self.cache, self.now = Server(), ClusterCache(), 0.0
        self.woken: list[Key] = []
        self.events = PodEvents(self.server, self.cache, self.woken.append, lambda: self.now)

    def pod(self, uid: str) -> None:
        metadata = {"name": f"p-{uid}", "namespace": "ns", "uid": uid, "resourceVersion": "1"}
        self.cache.pods.upsert(views.pod({"metadata": metadata}))

    async def request(self, *uids: str, key: Key = KEY) -> list[tuple[str, str]]:
        """Request the Events of these pods. Return the requests that reach the server."""
        before = len(self.server.requests)
        for uid in uids:
            self.events.request(key, Inspect(f"p-{uid}", uid))
        task = asyncio.create_task(self.events.run())
        for _ in range(4):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return self.server.requests[before:]


async def test_events_of_a_job_are_requested_at_a_limited_rate() -> None:
    bench = Bench()
    for number in range(1000):
        bench.pod(str(number))
    assert await bench.request(*map(str, range(1000))) == [("ns", "0")]
    bench.now = MIN_SECONDS - 0.1
    assert await bench.request("1") == []
    bench.now = MIN_SECONDS
    assert await bench.request("1") == [("ns", "1")]
    # The last request brought nothing new, so the next interval must be longer.
    bench.now += MIN_SECONDS + 0.1
    assert await bench.request("2") == []


async def test_a_warning_is_kept_and_a_change_wakes_the_job() -> None:
    bench = Bench()
    bench.pod("u")
    bench.server.events["u"] = [event("FailedMount", MISSING, 1)]
    await bench.request("u")
    assert bench.cache.pod_warnings == {"u": PodWarning("FailedMount", MISSING)} and bench.woken == [KEY]
    for _ in range(2):
        bench.now += 1000
        await bench.request("u")
    assert bench.woken == [KEY], "the same warning again wakes no job"
    bench.server.events["u"].append(normal("Pulling", 4))
    bench.now += 1000
    await bench.request("u")
    assert bench.cache.pod_warnings == {} and bench.woken == [KEY, KEY]


async def test_the_warning_of_a_deleted_pod_is_removed() -> None:
    bench = Bench()
    bench.pod("u")
    bench.server.events["u"] = bench.server.events["late"] = [event("FailedMount", MISSING, 1)]
    await bench.request("u")
    pod = bench.cache.pods.by_uid("u")
    assert pod is not None
    bench.cache.pods.remove(pod)
    bench.now += 1000
    assert await bench.request("late") == [("ns", "late")], "a pod that is deleted before the response comes"
    assert bench.cache.pod_warnings == {}


async def test_a_failed_request_for_events_is_retried_with_back_off() -> None:
    bench = Bench()
    bench.pod("u")
    bench.server.error = errors.Unavailable(0, "timeout")
    assert await bench.request("u") == [("ns", "u")]
    bench.now = MIN_SECONDS
    assert await bench.request("u") == [("ns", "u")]
    # Two requests brought nothing new, so the next interval must be longer still.
    bench.server.error, bench.now = None, 2 * MIN_SECONDS
    assert await bench.request("u") == []
    bench.now = 3 * MIN_SECONDS
    assert await bench.request("u") == [("ns", "u")]


async def test_requests_for_events_of_all_jobs_are_limited() -> None:
    bench = Bench()
    for number in range(200):
        bench.pod(str(number))
        bench.events.request(
            Key(TRAINING_JOB.name, "ns", f"job-{number}"), Inspect(f"p-{number}", str(number))
        )
    task = asyncio.create_task(bench.events.run())
    for _ in range(400):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert AT_ONCE <= len(bench.server.requests) <= AT_ONCE + 1
