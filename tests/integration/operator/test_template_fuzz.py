"""Tests random mutations of valid templates. The operator must never fail, and every job must get a status.

`make fuzz-templates` tries 20,000 mutations. The variable CONVOY_FUZZ_TEMPLATES sets the number.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient

from convoy.cli.manifest import parse, problems
from convoy_controllers.keys import Key
from convoy_controllers.resources import PODS, TRAINING_JOBS
from convoy_controllers.testing.hub import FakeHub
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.workers.pod import with_incarnation
from convoy_crds import engine
from convoy_crds.layout import command, slots
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import errors, views
from convoy_operator.client import KubernetesGateway
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.events import EventRecorder
from convoy_operator.metrics import Metrics
from convoy_operator.pod_events import PodEvents
from convoy_operator.queue import WorkQueue
from convoy_operator.reader import ClusterReader
from convoy_operator.reconcile import ReconcileContext, Reconciler
from convoy_operator.refusals import Refusals
from convoy_operator.settings import Settings
from convoy_workloads.engines.catalogue import catalogue

from .conftest import client_of
from .mutations import job

COUNT = int(os.environ.get("CONVOY_FUZZ_TEMPLATES", "200"))
FIRST = int(os.environ.get("CONVOY_FUZZ_FIRST", "0"))
AT_ONCE = 8
DROPPED = ("there is no such field", "levels of objects and lists")


class Trial:
    """Creates jobs at a real API server and reconciles them, without watches and agents."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        settings, self.metrics = Settings(qps=0.0), Metrics()
        self.gateway, self.namespace = KubernetesGateway(client, settings, self.metrics), namespace
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.cache = ClusterCache()
        entry = {"metadata": {"name": "gpt", "uid": "e", "resourceVersion": "1"}}
        self.cache.objects(engine.KIND).upsert(views.cached_object({**catalogue()["gpt"].to_dict(), **entry}))
        queue: WorkQueue[Key] = WorkQueue()
        refusals = Refusals(settings.backoff_min_seconds, settings.backoff_max_seconds)
        context = ReconcileContext(
            gateway=self.gateway,
            node_gateway=self.gateway,
            cache=self.cache,
            queue=queue,
            recorder=EventRecorder(self.gateway, self.metrics, "fuzz"),
            metrics=self.metrics,
            settings=settings,
            pod_events=PodEvents(self.gateway, self.cache, queue.add),
            send=lambda command: None,
            unsettled=lambda nodes: 0.0,
        )
        reader = ClusterReader(self.cache, FakeHub(), refusals.standing)
        self.reconciler = Reconciler(context, reader, refusals)

    async def run(self, number: int) -> None:
        """Create one job, reconcile it until it has a status, and delete everything that was created."""
        body = job(number)
        found = problems(parse(body), [])
        try:
            raw = await self._create(body)
        except errors.Invalid:
            self.outcomes["refused by the API server" + (", not by validate" if not found else "")] += 1
            return
        stored = views.cached_object(raw)
        self.cache.jobs.upsert(stored)
        await self.reconciler.handle(Key(TRAINING_JOB.name, self.namespace, stored.name))
        await self._judge(number, stored.name, found)
        await self._remove(stored)

    async def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Create a job with field validation turned off. The API server then drops unknown fields without a
        warning.
        """
        path, params = TRAINING_JOBS.path(self.namespace), {"fieldValidation": "Ignore"}
        return await self.gateway._call("create", TRAINING_JOBS, path, body=body, params=params)

    async def _judge(self, number: int, name: str, found: list[str]) -> None:
        status = (await self.gateway.get(TRAINING_JOBS, self.namespace, name)).get("status") or {}
        reason = status.get("reason")
        if not status.get("phase") or not reason or reason == "ReconcileFailed":
            self.faults.append(f"{number}: status {str(status)[:300]}")
        made = self.cache.pods.get(self.namespace, f"{name}-worker-0") is not None
        if reason == "InvalidSpec" and "spec." not in str(status.get("message")):
            self.faults.append(f"{number}: no path in {status.get('message')}")
        # Ignore errors about unknown fields: the API server dropped these fields when the job was created.
        dropped = any(words in one for words in DROPPED for one in found)
        if made and found and not dropped:
            self.faults.append(f"{number}: validate refuses what runs: {found[0][:300]}")
        self.outcomes["pods created" if made else str(reason)] += 1

    async def _remove(self, stored: views.CachedObject) -> None:
        """Build pods of a later incarnation and commands of ranks from the job, which must not fail. Then
        delete the pods and the job.
        """
        try:
            model = TrainingJob.model_validate(stored.raw)
        except ValueError:
            pass
        else:
            engine = catalogue()["gpt"] if model.spec.engine else None
            for slot in slots(model)[:2]:
                json.dumps(with_incarnation(pod(model, engine, slot), 2, {"node-a"}))
                if model.spec.engine is None or model.spec.engine.name == "gpt":
                    command(model, engine, slot)
        for one in list(self.cache.pods.indexed((stored.namespace, stored.name))):
            await self.gateway.delete(PODS, self.namespace, one.name, uid=one.uid, grace_seconds=0)
            self.cache.pods.remove(one)
        await self.gateway.delete(TRAINING_JOBS, self.namespace, stored.name, uid=stored.uid)
        self.cache.jobs.remove(stored)


@pytest.fixture
async def trial(control_plane: Any) -> AsyncIterator[Trial]:
    async with await client_of(control_plane) as client:
        yield Trial(client, control_plane.namespace("fuzz"))


@pytest.mark.timeout(60 + COUNT // 5)
async def test_no_template_stops_the_operator_or_stays_without_a_status(trial: Trial) -> None:
    numbers = iter(range(FIRST, FIRST + COUNT))

    async def work() -> None:
        for number in numbers:
            try:
                await trial.run(number)
            except Exception as fault:
                trial.faults.append(f"{number}: {fault!r}"[:500])

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    tried = trial.metrics.reconcile_errors
    bugs = tried.labels(TRAINING_JOB.name, "bug")._value.get()
    answers = trial.metrics.api_requests
    refused = sum(answers.labels("dry_run", "pods", code)._value.get() for code in ("400", "403", "422"))
    print(f"{COUNT} templates: {dict(trial.outcomes.most_common())}; {refused:.0f} by a dry run")
    assert not trial.faults, "\n".join(trial.faults[:20])
    assert bugs == 0
    assert trial.outcomes["pods created"] >= COUNT // 20, "mutations are not all fatal"
