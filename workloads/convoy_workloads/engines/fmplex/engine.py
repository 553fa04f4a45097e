"""The engine that serves many tasks on shared backbones. The front is `convoy_workloads.serving`; this
module is the iteration: choose a batch across tasks, compute its features once, and let each row's head
finish it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

import torch
from starlette.routing import BaseRoute

from convoy_workloads.engines.fmplex import heads, self_test
from convoy_workloads.engines.fmplex.admin_routes import TaskRoutes
from convoy_workloads.engines.fmplex.calls import Calls
from convoy_workloads.engines.fmplex.collector import TaskCollector
from convoy_workloads.engines.fmplex.deployment import Deployment
from convoy_workloads.engines.fmplex.heads import HeadError
from convoy_workloads.engines.fmplex.host import LocalHost
from convoy_workloads.engines.fmplex.params import Params, Task
from convoy_workloads.engines.fmplex.pods import Batch, Computed, Pod
from convoy_workloads.engines.fmplex.remote import Follower
from convoy_workloads.engines.fmplex.stats import BatchStats
from convoy_workloads.engines.fmplex.tasks import VirtualModel
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.extensions import Caller
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.group import Group, form
from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.protocol import Inference, ModelCard, Prediction, Usage
from convoy_workloads.serving.rank import run

MAX_GROUP = 16
"""Maximum number of pods of a replica."""
POLL_SECONDS = 0.05
"""Longest wait for other pods in an iteration."""


class Multiplexer:
    """The engine of one rank. Rank 0 of a replica serves; the other ranks host tasks for it."""

    def __init__(
        self, params: Params, path: Path | None, device: torch.device, group: Group | None = None
    ) -> None:
        """`path`: folder of the model; None if there is none."""
        self.batches = BatchStats()
        self._params = params
        self._path = path
        self._device = device
        self._group = group or Group()
        self._deployment: Deployment | None = None
        """The loaded tasks; None before the first load."""
        self._calls = Calls()

    def load(self, renew: Callable[[], None]) -> ModelCard:
        """Load the tasks. A second call loads the present ones again. Raises ModelError if a task cannot be
        loaded, and PeerLost if the other pods of the replica are not there.
        """
        tasks = list(self._params.tasks)
        if self._deployment is None:
            form(self._group, renew)
            self._deployment = Deployment(self._params, self._path, self._device, self._group, renew)
        else:
            tasks = [model.task for model in self.models()]
        self._deployment.load(tasks)
        names = sorted({model.assignment.backbone.name for model in self.models()})
        source = f"{len(tasks)} tasks on the backbones {', '.join(names)}" if tasks else "no tasks yet"
        return ModelCard(self._params.name, 0, source)

    def self_test(self) -> None:
        """Compare rows in batches with rows alone, and measure the costs. Raises SelfTestFailed if bits
        differ.
        """
        self_test.run(self.deployment, self._params.batch.max)

    def cards(self) -> Mapping[str, ModelCard]:
        """Return the cards of the tasks by name. Any thread may call this."""
        return {} if self._deployment is None else self._deployment.cards

    def admit(self, inference: Inference) -> bool:
        """Queue the rows of a request, or end it with an error."""
        model = self.deployment.find(inference.model)
        if model is None:
            why = f"task {inference.model!r} was detached: send the request to another task"
            self._calls.refuse(inference, RequestError(404, why, "model", "model_not_found"))
        else:
            self._calls.add(inference, model, self._pod(inference.model).queue)
        return True

    def step(self) -> list[Prediction]:
        """Compute a batch on each pod that is free. Return the results of the requests that have ended."""
        for pod in self.deployment.pods[1:]:
            done = pod.finished()
            if done is not None:
                self._finish(pod, done)
            # Other pods do not wait for further rows: this pod's batches already take that time.
            if pod.running is None and (batch := self._batch(pod)) is not None:
                pod.start(batch)
            pod.idle()
        self._step_here(self.deployment.pods[0])
        return self._calls.pop_ended()

    def cancel(self, sequence: int) -> None:
        """Drop a request. An unknown id is ignored."""
        call = self._calls.find(sequence)
        if call is not None:
            self._calls.cancel(sequence, self._pod(call.model.task.name).queue)
            self.deployment.free(call.model)

    def idle(self) -> None:
        """Show the other pods that this one is alive."""
        for pod in self.deployment.pods:
            pod.idle()

    def usage(self) -> Usage:
        """Return the number of requests with rows in a batch, and of those that wait."""
        if self._deployment is None:
            return Usage()
        running = sum(pod.calls for pod in self._deployment.pods)
        return Usage(running, max(0, len(self._calls) - running))

    def close(self) -> None:
        """Let the other pods end."""
        if self._deployment is not None:
            self._deployment.close()

    def follow(self, heartbeat: HeartbeatWriter) -> None:
        """Host tasks for rank 0 until it ends. Raises RuntimeError if rank 0 is lost."""
        heartbeat.start()
        form(self._group, heartbeat.touch)

        def renew() -> None:
            heartbeat.touch()
            follower.renew()

        host = LocalHost(self._params, self._path, self._device, renew)
        follower = Follower(host, self._params.backbones)
        follower.follow(heartbeat.serve)
        heartbeat.drain()

    # The admin routes call the following methods, between two iterations.

    def attach(self, task: Task) -> None:
        """Add a task. Raises ValueError or ModelError if that is not possible."""
        self.deployment.attach(task)

    def detach(self, name: str) -> Future[None]:
        """Remove a task once its last request has ended. Raises KeyError if there is no such task."""
        return self.deployment.detach(name)

    def update(self, name: str, changes: dict[str, Any]) -> None:
        """Change parameters of a task. Raises KeyError if there is no such task."""
        self.deployment.update(name, changes)

    def models(self) -> list[VirtualModel]:
        """Return all tasks."""
        return [] if self._deployment is None else self._deployment.models()

    def adapter_bytes(self) -> int:
        """Return the memory of the stacked adapters in this pod."""
        host = self.deployment.pods[0].host
        assert isinstance(host, LocalHost)  # noqa: S101 - the first pod is this one
        return host.adapter_bytes

    # The following methods add to the front.

    def admin_routes(self, call: Caller) -> Sequence[BaseRoute]:
        """Return the routes that attach, change and detach tasks."""
        return TaskRoutes(self, call).all()

    def register(self, metrics: Metrics) -> None:
        """Add the metrics of tasks and batches."""
        metrics.registry.register(
            TaskCollector(metrics.values, self.models, lambda: self.deployment.pods, self.batches)
        )

    @property
    def deployment(self) -> Deployment:
        """Return the loaded tasks."""
        assert self._deployment is not None  # noqa: S101 - the front loads first
        return self._deployment

    def _pod(self, task: str) -> Pod:
        return self.deployment.pods[self.deployment.model(task).assignment.pod]

    def _step_here(self, pod: Pod) -> None:
        """Compute a batch in this pod, or wait for rows or for another pod."""
        running = [other.running for other in self.deployment.pods if other.running is not None]
        seconds = self.wait_seconds(pod) if pod.queue.waiting() else POLL_SECONDS
        if not self._calls.any_ended and (running or pod.queue.waiting()) and seconds > 0:
            if running:
                wait(running, min(seconds, POLL_SECONDS), return_when=FIRST_COMPLETED)
            else:
                time.sleep(seconds)
        elif (batch := self._batch(pod)) is not None:
            pod.calls = len({item.call for item in batch.items})
            self._finish(pod, pod.compute(batch))
            pod.calls = 0

    def wait_seconds(self, pod: Pod) -> float:
        """Return the seconds that the oldest row may still wait for further rows."""
        oldest = pod.queue.oldest()
        settings = self._params.batch
        if oldest is None or pod.queue.waiting() >= settings.max:
            return 0.0
        now = time.monotonic()
        latest = oldest.at + settings.max_wait_ms / 1000
        for flow in pod.queue.backlogged():
            slo = self.deployment.model(flow.task).task.slo_ms / 1000
            if slo:
                item = flow.oldest()
                latest = min(latest, item.at + slo - pod.costs.cost(item.key, settings.max))
        return latest - now

    def _batch(self, pod: Pod) -> Batch | None:
        """Return the next batch of a pod; None if no row waits."""
        items = pod.queue.next_batch()
        if not items:
            return None
        rows, slots = [], []
        for item in items:
            call = self._calls.find(item.call)
            assert call is not None  # noqa: S101 - the rows of an ended request are dropped
            rows.append(call.rows[item.row])
            slots.append(call.model.assignment.slot)
        model = self.deployment.model(items[0].task)
        return Batch(items, model.assignment.backbone, model.facts.form, rows, slots)

    def _finish(self, pod: Pod, computed: Computed) -> None:
        """Let the heads finish the rows of a batch."""
        started_at = time.perf_counter()
        items = computed.batch.items
        features = computed.features_BC.to(self._device)
        for item in items:
            self.deployment.model(item.task).pending -= 1
        # The rows of a request that has ended are dropped.
        wanted = [number for number, item in enumerate(items) if self._calls.find(item.call) is not None]
        rows = [(self.deployment.model(items[number].task).head, features[number]) for number in wanted]
        for number, result in zip(wanted, heads.compute(rows), strict=True):
            if isinstance(result, HeadError):
                self._calls.fail(items[number], str(result), pod.queue)
            else:
                self._calls.complete(items[number], result)
        seconds = computed.seconds + time.perf_counter() - started_at
        pod.costs.observe(items[0].key, len(items), seconds)
        self.batches.sizes[len(items)] += 1
        for task in [item.task for item in items]:
            self.deployment.model(task).stats.busy_seconds += seconds / len(items)
        for task in {item.task for item in items}:
            self.deployment.free(self.deployment.model(task))


def make(params: Params, path: Path | None, group: Group) -> Multiplexer:
    """Return the engine for this machine: on the GPU if there is one, else on CPUs."""
    torch.set_num_threads(params.threads)
    return Multiplexer(params, path, torch.device("cuda" if torch.cuda.is_available() else "cpu"), group)


def limits(params: Params) -> Limits:
    """Return the limits of the front."""
    return Limits(params.queue, params.max_body_bytes, params.request_seconds)


def main() -> None:
    """Run one rank of a replica."""
    run("fmplex", Params, make, limits, MAX_GROUP)


if __name__ == "__main__":
    main()
