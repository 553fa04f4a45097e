"""Tests of the engine aperon as a process: a kill in the middle of writes, and a replica of two pods."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ports import free_port

from convoy_workloads.engines.aperon import ENGINE

from .test_serving import manifest, running

DIMENSION = 8
SECONDS = 60.0


def post(port: int, name: str, body: Any) -> Any:
    url = f"http://127.0.0.1:{port}/v1/vectors/{name}"
    with urllib.request.urlopen(
        urllib.request.Request(url, json.dumps(body).encode()), timeout=SECONDS
    ) as response:
        return json.load(response)


def job(folder: Path, group: int = 1, replicas: int = 1) -> dict[str, Any]:
    """Return a job. Each of several replicas has a folder of its own, which ends with the process."""
    body = manifest(free_port(), group=group, replicas=replicas)
    state = str(folder / "state") if replicas == 1 else ""
    params = {**ENGINE.small, "state": state, "kernel": "twin", "flush_rows": 64}
    body["spec"]["roles"][0]["engine"] = {"name": "aperon", "params": params}
    return body


@pytest.mark.timeout(240)
def test_a_kill_in_the_middle_of_writes_loses_nothing_acknowledged(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    acknowledged: dict[str, list[float]] = {}
    deleted: set[str] = set()
    enough = threading.Event()

    def write(port: int, client: int) -> None:
        """Write until the process is killed. Every fifth write deletes the one before it."""
        for number in range(100_000):
            id_ = f"{client}-{number}"
            vector = rng.standard_normal(DIMENSION).astype(np.float32).tolist()
            try:
                post(port, "upsert", {"ids": [id_], "vectors": [vector]})
                acknowledged[id_] = vector
                if number % 5 == 4:
                    deleted.add(id_)
                    post(port, "delete", {"ids": [id_]})
            except (urllib.error.URLError, OSError):
                return
            if len(acknowledged) > 150:
                enough.set()

    with running(tmp_path, job(tmp_path)) as run:
        port = run.port
        run.ready()
        clients = [threading.Thread(target=write, args=(port, client)) for client in range(3)]
        for one in clients:
            one.start()
        assert enough.wait(SECONDS)
        os.kill(run.rank_pid(), signal.SIGKILL)
        for one in clients:
            one.join(SECONDS)
        run.ready(times=2)
        # The last delete of a client may have no answer: it was done or not.
        certain = sorted(set(acknowledged) - deleted)
        found = post(port, "get", {"ids": certain, "include_vectors": True})["records"]
        vectors = [one["vector"] for one in found]
        assert np.array_equal(
            np.array(vectors, np.float32), np.array([acknowledged[id_] for id_ in certain], np.float32)
        )
        gone = post(port, "get", {"ids": sorted(deleted)})["records"]
        assert sum(one is not None for one in gone) <= len(clients)
        nearest = post(port, "search", {"query": acknowledged[certain[0]], "k": 1, "exact": True})
        assert nearest["results"][0]["id"] == certain[0]


class Client:
    """Writes records at one replica, one by one, and deletes every fifth of them."""

    def __init__(self, port: int, number: int) -> None:
        self.present: dict[str, list[float]] = {}
        self.deleted: set[str] = set()
        self.ended = threading.Event()
        self._port, self._number = port, number
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        rng = np.random.default_rng(self._number)
        for number in range(100_000):
            if self.ended.is_set():
                return
            id_ = f"{self._number}-{number}"
            vector = rng.standard_normal(DIMENSION).astype(np.float32).tolist()
            if not self._send("upsert", {"ids": [id_], "vectors": [vector]}):
                self.ended.wait(0.05)
            elif number % 5 < 4:
                self.present[id_] = vector
            elif self._send("delete", {"ids": [id_]}):
                self.deleted.add(id_)

    def _send(self, name: str, body: Any) -> bool:
        try:
            post(self._port, name, body)
        except (urllib.error.URLError, OSError):
            return False
        return True

    def has_lost(self, port: int) -> list[str]:
        """Return the ids of the records that a replica does not have as they were acknowledged."""
        certain = sorted(self.present)
        found = post(port, "get", {"ids": certain, "include_vectors": True})["records"]
        lost = [
            id_
            for id_, one in zip(certain, found, strict=True)
            if one is None or not _same(one["vector"], self.present[id_])
        ]
        gone = sorted(self.deleted)
        records = post(port, "get", {"ids": gone})["records"] if gone else []
        return lost + [id_ for id_, one in zip(gone, records, strict=True) if one is not None]


def _same(one: list[float], other: list[float]) -> bool:
    return np.array_equal(np.array(one, np.float32), np.array(other, np.float32))


@pytest.mark.timeout(300)
def test_a_replica_that_ends_without_its_disk_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with running(tmp_path, job(tmp_path, replicas=2)) as run:
        ports = [run.port, run.port + 1]
        for replica in range(2):
            run.ready(replica)
        clients = [Client(port, number) for number, port in enumerate(ports * 2)]

        def all_have(least: int) -> bool:
            return all(len(one.present) >= least for one in clients)

        try:
            run.until(lambda: all_have(30))
            os.kill(run.rank_pid(), signal.SIGKILL)
            run.ready(times=2)
            more = 30 + max(len(one.present) for one in clients)
            run.until(lambda: all_have(more))
        finally:
            for one in clients:
                one.ended.set()
            for one in clients:
                one.thread.join(SECONDS)
        run.until(lambda: len({post(port, "count", {})["count"] for port in ports}) == 1)
        for port in ports:
            for one in clients:
                assert not one.has_lost(port)
        assert run.end() == 0


@pytest.mark.timeout(240)
def test_the_pods_of_a_replica_hold_shards(tmp_path: Path) -> None:
    vectors = np.random.default_rng(2).standard_normal((60, DIMENSION)).astype(np.float32)
    ids = [f"v{at}" for at in range(len(vectors))]
    with running(tmp_path, job(tmp_path, group=2)) as run:
        run.ready()
        assert post(run.port, "upsert", {"ids": ids, "vectors": vectors.tolist()}) == {"upserted": 60}
        order = np.argsort(np.square(vectors - vectors[3]).sum(axis=1))[:9]
        query = {"query": vectors[3].tolist(), "k": 9, "include_vectors": True}
        found = post(run.port, "search", query)["results"]
        assert [one["id"] for one in found] == [ids[at] for at in order]
        assert np.array_equal(np.float32(found[0]["vector"]), vectors[3])
        assert post(run.port, "delete", {"ids": ids[:10]}) == {"deleted": 10}
        assert post(run.port, "count", {}) == {"count": 50}
        assert run.end() == 0
    assert {one.name for one in (tmp_path / "state").iterdir()} == {"shard-0-of-2", "shard-1-of-2"}
