"""`python -m convoy_operator.chart_test ENGINE PARAMS SECONDS POD`: trains a small job to its end.

`helm test` runs it. The job is of the operator's namespace, has one worker, and is taken away at the end,
whatever came of it. One that an earlier test has left is taken away first. PARAMS is a JSON object, SECONDS
is the time for all of it, POD is what the spec of the worker's pod has besides, as a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from convoy_controllers.resources import TRAINING_JOBS
from convoy_crds.terms import ConditionType
from convoy_operator import errors
from convoy_operator.client import KubernetesGateway
from convoy_operator.connection import connect, package_version
from convoy_operator.gateway import ApiGateway, Object
from convoy_operator.metrics import Metrics
from convoy_operator.settings import from_environment

NAME = "convoy-test"
POLL_SECONDS = 2.0
CLEANUP_SECONDS = 30.0
"""Of the whole time, kept for the end."""
TTL_SECONDS = 600
"""After which the operator deletes a job whose test was itself ended."""


class Failed(Exception):
    """The job did not come to a good end; says why, and where to look."""


def manifest(namespace: str, engine: str, params: Mapping[str, Any], pod: Mapping[str, Any]) -> Object:
    """The job. `pod` is what its worker's pod spec has besides."""
    worker = {"name": "worker", "replicas": 1, "template": {"spec": dict(pod)}}
    return {
        "apiVersion": TRAINING_JOBS.api_version,
        "kind": TRAINING_JOBS.kind,
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "engine": {"name": engine, "params": dict(params)},
            "roles": [worker],
            "ttlSecondsAfterFinished": TTL_SECONDS,
        },
    }


def outcome(job: Object) -> str | None:
    """What became of a job: empty for a good end, why it failed, or None while it has not ended."""
    conditions = (job.get("status") or {}).get("conditions") or []
    true = {entry["type"]: entry for entry in conditions if entry.get("status") == "True"}
    if ConditionType.COMPLETE in true:
        return ""
    if ended := true.get(ConditionType.FAILED):
        return f"it failed: {ended.get('reason')}: {ended.get('message')}"
    return None


def describe(job: Object) -> str:
    """Where a job is, in words."""
    status = job.get("status") or {}
    if not status.get("phase"):
        return "the operator has not looked at it"
    detail = ": ".join(text for text in (status.get("reason"), status.get("message")) if text)
    return f"{status['phase']}: {detail}" if detail else str(status["phase"])


async def train(
    gateway: ApiGateway,
    body: Object,
    seconds: float,
    report: Callable[[str], None] = print,
) -> None:
    """Creates the job, waits for its good end and deletes it. Raises Failed, and errors.ApiError."""
    namespace, job = body["metadata"]["namespace"], {}
    try:
        async with asyncio.timeout(seconds - CLEANUP_SECONDS):
            await delete_job(gateway, namespace)
            job = await gateway.create(TRAINING_JOBS, namespace, body)
            last = ""
            while (found := outcome(job)) is None:
                if (now := describe(job)) != last:
                    report(now)
                    last = now
                await asyncio.sleep(POLL_SECONDS)
                job = await gateway.get(TRAINING_JOBS, namespace, NAME)
            if found:
                raise Failed(found)
    except errors.NotFound:
        raise Failed("somebody else has deleted it") from None
    except TimeoutError:
        what = describe(job) if job else "one that an earlier test has left does not go away"
        raise Failed(f"it did not end within {seconds - CLEANUP_SECONDS:g} s; {what}") from None
    finally:
        if job:
            # Its pods may take longer; the garbage collector has them from here on.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLEANUP_SECONDS):
                    await delete_job(gateway, namespace)
    report("Complete")


async def delete_job(gateway: ApiGateway, namespace: str) -> None:
    """Deletes the job of that name, if there is one, and waits until it is gone."""
    while True:
        try:
            left = await gateway.get(TRAINING_JOBS, namespace, NAME)
            if not left["metadata"].get("deletionTimestamp"):
                await gateway.delete(TRAINING_JOBS, namespace, NAME, uid=left["metadata"]["uid"])
        except errors.NotFound:
            return
        except errors.Conflict:
            continue  # another has its name by now
        await asyncio.sleep(POLL_SECONDS)


async def run(engine: str, params: str, seconds: str, pod: str) -> int:
    """The process: exit code 0 when the job has trained to its end, else 1 with the reason on stderr."""
    settings = from_environment()
    client = await connect(settings)
    gateway = KubernetesGateway(client, settings, Metrics(package_version()))
    body = manifest(settings.namespace, engine, json.loads(params), json.loads(pod))
    try:
        await train(gateway, body, float(seconds))
    except Failed as why:
        print(f"TrainingJob {settings.namespace}/{NAME}: {why}", file=sys.stderr)
    except errors.ApiError as error:
        print(f"the API server refused: {error}", file=sys.stderr)
    else:
        return 0
    finally:
        await client.close()
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run(*sys.argv[1:])))
