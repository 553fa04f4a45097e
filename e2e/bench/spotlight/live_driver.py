"""The driver of the part `live`. It runs beside the head of Ray and prints its figures as a line of JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np

from convoy_workloads.engines.spotlight.learning.models import untrained_policy
from convoy_workloads.engines.spotlight.live.connection import connect
from convoy_workloads.engines.spotlight.live.live_workers import LiveWorkers
from convoy_workloads.engines.spotlight.live.ray_actors import RayCluster
from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.ray_cluster.outcomes import Value, outcome
from convoy_workloads.spot.ledger.request import Request, RequestKind
from convoy_workloads.spot.ledger.requests import RequestLedger

WARM, COLD, COPIES = 200, 30, 20
WAIT_SECONDS = 300.0


class Measurement:
    """The workers of one pod, on which regroups, copies and degrees are measured."""

    def __init__(self, workers: LiveWorkers, ledger: RequestLedger, cluster: RayCluster, count: int) -> None:
        self._workers, self._ledger, self._cluster, self._count = workers, ledger, cluster, count
        self._version = 0

    def wait(self) -> None:
        """Serve until all workers have called."""
        end = time.monotonic() + WAIT_SECONDS
        while len(self._cluster.ready) < self._count:
            if time.monotonic() > end:
                sys.exit("the workers have not called in time")
            self._workers.serve(0.05)

    def load(self, names: list[str]) -> list[float]:
        """Let workers load the present weights one after another. Return the seconds of each."""
        handles = [self._cluster.running[name].handle for name in names]
        return [float(self._served(one.load.remote(self._version))) for one in handles]

    def publish(self, params: Params) -> int:
        """Publish new weights. Return their bytes."""
        self._version += 1
        policy = untrained_policy(params.problem)
        self._workers.publish(self._version, policy)
        return 4 * sum(one.numel() for one in policy.parameters())

    def warm(self) -> list[float]:
        """Return the seconds of regroups of workers that run and have the weights."""
        return [self._cluster.regroup(1 + number % 2) for number in range(WARM)]

    def cold(self) -> list[float]:
        """Return the seconds until new workers have joined a group and loaded the weights."""
        found = []
        for _ in range(COLD):
            began = time.perf_counter()
            self._cluster.restart()
            self.wait()
            self._cluster.regroup(2)
            self.load(sorted(self._cluster.ready))
            found.append(time.perf_counter() - began)
        return found

    def sample(self, degree: int) -> np.ndarray[Any, Any]:
        """Return the sample of a request that a group of this degree computes."""
        self._cluster.degrees = (degree,)
        self._cluster.regroup(degree)
        request = Request("bench", degree, 0, 1, RequestKind.ROLLOUT, self._version)
        self._ledger.plan([request])
        end = time.monotonic() + WAIT_SECONDS
        while not (done := self._ledger.consume([request.id], self._version)):
            if time.monotonic() > end:
                sys.exit(f"no sample with degree {degree} in time")
            self._workers.serve(0.02)
        path: np.ndarray[Any, Any] = np.asarray(done[0][1].payload["path"])
        return path

    def _served(self, reference: Any) -> Any:
        end = time.monotonic() + WAIT_SECONDS
        while not isinstance(found := outcome(reference, 0.0), Value):
            if time.monotonic() > end:
                sys.exit(f"a worker did not answer: {found}")
            self._workers.serve(0.005)
        return found.value


def main() -> None:
    """Measure how fast workers load weights and sample, and print the figures as one line of JSON. Times are
    in seconds.
    """
    signal.alarm(1500)
    params = Params.model_validate(json.loads(os.environ["CONVOY_PARAMS"]))
    with connect(params, 1) as start:
        ledger = RequestLedger(params.lease_seconds)
        workers = start(params, ledger)
        if not isinstance(workers, LiveWorkers) or not isinstance(cluster := workers.cluster, RayCluster):
            raise TypeError("the workers are no actors of Ray")
        workers.pause_own()
        measured = Measurement(workers, ledger, cluster, params.live.slots)
        measured.wait()
        size = measured.publish(params)
        names = sorted(cluster.ready)
        network, local = [], []
        for _ in range(COPIES):
            measured.publish(params)
            first, *others = measured.load(names)
            network.append(first)
            local += others
        samples = {degree: measured.sample(degree) for degree in (1, 2, 4)}
        differences = {degree: float(np.abs(samples[degree] - samples[1]).max()) for degree in (2, 4)}
        bits = all(np.array_equal(one, samples[1]) for one in samples.values())
        figures = {"bytes": size, "network": network, "local": local, "differences": differences}
        print(json.dumps({**figures, "sameBits": bits, "warm": measured.warm(), "cold": measured.cold()}))


if __name__ == "__main__":
    main()
