"""The one executor of a plan's children: created, applied, deleted, patched, evicted."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson
import structlog

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply, Child, Create, Delete, EndPod, EvictPod, Patch, PatchStatus
from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.resources import PODS, Resource
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_crds.terms import ANNOTATION_INTENT, LABEL_MANAGED, OPERATOR
from convoy_operator import errors, mutated, views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.events import EventRecorder
from convoy_operator.field_conflicts import FieldConflicts
from convoy_operator.gateway import ApiGateway, ensure
from convoy_operator.metrics import Metrics

log = structlog.get_logger(__name__)

EVICT_SECONDS = 15.0
"""Seconds between two tries to evict one pod: its PodDisruptionBudget may keep it."""
STRIPPED = (
    "it was stored without {what}, by which Convoy finds it, and was deleted: have the mutating webhooks and "
    "policies of this cluster leave those of pods with label convoy.dev/job"
)
NAME_IN_USE = "a pod of that name exists and is not this job's; delete it or rename the job"

APPLIED_NAME_IN_USE = "{kind} {name} exists and belongs to somebody else; delete it or rename the parent"


class Owner(Protocol):
    """The object that children belong to."""

    @property
    def namespace(self) -> str:
        """Empty for cluster-scoped objects."""

    @property
    def name(self) -> str:
        """The object's name."""

    @property
    def uid(self) -> str:
        """The object's uid."""


