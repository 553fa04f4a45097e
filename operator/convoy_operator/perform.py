"""Carries out the children of a plan: pods created and deleted, and what the API server would not have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from convoy_controllers.cached import Parent
from convoy_controllers.plan import DeletePod, EndPod
from convoy_controllers.resources import PODS
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_crds.terms import ANNOTATION_INTENT
from convoy_operator import errors, mutated, views
from convoy_operator.gateway import ApiGateway
from convoy_operator.world import World

log = structlog.get_logger(__name__)

TAKEN_OFF = (
    "it was stored without {what}, by which Convoy finds it, and was deleted: have the mutating webhooks and "
    "policies of this cluster leave those of pods with label convoy.dev/job"
)
NAME_TAKEN = "a pod of that name exists and is not this job's; delete it or rename the job"


class Children:
    """Pods of one parent at a time; at most `parallel` requests of it under way."""

    def __init__(self, gateway: ApiGateway, world: World, parallel: int) -> None:
        self._gateway = gateway
        self._world = world
        self._parallel = parallel

    async def create(self, parent: Parent, bodies: Sequence[Mapping[str, Any]]) -> dict[str, Refusal]:
        """Creates pods; by name, why the API server refused those it did.

        After the first refusal no more are begun: the others come from the same template and quota, and a
        gang that lacks one pod needs none. Raises errors.ApiError for what may heal by itself.
        """
        refused: dict[str, Refusal] = {}
        waiting = list(reversed(bodies))

        async def work() -> None:
            while waiting and not refused:
                body = waiting.pop()
                try:
                    await self._create(parent, body)
                except (errors.Invalid, errors.Forbidden, errors.WebhookFailed) as fault:
                    refused[body["metadata"]["name"]] = Refusal(fault.message)

        await _together([work() for _ in range(min(self._parallel, len(bodies)))])
        return refused

    async def _create(self, parent: Parent, body: Mapping[str, Any]) -> None:
        name = body["metadata"]["name"]
        raw: Mapping[str, Any]
        try:
            raw = await self._gateway.create(PODS, parent.namespace, body)
            lacks = mutated.lacking(body, raw)
        except errors.AlreadyExists:
            raw = await self._existing(parent, body, name)
            lacks = mutated.hidden(body, raw)
        if lacks:
            await self._delete(parent, DeletePod(name, raw["metadata"]["uid"]))
            raise errors.Invalid(422, TAKEN_OFF.format(what=lacks))
        self._world.pods.upsert(views.pod(raw))

    async def _existing(self, parent: Parent, body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """The pod that has the name already: ours from a lost answer or another life, else a refusal."""
        raw = await self._gateway.get(PODS, parent.namespace, name)
        if views.controller_uid(raw) != parent.uid:
            raise errors.Invalid(409, NAME_TAKEN)
        seen = (raw["metadata"].get("annotations") or {}).get(ANNOTATION_INTENT)
        if seen != body["metadata"]["annotations"].get(ANNOTATION_INTENT):
            # The plan sees it from now on and decides what becomes of it.
            log.info("an outdated pod has the name", pod=name)
        return raw

    async def delete(self, parent: Parent, pods: Sequence[DeletePod]) -> None:
        """Deletes exactly the pods that were seen; one that is gone or replaced is as good as deleted."""
        waiting = list(reversed(pods))

        async def work() -> None:
            while waiting:
                await self._delete(parent, waiting.pop())

        await _together([work() for _ in range(min(self._parallel, len(pods)))])

    async def end(self, parent: Parent, pods: Sequence[EndPod]) -> None:
        """Ends what runs of exactly these pods and leaves the pods; deletes those that cannot be so ended."""
        waiting = list(reversed(pods))

        async def work() -> None:
            while waiting:
                await self._end(parent, waiting.pop())

        await _together([work() for _ in range(min(self._parallel, len(pods)))])

    async def _end(self, parent: Parent, pod: EndPod) -> None:
        # A deadline may be set on a pod that runs. Its kubelet counts it from the start, so this one is over.
        patch = {"metadata": {"uid": pod.uid}, "spec": {"activeDeadlineSeconds": 1}}
        try:
            raw = await self._gateway.patch(PODS, parent.namespace, pod.name, patch)
        except (errors.Invalid, errors.Forbidden) as fault:
            log.warning("pod not ended, so it is deleted", pod=pod.name, error=fault.message)
            await self._delete(parent, DeletePod(pod.name, pod.uid))
        except (errors.NotFound, errors.Conflict):
            if known := self._world.pods.by_uid(pod.uid):
                self._world.pods.remove(known)
        else:
            self._world.pods.upsert(views.pod(raw))

    async def _delete(self, parent: Parent, pod: DeletePod) -> None:
        try:
            raw = await self._gateway.delete(
                PODS, parent.namespace, pod.name, uid=pod.uid, grace_seconds=pod.grace_seconds
            )
        except (errors.NotFound, errors.Conflict):
            if known := self._world.pods.by_uid(pod.uid):
                self._world.pods.remove(known)
            return
        if raw.get("kind") != "Pod":
            return
        deleted = views.pod(raw)
        if _gone(raw["metadata"]):
            # Its name is free from now on; the watch says so later.
            self._world.pods.remove(deleted)
        else:
            self._world.pods.upsert(deleted)


def _gone(deleted: Mapping[str, Any]) -> bool:
    """Whether the answer to a DELETE, by its metadata, says that nothing is waited for any more."""
    return deleted.get("deletionGracePeriodSeconds") == 0 and not deleted.get("finalizers")


async def _together(work: Sequence[Any]) -> None:
    """Runs all to their end, then raises the first error: half a batch must not be left unaccounted for."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
