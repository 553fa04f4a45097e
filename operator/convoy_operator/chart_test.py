"""The command `python -m convoy_operator.chart_test ENGINE PARAMS SECONDS POD`, which `helm test` runs.

The command trains a small job with one worker in the operator's namespace. At the end it deletes the job,
whatever the outcome. If a job of an earlier test still exists, the command deletes that job first. PARAMS
is a JSON object of engine parameters. SECONDS is the time limit of the whole command. POD is a JSON object
with further fields of the worker's pod spec.
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
"""Seconds of the time limit that are reserved for deleting the job."""
TTL_SECONDS = 600
"""Seconds after a job's end until the operator deletes the job. This applies only if the test was
interrupted before it could delete the job.
"""


class Failed(Exception):
    """The job did not complete. The message says why and where to look."""


def manifest(namespace: str, engine: str, params: Mapping[str, Any], pod: Mapping[str, Any]) -> Object:
    """Return the manifest of the job. `pod` holds further fields of the worker's pod spec."""
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
    """Return "" for a completed job, the reason for a failed one, and None for an unfinished one."""
    conditions = (job.get("status") or {}).get("conditions") or []
    true = {entry["type"]: entry for entry in conditions if entry.get("status") == "True"}
    if ConditionType.COMPLETE in true:
        return ""
    if ended := true.get(ConditionType.FAILED):
        return f"the job failed: {ended.get('reason')}: {ended.get('message')}"
    return None


def describe(job: Object) -> str:
    """Return one line with the phase, the reason and the message of a job, for the person who runs the
    test.
    """
    status = job.get("status") or {}
    if not status.get("phase"):
        return "the operator has not set its status yet"
    detail = ": ".join(text for text in (status.get("reason"), status.get("message")) if text)
    return f"{status['phase']}: {detail}" if detail else str(status["phase"])


async def train(
    gateway: ApiGateway,
    body: Object,
    seconds: float,
    report: Callable[[str], None] = print,
) -> None:
    """Create the job, wait until it completes, and delete it.

    Raises Failed if the job does not complete in time, and errors.ApiError if a request fails.
    """
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
        raise Failed("another client deleted the job") from None
    except TimeoutError:
        what = describe(job) if job else "a job left by an earlier test is not deleted yet"
        raise Failed(f"the job did not end within {seconds - CLEANUP_SECONDS:g} s; {what}") from None
    finally:
        if job:
            # Delete the job; Kubernetes' garbage collector then deletes its pods. Wait at most
            # CLEANUP_SECONDS for the deletion of the job.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLEANUP_SECONDS):
                    await delete_job(gateway, namespace)
    report("Complete")


async def delete_job(gateway: ApiGateway, namespace: str) -> None:
    """Delete the test's job, if it exists, and wait until it is gone."""
    while True:
        try:
            left = await gateway.get(TRAINING_JOBS, namespace, NAME)
            if not left["metadata"].get("deletionTimestamp"):
                await gateway.delete(TRAINING_JOBS, namespace, NAME, uid=left["metadata"]["uid"])
        except errors.NotFound:
            return
        except errors.Conflict:
            continue  # The name already belongs to a different job. Read that job and try again.
        await asyncio.sleep(POLL_SECONDS)


async def run(engine: str, params: str, seconds: str, pod: str) -> int:
    """Run the test; return 0 if the job completed, else 1 with the reason on stderr."""
    settings = from_environment()
    client = await connect(settings)
    gateway = KubernetesGateway(client, settings, Metrics(package_version()))
    body = manifest(settings.namespace, engine, json.loads(params), json.loads(pod))
    try:
        await train(gateway, body, float(seconds))
    except Failed as why:
        print(f"TrainingJob {settings.namespace}/{NAME}: {why}", file=sys.stderr)
    except errors.ApiError as error:
        print(
            f"TrainingJob {settings.namespace}/{NAME}: a request to the API server failed: {error}",
            file=sys.stderr,
        )
    else:
        return 0
    finally:
        await client.close()
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run(*sys.argv[1:])))