class Executor:
    """Carries out the children of one parent at a time; at most `parallel` requests of it are under way."""

    def __init__(
        self,
        gateway: ApiGateway,
        cache: ClusterCache,
        recorder: EventRecorder,
        metrics: Metrics,
        parallel: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._cache = cache
        self._recorder = recorder
        self._metrics = metrics
        self._parallel = parallel
        self._clock = clock
        self.field_conflicts = FieldConflicts(clock)
        self._evicted: dict[str, float] = {}
        """By uid, when pods were last asked to leave."""
        self._verbs: Mapping[type[Child], Callable[[Owner, Any], Awaitable[None]]] = {
            Apply: self._apply,
            Delete: self._delete,
            Patch: self._patch,
            PatchStatus: self._patch_status,
            EndPod: self._end,
            EvictPod: self._evict,
        }

    async def execute(self, owner: Owner, children: Sequence[Child]) -> Mapping[str, Refusal]:
        """Carry out children in their order; return, by name, why the API server refused some of them.

        Neighbours of one type go side by side. After a refusal the next type is not begun. Raises
        errors.ApiError for what may heal by itself, once all of that type have been tried.
        """
        for kind, group in itertools.groupby(children, type):
            refused: dict[str, Refusal] = {}
            if kind is Create:
                creations = [child for child in group if isinstance(child, Create)]
                refused = await self._create_all(owner, creations)
            else:
                await self._run_parallel(self._child(owner, child, refused) for child in group)
            if refused:
                return refused
        return {}

    async def _child(self, owner: Owner, child: Child, refused: dict[str, Refusal]) -> None:
        """Carry out one child. A refusal to apply a whole object is noted, for the status to name it."""
        try:
            await self._verbs[type(child)](owner, child)
        except (errors.Invalid, errors.Forbidden, errors.WebhookFailed) as fault:
            if not isinstance(child, Apply) or child.subresource:
                raise
            refused[child.name] = Refusal(fault.message)

    async def prune(self, owner: Owner, resources: Iterable[Resource], children: Sequence[Child]) -> None:
        """Delete what the owner owns of these resources and does not apply any more."""
        wanted = {(child.resource, child.name) for child in children if isinstance(child, Apply)}
        left = [
            Delete(resource, one.name, one.uid)
            for resource in resources
            for one in self._cache.children(resource, owner.uid)
            if (resource, one.name) not in wanted
        ]
        await self._run_parallel(self._delete(owner, one) for one in left)

    async def _create_all(self, owner: Owner, children: Sequence[Create]) -> dict[str, Refusal]:
        """After the first refusal no more are begun: the others come from the same template and quota, and a
        gang that lacks one pod needs none.
        """
        refused: dict[str, Refusal] = {}
        waiting = list(reversed(children))

        async def work() -> None:
            while waiting and not refused:
                child = waiting.pop()
                try:
                    await self._create(owner, child)
                except (errors.Invalid, errors.Forbidden, errors.WebhookFailed) as fault:
                    refused[child.name] = Refusal(fault.message)

        await _run_all([work() for _ in range(min(self._parallel, len(children)))])
        return refused

    async def _create(self, owner: Owner, child: Create) -> None:
        raw: Mapping[str, Any]
        namespace = _namespace(owner, child.resource)
        try:
            raw = await self._gateway.create(child.resource, namespace, child.manifest)
            lacks = mutated.missing_parts(child.manifest, raw)
        except errors.AlreadyExists:
            if not views.controller_uid(child.manifest):
                # Whoever has made it: the watch brings it.
                return
            raw = await self._existing(owner, child)
            lacks = mutated.missing_labels(child.manifest, raw)
        if lacks:
            await self._delete(owner, Delete(child.resource, child.name, raw["metadata"]["uid"]))
            raise errors.Invalid(422, STRIPPED.format(what=lacks))
        self._upsert(child.resource, raw)

    async def _existing(self, owner: Owner, child: Create) -> Mapping[str, Any]:
        """Return the object that has the name already, from a lost response or another life.

        Raises errors.Invalid if it had to be the parent's and is another's.
        """
        raw = await self._gateway.get(child.resource, _namespace(owner, child.resource), child.name)
        if views.controller_uid(raw) != views.controller_uid(child.manifest):
            raise errors.Invalid(409, NAME_IN_USE)
        if _intent(raw) != _intent(child.manifest):
            # The plan sees it from now on and decides what becomes of it.
            log.info("an outdated object has the name", kind=child.resource.kind, name=child.name)
        return raw

    async def _apply(self, owner: Owner, child: Apply) -> None:
        """Apply fields; raise errors.Invalid if an object of that name belongs to somebody else."""
        resource, namespace = child.resource, _namespace(owner, child.resource)
        if child.subresource:
            fields = {name: value for name, value in child.manifest.items() if name != "metadata"}
            raw = await self._gateway.apply(
                resource, namespace, child.name, fields, subresource=child.subresource
            )
            self._upsert(resource, raw, own=True)
            return
        body = _marked(child.manifest)
        known = self._cache.child(resource, namespace or "", child.name)
        if known is None:
            try:
                known = views.cached_object(await self._gateway.get(resource, namespace, child.name))
            except errors.NotFound:
                # Not by POST: an apply never takes off the fields of a POST. Not by force: if somebody else
                # is faster, the fields in common are theirs, and that is a Conflict.
                raw = await self._gateway.apply(resource, namespace, child.name, body, force=False)
                self._applied(owner, resource, raw)
                return
        if views.controller_uid(known.raw) != views.controller_uid(body):
            raise errors.Invalid(409, APPLIED_NAME_IN_USE.format(kind=resource.kind, name=child.name))
        wanted = _intent(known.raw) == _intent(body) and _labelled(known)
        if not wanted or self.field_conflicts.due(owner.uid, known):
            self._applied(owner, resource, await self._gateway.apply(resource, namespace, child.name, body))

    def _applied(self, owner: Owner, resource: Resource, raw: Mapping[str, Any]) -> None:
        self.field_conflicts.record(owner.uid, views.cached_object(raw))
        self._upsert(resource, raw, own=True)

    async def _patch(self, owner: Owner, child: Patch) -> None:
        raw = await self._gateway.patch(
            child.resource, _namespace(owner, child.resource), child.name, child.body
        )
        self._upsert(child.resource, raw, own=True)
        log.info("patched", kind=child.resource.kind, name=child.name)

    async def _patch_status(self, owner: Owner, child: PatchStatus) -> None:
        """Store a status. What cannot be stored is wanted again by the next plan; a Conflict is raised."""
        try:
            await self._store_status(owner, child)
        except errors.Conflict:
            raise
        except errors.ApiError as fault:
            log.warning("status not stored", kind=child.resource.kind, name=child.name, error=str(fault))

    async def _store_status(self, owner: Owner, child: PatchStatus) -> None:
        resource, namespace = child.resource, _namespace(owner, child.resource)
        parent = self._cache.child(resource, namespace or "", child.name)
        if parent is None:
            raw = await ensure(self._gateway, resource, child.name)
            parent = views.cached_object(raw)
            self._upsert(resource, raw, own=True)
            log.info("created", kind=resource.kind, name=child.name)
        if parent.status and not child.version:
            raise errors.Conflict(409, f"{resource.kind} {child.name} has a status meanwhile")
        if patch := merge_patch(parent.status, child.status):
            version = child.version or str(parent.version)
            raw = await self._gateway.patch_status(resource, namespace, child.name, version, patch)
            self._upsert(resource, raw, own=True)
        for event in child.events:
            log.info("status stored", kind=resource.kind, name=child.name, reason=event.reason.name)
            self._recorder.record(resource, dict(parent.raw), event)

    async def _end(self, owner: Owner, pod: EndPod) -> None:
        # A deadline may be set on a pod that runs. Its kubelet counts it from the start, so this one is over.
        patch = {"metadata": {"uid": pod.uid}, "spec": {"activeDeadlineSeconds": 1}}
        try:
            raw = await self._gateway.patch(PODS, owner.namespace, pod.name, patch)
        except (errors.Invalid, errors.Forbidden) as fault:
            log.warning("pod not ended, so it is deleted", pod=pod.name, error=fault.message)
            await self._delete(owner, Delete(PODS, pod.name, pod.uid))
        except (errors.NotFound, errors.Conflict):
            self._cache.drop(PODS, pod.uid)
        else:
            self._upsert(PODS, raw)

    async def _delete(self, owner: Owner, child: Delete) -> None:
        """Delete exactly the object that was seen; one that is gone or replaced is as good as deleted."""
        self.field_conflicts.drop(owner.uid, child.uid)
        try:
            raw = await self._gateway.delete(
                child.resource,
                _namespace(owner, child.resource),
                child.name,
                uid=child.uid,
                grace_seconds=child.grace_seconds,
            )
        except (errors.NotFound, errors.Conflict):
            self._cache.drop(child.resource, child.uid)
            return
        if raw.get("kind") != child.resource.kind:
            return
        if _removed_at_once(raw["metadata"]):
            # Its name is free from now on; the watch says so later.
            self._cache.drop(child.resource, child.uid)
        else:
            self._upsert(child.resource, raw)

    async def _evict(self, owner: Owner, pod: EvictPod) -> None:
        """Evict a pod unless it was asked to leave a while ago. A refusal is tried again by a later plan."""
        now = self._clock()
        self._evicted = {uid: at for uid, at in self._evicted.items() if now - at < EVICT_SECONDS}
        if pod.uid in self._evicted:
            return
        self._evicted[pod.uid] = now
        try:
            await self._gateway.evict(pod.namespace, pod.name, uid=pod.uid)
        except errors.ApiError as fault:
            log.warning("not evicted", pod=f"{pod.namespace}/{pod.name}", error=str(fault))
            return
        self._metrics.guard_swaps.inc()
        log.info("evicted", pod=f"{pod.namespace}/{pod.name}")

    def _upsert(self, resource: Resource, raw: Mapping[str, Any], *, own: bool = False) -> None:
        self._cache.upsert(resource, raw, own=own)

    async def _run_parallel(self, work: Iterable[Awaitable[None]]) -> None:
        slots = asyncio.Semaphore(self._parallel)

        async def one(attempt: Awaitable[None]) -> None:
            async with slots:
                await attempt

        await _run_all([one(attempt) for attempt in work])


def _removed_at_once(deleted: Mapping[str, Any]) -> bool:
    """Return True if the response to a DELETE, by its metadata, says that nobody waits for anything more."""
    return deleted.get("deletionGracePeriodSeconds") == 0 and not deleted.get("finalizers")


def _namespace(owner: Owner, resource: Resource) -> str | None:
    """Return the namespace of a child: the owner's, or none for a resource without namespaces."""
    return (owner.namespace or None) if resource.namespaced else None


def _labelled(known: CachedObject) -> bool:
    labels = known.raw["metadata"].get("labels") or {}
    return bool(labels.get(LABEL_MANAGED) == OPERATOR)


def _intent(body: Mapping[str, Any]) -> str | None:
    found: str | None = (body["metadata"].get("annotations") or {}).get(ANNOTATION_INTENT)
    return found


def _marked(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with the operator's label and a digest by which equal intents are known."""
    metadata = manifest["metadata"]
    digest = hashlib.sha256(orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
    labels = {**metadata.get("labels", {}), LABEL_MANAGED: OPERATOR}
    annotations = {**metadata.get("annotations", {}), ANNOTATION_INTENT: digest}
    return {**manifest, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


async def _run_all(work: Sequence[Awaitable[None]]) -> None:
    """Run all to their end, then raise the first error: half a batch must not be left unaccounted for."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
