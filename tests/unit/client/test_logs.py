"""Tests of `training_jobs.logs`: the pods whose logs it reads, how it reads them, and when it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cli.fake_client import serving_job

from convoy.client import NotFound, Refused
from convoy.client.api import Api
from convoy.client.pod_logs import MAX_PODS
from convoy.client.serving_jobs import ServingJobs
from convoy.client.training_jobs import TrainingJobs
from convoy_crds.terms import (
    ANNOTATION_CONTAINER,
    LABEL_GROUP,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_KIND,
    LABEL_ROLE,
)


def pod(index: int) -> Any:
    """Return a pod that has ended."""
    state = SimpleNamespace(running=None, terminated=True)
    return SimpleNamespace(
        metadata=SimpleNamespace(
            name=f"gpt-worker-{index}",
            namespace="team",
            uid=f"u{index}",
            labels={LABEL_INDEX: str(index)},
            annotations={ANNOTATION_CONTAINER: "gpt"},
        ),
        spec=SimpleNamespace(containers=[SimpleNamespace(name="mesh-proxy"), SimpleNamespace(name="gpt")]),
        status=SimpleNamespace(container_statuses=[SimpleNamespace(name="gpt", state=state)]),
    )


class Server(Api):
    """An API server with a job of four pods. All pods wrote a line in incarnation 1. In incarnation 2 all
    pods except the first wrote a line.
    """

    def __init__(self, replicas: int = 4, pods: int = 4, **status: Any) -> None:
        self.namespace, self.selectors, self.read = "team", list[str](), list[Any]()
        self.custom = SimpleNamespace(get_namespaced_custom_object="get")
        self.core = SimpleNamespace(list_namespaced_pod="pods", read_namespaced_pod_log="log")
        self.body: dict[str, Any] | None = {
            "metadata": {"name": "gpt", "uid": "one"},
            "spec": {"roles": [{"name": "worker", "replicas": replicas, "minReplicas": 1}]},
            "status": {"incarnation": 2, "phase": "Succeeded", **status},
        }
        self._pods = [pod(index) for index in range(pods)]

    def call(self, verb: Any, *arguments: Any, **options: Any) -> Any:
        if verb == "get":
            if self.body is None:
                raise NotFound("gone", 404)
            return self.body
        assert verb == "pods"
        self.selectors.append(selector := options["label_selector"])
        found = re.search(rf"{LABEL_INDEX} in \((.*)\)", selector)
        wanted = found[1].split(",") if found else None
        return SimpleNamespace(
            items=[one for one in self._pods if not wanted or one.metadata.labels[LABEL_INDEX] in wanted]
        )

    def lines(self, what: str, verb: Any, *arguments: Any, **options: Any) -> Iterator[bytes]:
        assert verb == "log" and options["container"] == "gpt", (
            "the rank container, not the sidecar before it"
        )
        assert options["follow"] == options["timestamps"]
        name = arguments[0]
        self.read.append((name, options["follow"]))
        for number in (1, 2):
            if (rank := int(name.rpartition("-")[2]) - (number == 2)) < 0:
                continue
            stamp = f"2026-01-01T00:00:0{number}Z " if options["timestamps"] else ""
            yield f"{stamp}[{number}/{rank}] x".encode()


SHRUNK = {"roles": [{"name": "worker", "desired": 4, "absent": [0]}]}
ALL = ["[1/0] x", "[1/1] x", "[2/0] x", "[1/2] x", "[2/1] x", "[1/3] x", "[2/2] x"]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("chosen", "lines", "selector"),
    [
        ({"rank": 0}, ["[2/0] x"], f",{LABEL_INDEX} in (1)"),
        ({"rank": 2, "incarnation": 2}, ["[2/2] x"], f",{LABEL_INDEX} in (3)"),
        ({"rank": 2, "incarnation": 1}, ["[1/2] x"], f",{LABEL_INDEX} in (2,3)"),
        ({"incarnation": 1}, ["[1/0] x", "[1/1] x", "[1/2] x", "[1/3] x"], ""),
    ],
)
def test_a_rank_is_read_from_the_pod_that_has_it(
    follow: bool, chosen: dict[str, int], lines: list[str], selector: str
) -> None:
    server = Server(**SHRUNK)
    assert sorted(TrainingJobs(server).logs("gpt", follow=follow, **chosen)) == lines
    assert set(server.selectors) == {f"{LABEL_JOB}=gpt,{LABEL_KIND}=TrainingJob{selector}"}
    # The ranks of an earlier incarnation write no more lines, so its logs are not followed.
    followed = follow and chosen.get("incarnation") != 1
    assert {how for _, how in server.read} == {followed}


@pytest.mark.parametrize("follow", [False, True])
def test_a_job_that_has_ended_is_read_to_its_end(follow: bool) -> None:
    server = Server(**SHRUNK)
    found = list(TrainingJobs(server).logs("gpt", follow=follow))
    assert sorted(found) == sorted(ALL) and (follow or found == ALL)
    assert len(server.read) == 4


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("server", "rank", "words"),
    [
        (Server(**SHRUNK), 3, "has no rank 3: its ranks are 0 to 2"),
        (Server(pods=0), None, "has no pods"),
        (Server(replicas=MAX_PODS + 1, pods=MAX_PODS + 1), None, "65 pods are too many to read at once"),
    ],
)
def test_unreadable_selections_are_refused(
    server: Server, rank: int | None, words: str, follow: bool
) -> None:
    with pytest.raises(Refused, match=words):
        TrainingJobs(server).logs("gpt", rank=rank, follow=follow)


def test_one_rank_of_many_pods_can_be_read() -> None:
    server = Server(replicas=MAX_PODS + 1, pods=MAX_PODS + 1)
    jobs = TrainingJobs(server)
    assert list(jobs.logs("gpt", rank=64)) == ["[1/64] x"]
    # Any pod may have had rank 0 in incarnation 1, so the logs of all pods are read.
    assert list(jobs.logs("gpt", rank=0, incarnation=1)) == ["[1/0] x"]
    assert len(server.read) == 1 + MAX_PODS + 1


SPOT = {"name": "spot", "replicas": 2, "minReplicas": 0, "membership": "Independent"}


class SpotServer(Server):
    """A job of two workers and two pods of an Independent role, the second of which is gone. Each group has
    run one incarnation.
    """

    def __init__(self, **status: Any) -> None:
        super().__init__(2, 2, **{"incarnation": 1, **status})
        assert self.body
        self.body["spec"]["roles"].append(SPOT)
        spot = pod(2)
        spot.metadata.name = "gpt-spot-0"
        self._pods.append(spot)

    def lines(self, what: str, verb: Any, *arguments: Any, **options: Any) -> Iterator[bytes]:
        self.read.append((arguments[0], options["follow"]))
        rank = 1 if arguments[0] == "gpt-worker-1" else 0
        for text in (f"[1/{rank}] x", "launcher"):
            yield f"2026-01-01T00:00:01Z {text}".encode() if options["timestamps"] else text.encode()


WORKERS = ["[1/0] x", "launcher", "[1/1] x", "launcher"]
OF_SPOT = ["[spot-0] [1/0] x", "[spot-0] launcher"]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("chosen", "lines"),
    [
        ({}, [*WORKERS, *OF_SPOT]),
        ({"role": "spot"}, OF_SPOT),
        ({"replica": "spot-0"}, OF_SPOT),
        ({"replica": "gpt-spot-0"}, OF_SPOT),
        ({"role": "worker"}, WORKERS),
        ({"replica": "worker-1"}, ["[1/1] x", "launcher"]),
        ({"role": "worker", "incarnation": 1}, ["[1/0] x", "[1/1] x"]),
        ({"rank": 0}, ["[1/0] x"]),
        ({"incarnation": 1}, ["[1/0] x", "[1/1] x"]),
    ],
)
def test_lines_of_independent_pods_name_their_pod(
    follow: bool, chosen: dict[str, Any], lines: list[str]
) -> None:
    server = SpotServer()
    assert sorted(TrainingJobs(server).logs("gpt", follow=follow, **chosen)) == sorted(lines)
    if "replica" in chosen:
        assert all(f"{LABEL_INDEX} in (" in one for one in server.selectors)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"role": "no"}, "gpt has no role 'no': its roles are worker, spot"),
        ({"replica": "spot"}, "gpt has no replica 'spot': write ROLE-NUMBER, such as spot-0"),
        ({"replica": "spot-2"}, "gpt has no replica 'spot-2'"),
        ({"replica": "spot-1"}, "replica spot-1 of gpt has no pod now"),
        ({"role": "spot", "replica": "spot-0"}, "not both"),
        ({"role": "spot", "rank": 0}, "rank 0 is in one pod"),
        ({"replica": "spot-0", "incarnation": 1}, "role spot is Independent"),
    ],
)
def test_pods_that_cannot_be_chosen_are_refused(chosen: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        TrainingJobs(SpotServer()).logs("gpt", **chosen)


def test_a_deleted_or_replaced_job_is_not_followed() -> None:
    for later in (None, {"metadata": {"name": "gpt", "uid": "two"}}):
        server = Server(phase="Running")
        lines = TrainingJobs(server).logs("gpt", follow=True)
        server.body = later and {**(server.body or {}), **later}
        assert list(lines) == [] and server.read == []


def test_an_incarnation_is_followed_until_the_next_one() -> None:
    server = Server(phase="Running")
    lines = TrainingJobs(server).logs("gpt", incarnation=2, follow=True)
    assert server.body
    server.body["status"]["incarnation"] = 3
    assert list(lines) == []


@pytest.mark.parametrize(
    ("chosen", "words", "selector"),
    [
        ({"role": "server"}, "role server of llm has no pods", f",{LABEL_ROLE}=server"),
        (
            {"replica": "server-1"},
            "replica server-1 of llm has no pods",
            f",{LABEL_ROLE}=server,{LABEL_GROUP}=1",
        ),
        ({"role": "server", "replica": "server-1"}, "not both", None),
    ],
)
def test_pods_of_a_servingjob_are_chosen_by_role_or_replica(
    chosen: dict[str, str], words: str, selector: str | None
) -> None:
    server = Server(pods=0)
    server.body = serving_job().to_dict()
    with pytest.raises(Refused, match=words):
        ServingJobs(server).logs("llm", **chosen)
    assert server.selectors == ([f"{LABEL_JOB}=llm,{LABEL_KIND}=ServingJob{selector}"] if selector else [])
